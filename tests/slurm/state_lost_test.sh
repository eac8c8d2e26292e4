#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell_state is lost while slurmctld is down: a companion is believed where its parent names it as it is, and not otherwise.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 2 --gpus-per-node 4

state=$SWELL_CLUSTER_DIR/state/swell_state
saved_by_slurm() { # JOB: its AdminComment is in what slurmctld would load after kill -9
  grep -aq "companions=$(companions "$1" | head -n 1)" "$SWELL_CLUSTER_DIR/state/job_state"
}
lose_state() {
  "$cluster" kill-ctld "$@" && rm "$state" && "$cluster" restart-ctld
}

is_not_believed() { # what the parent's AdminComment says of its companions, in place of the truth
  local before comment
  submit --elastic=max=6 --gres=gpu:2 && within 30 grown "$job" 6 && before=$(companions "$job") || return
  comment=$(scontrol -o show job "$job" | sed -n 's/.*AdminComment=\(swell\[.*\]\).*/\1/p')
  # shellcheck disable=SC2001
  comment=$(sed "s/companions=[^] ]*/companions=${1//COMPANION/$(head -n 1 <<< "$before")}/" <<< "$comment")
  scontrol update job="$job" admincomment="$comment" && lose_state || return
  local one
  for one in $before; do within 30 ended "$one" || { squeue; return 1; }; done
  in_state "$job" RUNNING && goes_on "$job" && within 40 grown "$job" 6 && settled
}
check 'one that holds more GPUs than its parent names is cancelled, and the job grows anew' is_not_believed COMPANION:node1:1:0
check 'one that its parent does not name is cancelled' is_not_believed -

is_believed() {
  local before
  submit --elastic=max=6 --gres=gpu:2 && within 30 grown "$job" 6 && before=$(companions "$job") &&
    within 20 saved_by_slurm "$job" && lose_state -9 || return
  within 30 grep -q "\"parent\": $job\b" "$state" && [[ $(companions "$job") == "$before" ]] &&
    goes_on "$job" && within 20 grown "$job" 6 && settled
}
check 'a companion that its parent names survives the loss of the state file' is_believed

finish_tests
