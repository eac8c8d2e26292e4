#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live: programs that are asked to leave do so at one step.
programs=(regression in_step.so saved) # of lib.sh
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

# Slurm counts in minutes; half of one is left to leave in. As the user's guide has it, but for the copy in the log.
cat > "$work/saved_job.sh" << 'EOJ'
#!/bin/bash
rm -f "$OUT"/steps.*
swellrun --before-end=50 env LD_PRELOAD="$PWD/in_step.so" ./saved 2200
code=$?
echo "$code" >> "$OUT/codes"
if [ $code -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
EOJ
requeued() { [[ $(scontrol show job "$job") =~ Restarts=1 && $(state_of "$job") == PENDING ]]; }
saves_before_the_limit() {
  export OUT=$work/saves
  mkdir "$OUT" && job=$(sbatch --parsable --requeue --open-mode=append --output="$work/%j.out" --time=1 --elastic=mode=live,max=2 --gres=gpu:2 -w node1 saved_job.sh) &&
    within 90 requeued || return
  # slurmd refuses a job that starts again in the second in which it was requeued.
  scontrol update "job=$job" starttime=now+3seconds timelimit=10 && within 90 ended "$job" || return
  # Both ranks begin; the next run's go on where rank 0 has saved the sum of all steps until then.
  local step
  step=$(cut -d ' ' -f 1 "$OUT/saved")
  [[ $(< "$OUT/codes") == 75$'\n'0 && $(cut -d ' ' -f 3,4 "$OUT/starts") == "0 new"$'\n'"0 new"$'\n'"$step saved"$'\n'"$step saved" ]] &&
    ((step > 0)) && [[ $(< "$OUT/saved") == "$step $((step * (step + 1) / 2))" && $(< "$OUT/sum") == '2200 2421100' ]]
}
saves() {
  saves_before_the_limit
  local result=$?
  cat "$OUT/codes" "$OUT/starts" "$OUT/saved" "$work/$job.out"
  unset OUT
  return $result
}
check 'with --before-end a live job saves before its time limit and ends with 75, and its next run goes on from there' saves

finish_tests
