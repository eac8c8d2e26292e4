#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Rigid jobs wait no longer for a job in mode=live than for the same job where it is resized by restarts, by Slurm's own record.
#   live_wait_test.sh [--all | NAME...]   (default: fsdp; lora and sft start slowly on a small machine)
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
names=("$@")
((${#names[@]})) || names=(fsdp)
[[ ${names[0]} != --all ]] || names=(fsdp lora sft)
[[ ${#names[@]} == 1 ]] || has_modules peft trl || lacks 'peft or trl'
rounds=3 allowed_percent=125 allowed_s=2 # beyond the other job's: Slurm's record is in seconds, and it looks for jobs now and then
cluster_up --nodes 2 --gpus-per-node 2 --grace 300
export TEST_STEPS=1000000 TEST_PACE=0.1

program() { # NAME: sets `program_words`
  case $1 in
    fsdp) program_words=("$pytorch_tests/jobs/ddp.py" fsdp no-checkpoints) ;;
    lora) program_words=("$pytorch_tests/jobs/hf.py" lora no-checkpoints) ;;
    sft) program_words=("$pytorch_tests/jobs/trl_sft.py" no-checkpoints) ;;
    *) return 1 ;;
  esac
}
# Each has a node of its own, with a GPU to be lent.
starts() { # NAME MODE NODE OTHER
  run_job "$1-$2" --elastic="max=2,grace=300,mode=$2" --gres=gpu:1 -w "$3" --exclude="$4" -- "$SWELL_PYTHON" "${program_words[@]}" && job_on[$3]=$job folder_on[$3]=$folder
}
trains_on_two() { # NODE
  lent_and_active "${job_on[$1]}" 1 && [[ $(tail -n 1 "${folder_on[$1]}/losses") == *'"world": 2,'* ]]
}
# Prints how long the rigid job has waited for the GPU that the node's job is lent.
waited_on() { # NODE
  rigid --gres=gpu:1 -w "$1" && within 120 in_state "$rigid_job" RUNNING || return
  local record eligible start
  record=$(scontrol -o show job "$rigid_job") && eligible=$(time_in EligibleTime) && start=$(time_in StartTime) && printf '%s\n' $((start - eligible))
}
time_in() { date -d "$(grep -o " $1=[^ ]*" <<< "$record" | cut -d= -f2)" +%s; }
median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }

waits_no_longer() { # NAME
  local -A job_on=() folder_on=()
  local live=() restarted=() wait round
  program "$1" && starts "$1" live node1 node2 && starts "$1" restart node2 node1 || return
  for ((round = 0; round < rounds; ++round)); do
    within 120 trains_on_two node1 && within 120 trains_on_two node2 && gets_on "${folder_on[node1]}" && gets_on "${folder_on[node2]}" || { tail -n 20 "$work/$1"-*.out; return 1; }
    wait=$(waited_on node1) || { printf '%s\n' "$wait"; return 1; }
    live+=("$wait")
    wait=$(waited_on node2) || { printf '%s\n' "$wait"; return 1; }
    restarted+=("$wait")
    scancel --name=wrap
  done
  scancel "${job_on[@]}"
  printf 'waits for the live job: %s s, for the restarted one: %s s\n' "${live[*]}" "${restarted[*]}"
  grep -hE 'live: from|asked to leave' "$work/$1-live.out"
  (($(median "${live[@]}") * 100 <= $(median "${restarted[@]}") * allowed_percent + allowed_s * 100))
}
for name in "${names[@]}"; do
  check "$name: rigid jobs wait no longer for the live job than for the restarted one" waits_no_longer "$name"
  grep '^waits for' "$check_log" | sed 's/^/# /'
done
finish_tests
