#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live with programs that keep their process from plan to plan.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2
export STAYS=1

pids() { # of ranks 0 and 1 of the newest generation
  awk '$2 > generation { generation = $2 } { pid[$2, $3] = $1 } END { print pid[generation, 0], pid[generation, 1] }' "$out/began"
}
# Two of its own on node1; the two of node2 are lent, taken back, and lent again.
stays() {
  export PLANS='2=1,1,2,0 4=2,1,2,0'
  live --elastic=mode=live,sizes=2/4,max=4,grace=20 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled || return
  local first
  first=$(awk '$2 == 1 { pid[$3] = $1 } END { print pid[0], pid[1] }' "$out/began")
  [[ $first != ' ' && $(pids) == "$first" ]] && rigid --gres=gpu:2 -w node2 && within 120 in_state "$rigid_job" RUNNING &&
    within 120 live_grown 2 && [[ $(pids) == "$first" ]] && scancel "$rigid_job" && within 120 live_grown 4 && [[ $(pids) == "$first" ]] &&
    event switch-committed 3 && goes_on_live && well_ended
  local result=$?
  unset PLANS
  cat "$out/began" "$work/$job.out"
  return $result
}
check 'a program that stays keeps its processes through a growth, a reclaim and another growth' stays

# A script around the program: the process that trains is not the one that was started.
printf '#!/bin/bash\n./in_step "$@"\nexit $?\n' > "$work/wrapped"
chmod +x "$work/wrapped"
# Where a program is new all begin anew; where none is, each is kept.
stays_together() {
  export PLANS='2=1,1,2,0 4=2,1,2,0' STAYS=together PROGRAM=./wrapped
  live --elastic=mode=live,sizes=2/4,max=4,grace=20 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled || return
  local grown
  grown=$(pids)
  rigid --gres=gpu:2 -w node2 && within 120 in_state "$rigid_job" RUNNING && within 120 live_grown 2 && [[ $(pids) == "$grown" ]] &&
    scancel "$rigid_job" && within 120 live_grown 4 && [[ ${grown%% *} != "$(pids | cut -d ' ' -f 1)" && ${grown##* } != "$(pids | cut -d ' ' -f 2)" ]] &&
    goes_on_live && well_ended
  local result=$?
  unset PLANS PROGRAM
  STAYS=1
  cat "$out/began" "$work/$job.out"
  return $result
}
check 'a program that stays only beside others that do keeps its processes through a reclaim, and starts anew in a growth' stays_together

lent_one_dies() {
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 || return
  local before
  before=$(pids)
  kill -KILL "$(awk '$2 == 2 && $3 == 3 { print $1 }' "$out/began")"
  within 120 event companion-lost && within 120 began_anew "$before" && ends_right
  local result=$?
  cat "$out/began" "$work/$job.out"
  return $result
}
began_anew() { [[ $(pids) != "$1" ]]; }
check 'where a lent one is killed the others leave, and the run begins anew as without it' lent_one_dies

finish_tests
