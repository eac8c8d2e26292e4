#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# An exact job under the engine on a real cluster with Policy=flextrain: another schedule on its own GPUs, twice as many stages on lent ones, and back, with
# slurmctld or a worker killed by SIGKILL in each phase. Each step has bit for bit the loss of one process.
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
after_check() { :; } # the job lives over all behaviours
show_state() {
  swell why "$job" && tail -n 30 "$folder.out" && cat "$folder/plan"
}
cluster_up --grace 60 --nodes 2 --gpus-per-node 4 --swell-conf Policy=flextrain --swell-conf MaxShortfall=1
export TEST_TEXTS=$work/texts
mkdir "$TEST_TEXTS" && cp "$top"/docs/*.md "$TEST_TEXTS" || exit 1
# A layer's forward pass of a sample takes 10 ms, whatever else the cores do: passes mostly wait.
export SWELL_PACED=h100:0.0003tflops:memory=2GB/s:link=200MB/s:network=200MB/s
"$SWELL_PYTHON" "$top/contrib/lib/warm.py" serve "$work/warm" "$pytorch_tests/preload.py" > "$work/warm.out" 2>&1 &
warm=$!
trap 'kill "$warm" 2> /dev/null; cluster_down; rm -rf "$TMPDIR"' EXIT
program=("$SWELL_PYTHON" "$top/contrib/lib/warm.py" run "$work/warm" "$pytorch_tests/jobs/engine_planned.py" gpt2 deep)

kills_slurmctld() { kill -9 "$("$cluster" pid slurmctld)" && "$cluster" restart-ctld && within 60 word_is "$job" state ACTIVE; }
why_says() { swell why "$job" > "$folder/why" 2>&1; grep -qE "$1" "$folder/why"; }
plan_has() { jq -es "any(.[]; $1)" "$folder/plan"; }
goes_on() { # two steps more
  local from
  from=$(cat "$folder/step.0") && within 120 step_reached "$folder" $((from + 2))
}
begins() {
  within 60 test -S "$work/warm" && rigid_job=$(sbatch --parsable --output=/dev/null --gres=gpu:4 -w node2 --wrap 'sleep 36000') &&
    within 60 in_state "$rigid_job" RUNNING &&
    run_job exact --elastic=mode=live,consistency=exact,max=8,grace=60 --gres=gpu:4 -w node1 -- --recover=60 "${program[@]}" pp4dp1 &&
    within 200 step_reached "$folder" 2
}
check 'it trains by its initial plan, of four stages under 1F1B' begins
other_schedule() {
  within 120 why_says '^its plan: 2L .*, (zero-bubble|interleaved|search)' && within 60 plan_has '(.stages | length) == 4 and .schedule' && goes_on &&
    kills_slurmctld && goes_on && within 60 why_says '^its plan: 2L .*, (zero-bubble|interleaved|search)' && why_says 'a change of its plan, live, is expected to cost'
}
check 'a faster schedule is found for its own GPUs, and stays when slurmctld is killed' other_schedule
eight_stages() { plan_has '(.stages | length) == 8 and ([.stages[].groups | length] | unique) == [1]'; }
twice() {
  scancel "$rigid_job" && within 120 eight_stages && goes_on && within 60 why_says '4 lent ones .decision: planned' &&
    within 60 why_says '^its plan: 1L' && within 60 why_says '[1-9][.][0-9]* times as many as alone'
}
check 'twice as many GPUs are lent, each to a stage' twice
begins_anew() { word_is "$job" state ACTIVE && (($(word_of "$job" generation) > generation)); }
killed() {
  local generation
  generation=$(word_of "$job" generation) && kill -9 "$(cat "$folder/pid.7")" && within 60 begins_anew && goes_on && within 60 why_says '4 lent ones' && eight_stages
}
check 'where a worker is killed there, the job begins anew on all of them' killed
four_stages() { plan_has '(.stages | length) == 4'; }
is_saved() { [[ $saved/job_state -nt $folder/submitted ]]; } # a slurmctld that is killed before has forgotten the job
back() {
  local saved
  saved=$(scontrol show config | sed -n 's/^StateSaveLocation *= *//p')
  rigid_job=$(sbatch --parsable --output=/dev/null --gres=gpu:4 -w node2 --wrap 'sleep 36000') && touch "$folder/submitted" && within 60 is_saved && kills_slurmctld && within 120 in_state "$rigid_job" RUNNING &&
    within 60 four_stages && goes_on && within 60 why_says 'lent GPUs were taken back last: .*' && within 60 why_says '^its plan: 2L'
}
check 'they go back for a rigid job, though slurmctld is killed as it comes' back
bitwise() {
  local last=$(($(cat "$folder/step.0") + 6)) reference=$work/reference
  mkdir "$reference" && printf '%s\n' "$last" | tee "$folder/last" "$reference/last" && touch "$reference/fast" || return
  (cd "$reference" && env -u SLURM_CONF -u SWELL_PACED RANK=0 WORLD_SIZE=1 "${program[@]}" pp1) || return
  within 200 ended "$job" && [[ $(cat "$folder/status") == 0 ]] || return
  jq -es --slurpfile one "$reference/losses" --argjson last "$last" '($one | map({key: (.step | tostring), value: .loss}) | from_entries) as $of |
    (map(.step) | unique) == [range(1; $last + 1)] and all(.[]; .loss == $of[.step | tostring]) and ([.[].world] | unique) == [4, 8]' "$folder/losses"
}
says_no_nonsense() { ! grep 'has not started swellrun' "$folder.out"; }
check 'no start of slurmctld takes it for a job without swellrun' says_no_nonsense
check 'each step has bit for bit the loss of one process' bitwise
finish_tests
