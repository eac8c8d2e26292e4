#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Live jobs that report what their programs do are lent GPUs by it, with a plan; who gains nothing, or reports what cannot
# be, is lent nothing for it.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
command -v c++ > /dev/null || skip 'no C++ compiler: run contrib/setup'
program=$work/planned
c++ -std=c++20 -O1 -I"$top/src" "$here/planned.cc" -o "$program" -L"$SWELL_STAGE/lib" -Wl,-rpath,"$SWELL_STAGE/lib" -lswell \
  -ljansson || skip 'tests/slurm/planned.cc could not be built with the installed libswell'
cat > "$work/planned_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
swellrun --swell-events="$OUT/events" ./planned $PROGRAM_ARGS
EOJ
# Decided by profiles alone.
after_check() { :; } # jobs live over several behaviours
profile_wait=600 cluster_up --nodes 2 --gpus-per-node 4 --users nobody

planned() { # MAX ARGUMENTS...: sets `job` and `out`; 2 GPUs
  export PROGRAM_ARGS="${*:2}"
  job=$(sbatch --parsable --output="$work/%j.out" --elastic="mode=live,max=$1,grace=20" --gres=gpu:2 "$work/planned_job.sh") &&
    out=$work/$job
}
decided() { # JOB WORDS: swell jobs says so
  swell jobs "$1" | grep -q "^Job $1 is decided $2"
}
programs_with_plans() { awk '$7 != "-" && $1 > 0' "$out/began"; }

# 8 layers of 8 samples of 0.4 ms: a step of 2 GPUs takes 0.15 s, one of 4 half of it.
lent_by_its_profile() {
  planned 4 8 8 400 4 && within 60 is_lent "$job" 2 && within 60 word_is "$job" state ACTIVE
}
check 'a job is lent GPUs because its profile says that it gains by them' lent_by_its_profile
says_planned() { within 20 decided "$job" planned; }
check 'swell jobs says that it was planned for' says_planned
plan_arrives() {
  within 30 test "$(programs_with_plans | wc -l)" -ge 4 || { cat "$out/began"; return 1; }
  programs_with_plans | tail -n 1 | cut -d' ' -f7- | jq -e '[.stages[].groups[].gpus[]] | length == 4' > /dev/null
}
check 'the plan arrives in SWELL_PLAN of each rank' plan_arrives
follows_it() {
  profiled() { grep -q '"event":"profile".*"measured_speedup":1\.[5-9]\|"event":"profile".*"measured_speedup":2' "$events"; }
  within 60 profiled || { grep '"event":"profile"' "$events"; return 1; }
}
check 'what it gains is measured, and is about what was predicted' follows_it

# Two stages of four layers, over the same GPUs.
replanned() {
  programs_with_plans | tail -n 1 | cut -d' ' -f7- |
    jq -c '.stages[0] as $s | .stages = [range(2) as $i | $s | .layers = 4 | .groups = [$s.groups[2 * $i, 2 * $i + 1] | .local_batch = 4]]' \
      > "$work/two_stages" || return
  swell replan "$job" --plan "$work/two_stages" && within 60 runs_in_stages 2 && within 20 word_is "$job" state ACTIVE && is_lent "$job" 2
}
runs_in_stages() { # N: the newest programs follow a plan of so many stages, which was switched to
  (($(programs_with_plans | tail -n 1 | cut -d' ' -f7- | jq '.stages | length') == $1)) && grep -c '"event":"switch-committed"' "$out/events" | grep -qx 2
}
check 'its owner has it run another plan on the same GPUs, by a live switch' replanned
nobodys_plan() {
  jq -c '.stages[1].groups[0].gpus = [3]' "$work/two_stages" > "$work/bad_plan" && ! swell replan "$job" --plan "$work/bad_plan" 2> said &&
    grep -q 'the plan' said && ! as nobody "$(command -v swell)" replan "$job" --plan "$work/two_stages" 2> said && cat said &&
    grep -q 'belongs to another user' said
}
check 'a plan that does not fit, or of another user, is refused' nobodys_plan

kept_over_a_crash() {
  local before
  before=$(jq -c ".jobs[\"$job\"].training.basic" "$SWELL_CLUSTER_DIR"/state/swell_state) || return
  [[ -n $before && $before != null ]] || return
  "$cluster" kill-ctld -KILL && "$cluster" restart-ctld || return
  within 60 decided "$job" planned && is_lent "$job" 2 &&
    [[ $(jq -c ".jobs[\"$job\"].training.basic" "$SWELL_CLUSTER_DIR"/state/swell_state) == "$before" ]]
}
check 'kill -9 of slurmctld keeps the profile' kept_over_a_crash

explained() { swell why "$job" | grep 'decided planned'; }
shown_paused() { swell jobs "$job" | grep "^Job $job is paused"; }
owner_limits() {
  within 30 explained && swell max "$job" 2 && within 60 is_lent "$job" 0 && swell pause "$job" && swell max "$job" 0 &&
    within 10 shown_paused
}
check 'its owner limits and pauses it, and asks why' owner_limits
scancel "$job" && within 60 ended "$job"

# One layer, one micro-batch and a sample for each GPU: nothing can be divided.
gains_nothing() {
  planned 4 1 1 20000 1 && within 60 decided "$job" planned && within 20 grep -q '"event":"profile"' "$out/events" || return
  # What a decision for it would have to come before: another job that gains is lent all that is idle.
  local first=$job
  planned 4 8 8 400 4 && within 60 is_lent "$job" 2 && is_lent "$first" 0
}
check 'a job whose profile says that it gains nothing gets nothing' gains_nothing
clear_queue

slow_interface() {
  planned 4 8 8 800 4 200000 && within 60 is_lent "$job" 2 && within 150 is_lent "$job" 0 &&
    swell jobs "$job" | grep -q 'times as fast where'
}
check 'lent GPUs that bring less than predicted are reclaimed, and swell jobs says why' slow_interface
scancel "$job" && within 60 ended "$job"

false_profile() {
  attackers_job nobody || return
  { hello_of "$mine" 2
    printf 'wait welcome\n'
    printf '{"type":"profile","epoch":0,"companions":[],"step_s":0.000002,"profile":{"plan":{"micro_batches":1,"stages":[{"layers":8,"tp":1,"groups":[{"node":"%s","gpu_type":"","gpus":[0],"local_batch":8},{"node":"%s","gpu_type":"","gpus":[1],"local_batch":8}]}]},' \
      "$(squeue -h -j "$mine" -o %N)" "$(squeue -h -j "$mine" -o %N)"
    printf '"groups":[{"stage":0,"group":0,"fwd_s":0.0000005,"fwd_commu_s":0,"bwd_s":0.000001,"optim_s":0.0000001,"commu_extra_s":0,"head_fwd_s":0,"head_bwd_s":0,"layer_param_bytes":800000000,"layer_state_bytes":3200000000,"extra_param_bytes":0,"extra_state_bytes":0,"peak_bytes":5000000000}],'
    printf '"layer_launch_s":0,"activ_bytes":100000,"last_activ_p_bytes":0,"tied_embedding":false,"whole_activations":5}}\n'
    printf 'wait refused\n'; } | hostile nobody > said 2>&1 &
  within 30 decided "$mine" 'worker by worker: its profile is not used: .*h100' || { swell jobs "$mine"; cat said; return 1; }
}
check 'a profile that cannot be true is refused, and swell jobs says why' false_profile
finish_tests
