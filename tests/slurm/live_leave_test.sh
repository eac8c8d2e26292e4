#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live: programs that are asked to leave do so at one step.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2
# No snapshot but the one that a program takes as it leaves.
export SWELL_SNAPSHOT_EVERY=1000000000 PLANS='2=1,1,2,0 4=2,1,2,0'

stop_step() { sed -n 's/.*"event":"stop-told".*"step":\([0-9]*\),.*/\1/p; t; s/.*"step":\([0-9]*\),.*"event":"stop-told".*/\1/p' "$out/events"; }
# The reclaim's switch waits for its new programs until it is too late for it.
leaves_at_one_step() {
  export PROGRAM=./held
  live --elastic=mode=live,sizes=2/4,max=4,grace=20 --gres=gpu:2 -w node1 && touch "$out/go" && within 120 live_grown 4 && settled &&
    rm "$out/go" || return
  rigid --gres=gpu:2 -w node2 && within 120 event stop-told && touch "$out/go" && within 120 in_state "$rigid_job" RUNNING &&
    within 120 goes_on_with 2 || return
  local step
  step=$(stop_step)
  ((step > 0)) && grep "live: 2 workers go on from the snapshot of step $step\$" "$work/$job.out" && ends_right && goes_on_live
}
leaves() {
  leaves_at_one_step
  local result=$?
  unset PROGRAM
  cat "$out/events" "$out/began" "$work/$job.out"
  return $result
}
check 'where a reclaim finds no time for a switch all ranks leave at one step, and the others lose none' leaves

finish_tests
