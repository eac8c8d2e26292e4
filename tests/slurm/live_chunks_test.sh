#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live on a real cluster: a growth that needs more memory beside the state than it may is made in chunks, and one that loses a
# program between two of them goes on from the snapshot of that very step.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2

export "${in_chunks[@]}" SWELL_SNAPSHOT_EVERY=1000000
elastic=(--elastic=mode=live,max=4,grace=30 --gres=gpu:2 -w node1)

number_of() { # KEY: of the switch that was committed
  grep '"event":"switch-committed"' "$out/events" | head -n 1 | grep -o "\"$1\":[0-9]*" | cut -d: -f2
}
in_chunks() {
  live "${elastic[@]}" && within 120 live_grown 4 && event switch-secure && well_ended
  local result=$?
  cat "$work/$job.out"
  printf '%s chunks, %s bytes beside the state\n' "$(number_of chunks)" "$(number_of extra_bytes)"
  ((result == 0 && $(number_of chunks) >= 2 && $(number_of extra_bytes) > 0 && $(number_of extra_bytes) <= 16384)) &&
    grep 'in [0-9]* chunks, at most [0-9]* bytes beside the state' "$work/$job.out"
}
check 'a growth that needs twice the memory that it may is made in chunks, within the bound' in_chunks

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
