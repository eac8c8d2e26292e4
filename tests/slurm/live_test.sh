#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live on a real cluster: a program of the runtime is resized while it trains. It never writes a checkpoint, so every
# step that it has at the end was handed from program to program.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 3 --gpus-per-node 4

says_how() { swell jobs | grep -E "^Job $job, last live switch: step [0-9]+, stopped [0-9.]+ s, in place [0-9]+ bytes, mapped arena [0-9]+ bytes"; }
grows_live() {
  live --elastic=mode=live,max=2 --gres=gpu:1 && within 120 live_grown 2 && event switch-committed && within 120 says_how &&
    well_ended
}
check 'a live job grows from one replica to two and ends as if it had not' grows_live

# PP, DP and TP up and down over three nodes: 2 ranks, 8, 4 beside a rigid job, and 8 again.
reclaimed_and_grown_again() {
  export PLANS='2=1,2,1,0 4=2,1,2,1 8=2,2,2,0'
  live --elastic=mode=live,sizes=2/4/8,max=8,grace=20 --gres=gpu:2 -w node1 && within 120 live_grown 8 && settled || return
  local began=$SECONDS
  rigid --gres=gpu:4 -N 2 -w node2,node3 && within 120 in_state "$rigid_job" RUNNING && settled || return
  printf 'the rigid job waited %s s\n' $((SECONDS - began))
  within 120 live_grown 4 || return
  scancel "$rigid_job" && within 120 live_grown 8 && event switch-committed 3 && well_ended
  local result=$?
  unset PLANS
  cat "$work/$job.out"
  return $result
}
check 'its lent GPUs go to a rigid job and come back, through plans of all three kinds' reclaimed_and_grown_again

# Whichever is quicker, the controller or Slurm itself.
preempted_live() {
  live --elastic=mode=live,max=8,grace=20 --gres=gpu:4 -w node1 && within 120 live_grown 8 && settled || return
  timeout 240 salloc --no-shell --gres=gpu:4 -N2 -w node2,node3 --job-name=interactive && within 120 live_grown 4 && goes_on_live || return
  scancel --name=interactive && well_ended
}
check 'an interactive job gets the GPUs at once, and the training loses nothing' preempted_live

held_growth() { # a job whose growth waits for its new programs: of generation 1, four of them
  export PROGRAM=./held
  live --elastic=mode=live,max=4,grace=10 --gres=gpu:2 -w node1 && within 120 held_are 4
  local result=$?
  unset PROGRAM
  return $result
}
held_are() { [[ $(wc -l < "$out/held") == "$1" ]]; }
held_pid() { awk -v rank="$1" '$3 == rank { print $1 }' "$out/held"; }
held_shim() { awk -v rank="$1" '$3 == rank { print $4 }' "$out/held"; }
gave_up_growing() { event switch-aborted && has_no_companions "$job" && [[ $(word_of "$job" no_growth) == *live_switch_failed* ]]; }

new_program_dies() {
  held_growth && kill -KILL "$(held_pid 3)" && within 120 gave_up_growing && goes_on_live && ranks_run 2 && touch "$out/go" && well_ended
}
check 'a new program that is killed before the switch costs the training nothing' new_program_dies

new_shim_dies() {
  held_growth && kill -KILL "$(held_shim 3)" && within 120 event switch-aborted && within 120 event companion-lost && goes_on_live &&
    ranks_run 2 && touch "$out/go" && ends_right && handed_over
}
check 'a killed shim of a lent worker does not end the job' new_shim_dies

takes_too_long() {
  PROGRAM=./held live --elastic=mode=live,max=4,grow=15 --gres=gpu:2 -w node1 && within 120 gave_up_growing &&
    grep 'live: still 2 workers, the switch was called off: the growth took longer than 15 s (grow=15)' "$work/$job.out" && goes_on_live && ranks_run 2 &&
    touch "$out/go" && well_ended
}
check 'a growth that takes longer than its owner allows is called off while the old program trains on' takes_too_long

agent_dies() {
  held_growth && local pids && pids=$(cut -d' ' -f1 "$out/began" "$out/held") && kill -KILL "$(cat "$out/swellrun.pid")" &&
    within 120 all_gone "$pids" && within 120 has_no_companions "$job" && within 120 ended "$job" && nothing_left
}
all_gone() { for each in $1; do kill -0 "$each" 2> /dev/null && return 1; done; return 0; }
check 'when swellrun is killed, no program of either generation and no companion stays' agent_dies

lent_worker_dies() {
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 || return
  kill -KILL "$(awk '$2 == 2 && $3 == 3 { print $1 }' "$out/began")"
  within 120 event companion-lost && ends_right
}
check 'a lent worker that is killed sends the run back to its own GPUs' lent_worker_dies

