#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live on a real cluster: a growth that needs more memory beside the state than it may is made in chunks, and so is the way back when
# its GPUs are needed; one that loses a program between two chunks goes on from the snapshot of that very step.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2

export "${needs_chunks[@]}" SWELL_SNAPSHOT_EVERY=1000000
elastic=(--elastic=mode=live,max=4,grace=30 --gres=gpu:2 -w node1)

number_of() { # KEY [N]: of the first switch that was committed, or the Nth
  grep '"event":"switch-committed"' "$out/events" | sed -n "${2:-1}p" | grep -o "\"$1\":[0-9]*" | cut -d: -f2
}
# The Nth was made in chunks, within the bound.
is_in_chunks() { # N
  printf 'switch %s: %s chunks, %s bytes beside the state\n' "$1" "$(number_of chunks "$1")" "$(number_of extra_bytes "$1")"
  (($(number_of chunks "$1") >= 2 && $(number_of extra_bytes "$1") > 0 && $(number_of extra_bytes "$1") <= 16384))
}
in_chunks() {
  live "${elastic[@]}" && within 120 live_grown 4 && event switch-secure && well_ended
  local result=$?
  cat "$work/$job.out"
  ((result == 0)) && is_in_chunks 1 && grep 'in [0-9]* chunks, at most [0-9]* bytes beside the state' "$work/$job.out"
}
check 'a growth that needs twice the memory that it may is made in chunks, within the bound' in_chunks

# Back from two shards to two stages for a rigid job, before its grace of 30 s is over.
back_in_chunks() {
  local began waited
  live "${elastic[@]}" && within 120 live_grown 4 && settled || return
  began=$SECONDS
  rigid --gres=gpu:2 -w node2 && within 120 in_state "$rigid_job" RUNNING || return
  waited=$((SECONDS - began))
  printf 'the rigid job waited %s s\n' "$waited"
  ((waited < 30)) && within 120 live_grown 2 && event switch-secure 2 && event switch-committed 2 && is_in_chunks 2 && scancel "$rigid_job" &&
    well_ended
  local result=$?
  cat "$work/$job.out"
  return $result
}
check 'lent GPUs go back by a switch in chunks within the grace, and no step is lost' back_in_chunks

between_chunks() {
  export SWELL_TEST_HOLD=chunk:$work/hold
  rm -f "$work"/hold*
  touch "$work/hold"
  live "${elastic[@]}" && within 120 test -e "$work/hold.reached" && kill -KILL "$(program_of 1 1)" && rm "$work/hold" &&
    within 120 event switch-aborted && within 120 goes_on_with 2 && no_step_lost && ends_right && goes_on_live &&
    within 60 has_no_companions "$job" && within 60 nothing_left
  local result=$?
  unset SWELL_TEST_HOLD
  cat "$work/$job.out"
  return $result
}
check 'a program that is killed between two chunks costs no step' between_chunks

finish_tests
