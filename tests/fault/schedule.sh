# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# For tests/fault/soak: draws the events and their times from the seed alone, before anything starts.

# schedule SEED SECONDS JOBS FAULTS NODES: lines "AT ACTION NUMBER...", sorted. The numbers choose among what is there then:
# which job, which worker, which node. Every fourth elastic job is live. For each dozen jobs there is a rigid one beside them that takes lent
# GPUs back.
schedule() {
  local seconds=$2 jobs=$3 faults=$4 nodes=$5 i at elastic=0 takings
  local kinds=(scancel scancel scancel scancel worker worker worker swellrun swellrun slurmd slurmd slurmctld slurmctld
    reconfigure reconfigure drain drain down)
  {
    RANDOM=$1 # here, as every subshell draws numbers of its own
    for ((i = 0; i < jobs; i++)); do
      at=$((i * seconds / jobs))
      if ((RANDOM % 2)); then
        local mode=restart
        ((elastic++ % 4)) || mode=live
        printf '%s elastic %s %s %s\n' "$at" $((RANDOM % 2 + 1)) $((15 + RANDOM % 45)) "$mode"
      else
        printf '%s rigid %s %s\n' "$at" $((RANDOM % 4 + 1)) $((4 + RANDOM % 16))
      fi
    done
    takings=$(((jobs + 11) / 12))
    for ((i = 1; i <= takings; i++)); do
      printf '%s take-back %s\n' $((i * seconds / (takings + 1))) $((4 + RANDOM % 8))
    done
    for ((i = 0; i < faults; i++)); do
      at=$((10 + i * (seconds - 10) / faults))
      local kind=${kinds[RANDOM % ${#kinds[@]}]} number=$RANDOM
      # Memory is watched over one life of slurmctld, the last two fifths.
      [[ $kind == slurmctld ]] && ((at > seconds * 3 / 5)) && kind=reconfigure
      case $kind in
        slurmd | drain | down) printf '%s %s node%s\n' "$at" "$kind" $((number % nodes + 1)) ;;
        *) printf '%s %s %s\n' "$at" "$kind" "$number" ;;
      esac
      case $kind in
        slurmd) printf '%s start-slurmd node%s\n' $((at + 1 + RANDOM % 8)) $((number % nodes + 1)) ;;
        drain | down) printf '%s resume node%s\n' $((at + 3 + RANDOM % 12)) $((number % nodes + 1)) ;;
      esac
    done
  } | sort -n -s -k1,1
}
