#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live on a real cluster, beside live_test.sh: plans of all kinds one after the other, the first plan over lent GPUs, the
# bound of memory, and reclaims that there is little or no time to move for.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 4

# The controller has two seconds for its offer; on a loaded machine one of a few jobs must have got it by then.
starts_large() {
  local tries
  for tries in 1 2 3 4 5 6; do
    SWELL_FIRST_WAIT=15 live --elastic=mode=live,max=8 --gres=gpu:2 -w node1 && within 120 live_grown 8 && well_ended || return
    awk '{ n += $2 == 1 && $6 == "new" } END { exit n != 8 }' "$out/began" && ! event switch-prepare && return
    printf 'job %s, try %s: its own workers were first\n' "$job" "$tries"
  done
  return 1
}
check 'a job that starts on an idle cluster starts large, without a restart or a switch' starts_large

# PP, DP and TP each up and down, stages of 1, 1 and 2 layers, uneven shards, ZeRO on and off: the owner sets the size, and
# programs of the next generation read their plan.
next_plan() { # GPUS PLAN
  printf '%s\n' "$2" > "$out/plan.$1"
  swell max "$job" "$1" && within 120 live_grown "$1" && within 120 runs_plan "$2" && goes_on_live
}
runs_plan() { [[ $(tail -n 1 "$out/began" | cut -d' ' -f4) == "$1" ]]; }
eight_plans() {
  export PLANS='1=1,1,1,0 6=1,2,3,0'
  live --elastic=mode=live,max=6 --gres=gpu:1 -w node1 && within 120 live_grown 6 && next_plan 1 1,1,1,0 && next_plan 2 2,1,1,0 &&
    next_plan 3 3,1,1,0 && next_plan 4 2,2,1,1 && next_plan 6 1,2,3,0 && next_plan 4 1,2,2,1 && next_plan 3 1,1,3,0 &&
    next_plan 2 1,2,1,1 && event switch-committed 8 && well_ended
  local result=$?
  unset PLANS
  cut -d' ' -f2-6 "$out/began" | sort -n | uniq
  cat "$work/$job.out"
  return $result
}
check 'after eight plans in a row the parameters are bitwise those of a run without any switch' eight_plans

# 512 KiB over two stages; of each rank's half, half again comes from the other when layers are cut in two. The size of the arena of
# rank 0's shim is measured when all has been moved and nothing is committed.
arena_of() { # PID of a program: bytes of its shim's arena
  local shim each
  shim=$(awk '/^PPid:/ { print $2 }' "/proc/$1/status")
  for each in "/proc/$shim/fd"/*; do
    [[ $(readlink "$each") == *swell-arena* ]] && printf '%s\n' $(($(stat --dereference --format='%b * %B' "$each"))) && return
  done
}
with_memory() { # BOUND COMMAND...: of a growth that stands before its commit, if it comes to that
  export SHAPE='4 64 64' PLANS='2=2,1,1,0 4=1,2,2,0' STEPS=4000 SWELL_TEST_HOLD=commit:$work/hold SWELL_SWITCH_MEMORY=$1
  touch "$work/hold"
  shift
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && "$@" && well_ended
  local result=$?
  unset SHAPE PLANS STEPS SWELL_TEST_HOLD SWELL_SWITCH_MEMORY
  cat "$work/$job.out"
  return $result
}
takes_the_bound() {
  local taken control=4096 state=$((256 * 1024)) # a page of its own, and half of 512 KiB, before as afterwards
  within 120 event switch-commit && taken=$(arena_of "$(awk '$2 == 1 && $3 == 0 { print $1 }' "$out/began")") || return
  printf '%s bytes are taken before the commit\n' "$taken"
  rm "$work/hold"
  ((taken > control + state && taken <= control + state + 131072)) && within 120 live_grown 4 &&
    grep '"extra_bytes":131072' "$out/events"
}
memory_is_bounded() { with_memory 128K takes_the_bound; }
check 'a switch takes no more memory beside the state than it may' memory_is_bounded
is_refused() {
  within 120 event switch-aborted && grep 'needs 131072 bytes beside the state; the bound is 131071: raise --switch-memory' "$out/events" &&
    ! event switch-quiesce && ranks_run 2
}
too_much_memory() { with_memory 131071 is_refused; }
check 'one that needs more is refused before anything stops' too_much_memory

# The move of a shrink never ends. The rigid job does not wait for it, and the training goes on from its snapshots.
no_time_to_move() {
  export SWELL_SNAPSHOT_EVERY=20 SWELL_TEST_HOLD=verify:$work/hold PLANS='2=1,2,1,0 4=2,1,2,0'
  rm -f "$work"/hold*
  live --elastic=mode=live,max=4,grace=10 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled && touch "$work/hold" &&
    rigid --gres=gpu:2 -w node1 && within 120 in_state "$rigid_job" RUNNING && event switch-aborted && test -e "$work/hold.reached" &&
    rm "$work/hold" && within 120 goes_on_with 2 && ends_right && goes_on_live
  local result=$?
  unset SWELL_SNAPSHOT_EVERY SWELL_TEST_HOLD PLANS
  cat "$work/$job.out"
  return $result
}
check 'a shrink that cannot be moved in time gives the GPUs back, and costs steps, not the run' no_time_to_move

# The shrink's move waits once what only the lent ranks had is with the others. The rigid job does not wait for the rest.
goes_back_meanwhile() {
  export SWELL_TEST_HOLD=rest:$work/hold PLANS='2=1,2,1,0 4=2,1,2,0'
  rm -f "$work"/hold*
  live --elastic=mode=live,max=4,grace=20 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled && touch "$work/hold" &&
    rigid --gres=gpu:2 -w node1 && within 120 in_state "$rigid_job" RUNNING && event switch-let-go && test -e "$work/hold.reached" &&
    ! event switch-committed 2 && rm "$work/hold" && within 120 live_grown 2 && event switch-committed 2 && well_ended
  local result=$?
  unset SWELL_TEST_HOLD PLANS
  cat "$work/$job.out"
  return $result
}
check 'lent GPUs go back before a shrink is over, once the others have what only they had, and no step is lost' goes_back_meanwhile

finish_tests
