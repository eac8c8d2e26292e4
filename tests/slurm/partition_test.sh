#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The set-up without slurmdbd: companions in a partition of a lower tier (preempt/partition_prio).
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 3 --gpus-per-node 4 --no-accounting

grows_and_shrinks() {
  submit --elastic=max=12,grace=10 --gres=gpu:4 && within 30 grown "$job" 12 && settled || return
  [[ $(squeue --all -h -j "$(companions "$job" | head -n 1)" -o %P) == expansion ]] || return
  rigid --gres=gpu:4 && within 20 in_state "$rigid_job" RUNNING && settled && within 30 grown "$job" 8 || return
  scancel "$rigid_job" && within 40 grown "$job" 12 && touch "$work/$job/finish" && within 20 ended "$job" &&
    within 10 has_no_companions "$job"
}
check 'a job grows, gives back and ends' grows_and_shrinks

the_partition_is_reserved() {
  local said list own
  for list in expansion train,expansion expansion,train Expansion; do
    said=$(sbatch --partition="$list" --output=/dev/null --gres=gpu:1 --wrap 'sleep 1' 2>&1) && { echo "accepted: $list"; return 1; }
    [[ $said =~ 'for companions' ]] || { echo "$said"; return 1; }
  done
  [[ $(id -u) == 0 ]] || return 0
  local -a nobody=(setpriv "--reuid=$(id -u nobody)" "--regid=$(id -g nobody)" --clear-groups)
  own=$("${nobody[@]}" sbatch --parsable --output=/dev/null --hold --wrap 'sleep 1') || return
  for list in expansion train,expansion; do
    "${nobody[@]}" scontrol update job="$own" partition="$list" && { echo "moved to $list"; return 1; }
  done
  "${nobody[@]}" scontrol update job="$own" partition=train
}
check 'the expansion partition takes companions only' the_partition_is_reserved

finish_tests