# Its programs are sent TERM, and may die of it before or after it is known that the GPUs go back.
newest_generation_of() { awk '{ if ($2 > e) e = $2 } END { print e }' "$out/began"; }
newest_steps() { steps_of "$(($(newest_generation_of) - 1))"; }
has_a_snapshot() { (($(newest_steps) > 2 * every)); }
is_past() { (($(newest_generation_of) > $1)) && [[ $(companions "$job") != "$2" ]]; }
lent_companion_cancelled() {
  local every=50 generation victim result=0
  SWELL_SNAPSHOT_EVERY=$every live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 || return
  for _ in 1 2; do
    generation=$(newest_generation_of) victim=$(companions "$job")
    within 120 has_a_snapshot && scancel "$victim" && within 120 is_past "$generation" "$victim" && within 120 live_grown 4 && continue
    result=1
    break
  done
  cat "$work/$job.out"
  ((result == 0)) && goes_on_live && ends_right
}
check 'a companion that is cancelled costs the steps since the last snapshot' lent_companion_cancelled

recovers_live() {
  SWELL_RECOVER=300 live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled || return
  local lent
  lent=$(companions "$job") && kill -KILL "$(awk '$2 == 2 && $3 == 0 { print $1 }' "$out/began")"
  within 120 third_generation_runs && [[ $(companions "$job") == "$lent" ]] && event recovering && ends_right
}
third_generation_runs() { [[ $(awk '$2 == 3' "$out/began" | wc -l) == 4 ]] && ranks_run 4; }
check 'with --recover a worker of its own that is killed costs no lent GPUs' recovers_live

hangs_live() { # before it says hello to the runtime
  PROGRAM=./held SWELL_RECOVER=20 live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && touch "$out/go" &&
    within 120 live_grown 4 && settled || return
  local lent
  lent=$(companions "$job") && rm "$out/go" && kill -KILL "$(awk '$2 == 2 && $3 == 0 { print $1 }' "$out/began")"
  within 120 third_generation_hangs && [[ $(companions "$job") == "$lent" ]] && within 30 has_no_companions "$job" || return
  grep "has not recovered within 20 s (it has not begun with Swell's runtime)" "$work/$job.out" && touch "$out/go" &&
    within 120 ranks_run 2 && ends_right
}
third_generation_hangs() { [[ $(awk '$2 == 2' "$out/held" | wc -l) == 4 ]]; }
check 'where it hangs when it is started again, lent GPUs wait no longer than it asked for' hangs_live

silent_program() {
  live --elastic=mode=live,max=4,grace=10 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled || return
  kill -STOP "$(awk '$2 == 2 && $3 == 0 { print $1 }' "$out/began")"
  rigid --gres=gpu:2 -w node1 && within 120 in_state "$rigid_job" RUNNING || return
  grep 'the programs stopped answering; they are resized by restarts' "$work/$job.out" && within 120 ranks_run 2
}
check 'a program that stops answering gives the GPUs back in time all the same' silent_program

# All processes of the lent node are killed while the job trains: slurmd, shims, programs.
lent_node() { squeue --noheader --format=%N --jobs "$(squeue --noheader --format=%i --user "$(id -un)" | grep -vx "$job" | head -n 1)"; }
# A good way past the second snapshot of the newest generation, and from the third.
is_between_snapshots() { local steps; steps=$((begun_at + $(newest_steps))); ((steps > begun_at + 2 * every && steps % every > every / 8 && steps % every < every / 3)); }
lent_node_dies() {
  local node result every=200 begun_at steps step
  SWELL_SNAPSHOT_EVERY=$every live --elastic=mode=live,max=8 --gres=gpu:4 -w node1
  within 120 live_grown 8 && settled && node=$(lent_node) && [[ $node == node[23] ]] || return
  begun_at=$(awk '$2 == 2 { print $5; exit }' "$out/began")
  within 120 is_between_snapshots || return
  "$cluster" kill-slurmd "$node" -KILL && processes_with "SLURMD_NODENAME=$node" | xargs kill -KILL
  within 120 event companion-lost && within 120 goes_on_with 4
  result=$?
  steps=$((begun_at + $(steps_of 1))) step=$(sed -n 's/.*live: 4 workers go on from the snapshot of step \([0-9]*\)$/\1/p' "$work/$job.out")
  printf 'lost at step %s, goes on from step %s\n' "$steps" "$step"
  ((result == 0 && step % every == 0 && steps - step <= every)) && ends_right && goes_on_live
  result=$?
  "$cluster" start-slurmd "$node" > /dev/null
  cat "$work/$job.out"
  return $result
}
check 'a lent node that dies with all its processes costs the steps since the last snapshot' lent_node_dies

finish_tests
