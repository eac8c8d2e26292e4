#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Live jobs that report what their programs do are lent GPUs by it, with a plan; who gains nothing, or reports what cannot
# be, is lent nothing for it.
programs=(planned) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
cat > "$work/planned_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
printf '%s\n' $$ > "$OUT/swellrun"
exec swellrun --steps="${STEPS:-100000}" --swell-events="$OUT/events" ./planned $PROGRAM_ARGS
EOJ
# Decided by profiles alone. A job keeps what it is lent while its swellrun cannot say anything.
after_check() { :; } # jobs live over several behaviours
profile_wait=600 agent_timeout=600 cluster_up --nodes 2 --gpus-per-node 4 --users backup
# An event that takes a second on a quiet machine may take minutes on a loaded one; each is certain to come.
patience=100

planned() { # MAX ARGUMENTS...: sets `job` and `out`; 2 GPUs
  export PROGRAM_ARGS="${*:2}"
  job=$(sbatch --parsable --output="$work/%j.out" --elastic="mode=live,max=$1,grace=20" --gres=gpu:2 "$work/planned_job.sh") &&
    out=$work/$job
}
decided() { # JOB WORDS: swell jobs says so
  swell jobs "$1" | grep -q "^Job $1 (decision: ${2/: /): }"
}
programs_with_plans() { awk '$7 != "-" && $1 > 0' "$out/began"; }

# 8 layers of 8 samples of 1 ms: a step of 2 GPUs takes 0.38 s, one of 4 half of it. Long enough that what a loaded machine
# adds to a sleep changes little.
lent_by_its_profile() {
  planned 4 8 8 1000 4 && within $patience is_lent "$job" 2 && within $patience word_is "$job" state ACTIVE
}
check 'a job is lent GPUs because its profile says that it gains by them' lent_by_its_profile
says_planned() { within $patience decided "$job" planned; }
check 'swell jobs says that it was planned for' says_planned
four_have_plans() { (($(programs_with_plans | wc -l) >= 4)); }
plan_arrives() {
  within $patience four_have_plans || { cat "$out/began"; return 1; }
  programs_with_plans | tail -n 1 | cut -d' ' -f7- | jq -e '[.stages[].groups[].gpus[]] | length == 4' > /dev/null
}
check 'the plan arrives in SWELL_PLAN of each rank' plan_arrives
# As the controller judges it: half of what was promised has come. A busy machine measures less at times.
measured_well() {
  jq -es --argjson job "$job" 'any(.[]; .event == "profile" and .job == $job and .predicted_speedup > 1.8 and
    .predicted_speedup < 2.2 and .measured_speedup > 1 + (.predicted_speedup - 1) / 2)' "$events"
}
follows_it() {
  within $patience measured_well || { grep '"event":"profile"' "$events"; return 1; }
}
check 'its gain is measured, and is about as predicted' follows_it

# The history keeps what the controller has learnt of it, and the cost of the switch.
in_history() { # CONDITION: of one of its events
  swell history "$job" --json | jq -e "any(.events[]; $1)"
}
learnt() {
  within $patience in_history '.event == "profile" and .predicted_speedup > 1.5 and .measured_speedup > 1 and (.coefficients.types | length) > 0' &&
    within $patience in_history '.event == "scale" and ([.table[].gpus] | min == 2 and max == 4) and all(.table[]; .peak_bytes > 0 and .samples_per_s > 0)' &&
    within $patience in_history '.event == "pause" and .mode == "live" and .stopped_s > 0 and .move_s >= 0 and .bytes_moved > 0 and .workers == 4' &&
    within $patience in_history '.event == "plan" and (.details.plan.stages | length) > 0' || { swell history "$job" --json; return 1; }
}
check 'profile, coefficients, scale table, plan and pause are in the history' learnt
# Where steps vary by more than a change costs, nothing is said: two changes are looked at.
cost_is_said() { # what its user, swell why and the history say is one figure
  within $patience in_history '.event == "change-cost" and .details.lost_s > 0 and .details.lost_s < 60' || { swell history "$job" --json; return 1; }
  local said
  said=$(grep -o 'the change that led to generation [0-9]* cost [0-9.]* s of training' "$work/$job.out" | tail -n 1) && swell why "$job" | grep -F "${said:?}"
}
would_gain() { swell why "$job" --json | jq -e '(.scale | length) >= 2 and .scale[-1].samples_per_s > 1.5 * .scale[0].samples_per_s'; }
check 'swell why says what more GPUs would bring' within $patience would_gain

knows_its_end() {
  swell why "$job" --json | jq -e '.total_steps == 100000 and .steps > 0 and .time_left_s > 60' &&
    swell why "$job" | grep -Eq '[0-9]+ of 100000 steps are made; at this pace it ends in [0-9.]+ h'
}
check 'swell why says how many steps are made, and when the training ends' within $patience knows_its_end

# Two stages of four layers, over the same GPUs.
replanned() {
  swell plan --job "$job" | tee shown | # the form that `swell replan --plan` takes
    jq -c '.stages[0] as $s | .stages = [range(2) as $i | $s | .layers = 4 | .groups = [$s.groups[2 * $i, 2 * $i + 1] | .local_batch = 4]]' \
      > "$work/two_stages" || return
  swell replan "$job" --plan "$work/two_stages" && within $patience runs_in_stages 2 && within $patience word_is "$job" state ACTIVE &&
    is_lent "$job" 2
}
runs_in_stages() { # N: the newest programs follow a plan of so many stages, which was switched to
  (($(programs_with_plans | tail -n 1 | cut -d' ' -f7- | jq '.stages | length') == $1)) &&
    (($(grep -c '"event":"switch-committed"' "$out/events") >= 2))
}
check 'its owner has it run another plan on the same GPUs, by a live switch' replanned
shows_the_plan() {
  swell plan --job "$job" > shown && jq -e --slurpfile told "$work/two_stages" '[.stages[].groups[].gpus] == [$told[0].stages[].groups[].gpus]' shown || { cat shown "$work/two_stages"; return 1; }
}
check 'the cost of a change in usual steps is said in the output, by swell why and in the history' cost_is_said
check 'swell plan --job shows the plan that runs' within $patience shows_the_plan
nobodys_plan() {
  jq -c '.stages[1].groups[0].gpus = [3]' "$work/two_stages" > "$work/bad_plan" && ! swell replan "$job" --plan "$work/bad_plan" 2> said &&
    grep -q 'the plan' said && ! as backup "$(command -v swell)" replan "$job" --plan "$work/two_stages" 2> said && cat said &&
    grep -q 'belongs to another user' said
}
check 'a plan that does not fit, or of another user, is refused' nobodys_plan

leaves_out_lent() {
  jq -c '.stages = [.stages[0] | .layers = 8 | .groups = [.groups[0] | .local_batch = 8]]' "$work/two_stages" > "$work/on_one" &&
    ! swell replan "$job" --plan "$work/on_one" 2> said && cat said && grep -q 'it must use each that is lent' said
}
check 'so is one that does without a lent GPU' leaves_out_lent

# While swellrun is stopped nobody reports: what the controller knows after the crash, it has kept.
known() { swell why "$job" --json | jq -ec '[.decided_by, .samples_per_s, .predicted_speedup] | select(.[0] == "planned" and .[1] > 0)'; }
kept_over_a_crash() {
  local swellrun before decided restored=1
  swellrun=$(cat "$out/swellrun") && kill -STOP "$swellrun" || return
  # Answered one after the other: what was under way is known after the first.
  known > "$work/known" && known > "$work/known" && before=$(saved_profile) &&
    decided=$(decided_events) && "$cluster" kill-ctld -KILL && "$cluster" restart-ctld && within $patience decided_anew "$decided" &&
    within $patience known_again && [[ $(saved_profile) == "$before" ]] && is_lent "$job" 2 && restored=0
  kill -CONT "$swellrun" || return
  ((restored == 0)) || { swell why "$job" --json; cat "$work/known"; return 1; }
  within $patience connected_twice && within $patience known && is_lent "$job" 2
}
saved_profile() { jq -ec ".jobs[\"$job\"].training.basic | select(. != null)" "$SWELL_CLUSTER_DIR"/state/swell_state; }
decided_events() { grep -c "\"event\":\"decided-by\",\"job\":$job,\"by\":\"planned\"" "$events"; }
decided_anew() { (($(decided_events) > $1)); } # a controller that has just started has decided nothing yet
known_again() { [[ $(known) == "$(cat "$work/known")" ]]; }
connected_twice() { (($(grep -c "\"event\":\"agent-connected\",\"job\":$job," "$events") >= 2)); }
check 'kill -9 of slurmctld keeps the profile, though nobody reports it anew' kept_over_a_crash

# One stage over the lent GPUs alone: the job's own two wait. That is no faster than they are, so what is lent goes back.
does_without_its_own() {
  local own
  own=$(grep '"event":"switch-committed"' "$out/events" | tail -n 1 | jq -c --argjson job "$job" '[.gpus[] | select(.job == $job) | .node as $node | .gpus |
    split(",")[] | split("-") | map(tonumber) | range(.[0]; .[-1] + 1) | [$node, .]]') &&
    jq -c --argjson own "$own" '[.stages[].groups[] | select(([[.node, .gpus[0]]] | inside($own)) | not)] as $lent |
      .stages = [.stages[0] | .layers = 8 | .groups = [$lent[] | .local_batch = 4]]' "$work/two_stages" > "$work/on_lent" || return
  jq -e '.stages[0].groups | length == 2' "$work/on_lent" > /dev/null || { printf 'own: %s\n' "$own"; cat "$work/on_lent"; return 1; }
  swell replan "$job" --plan "$work/on_lent" && within $patience runs_on 2 && within $patience reports_no_gain &&
    within $patience is_lent "$job" 0 && within $patience runs_on_its_own || { cat "$work/$job.out"; swell jobs "$job"; return 1; }
}
runs_on() { # N: the newest programs follow a plan over so many GPUs
  (($(programs_with_plans | tail -n 1 | cut -d' ' -f7- | jq '[.stages[].groups[].gpus[]] | length') == $1))
}
reports_no_gain() {
  jq -es --argjson job "$job" 'any(.[]; .event == "profile" and .job == $job and .measured_speedup > 0.5 and .measured_speedup < 1.3 and
    .predicted_speedup < 1.1 and .samples_per_s > 0)' "$events" > /dev/null
}
runs_on_its_own() { grep 'live: from 2 to 2 workers' "$work/$job.out"; } # from program to program
check 'its owner may have it run on what is lent alone, while its own workers wait' does_without_its_own

explained() { swell why "$job" | grep 'decision: planned'; }
shown_paused() { swell jobs "$job" | grep "^Job $job is paused"; }
owner_limits() {
  within $patience explained && swell max "$job" 2 && within $patience is_lent "$job" 0 && swell pause "$job" && swell max "$job" 0 &&
    within $patience shown_paused
}
check 'its owner limits and pauses it, and asks why' owner_limits
scancel "$job" && within $patience ended "$job"

# One layer, one micro-batch and a sample for each GPU: nothing can be divided.
gains_nothing() {
  planned 4 1 1 20000 1 && within $patience decided "$job" planned && within $patience grep -q '"event":"profile"' "$out/events" || return
  # A decision for it would have to come before this: another job that gains is lent all idle GPUs.
  local first=$job
  planned 4 8 8 1000 4 && within $patience is_lent "$job" 2 && is_lent "$first" 0
}
check 'a job whose profile says that it gains nothing gets nothing' gains_nothing
clear_queue

# Own GPUs on one node and lent ones on the other: the two left on the first are a rigid job's. In each step the ranks sum
# 200 kB of gradients over TCP, a paced connection where the next rank is on the other node: each link takes 300 kB of a
# step, in which four GPUs would win 0.19 s.
gradient_kb=200 slow_kb_per_s=600
own_and_lent_nodes() { squeue -h -o %N -j "$job,$(companions "$job")" | sort; }
over_both_nodes() { [[ $(own_and_lent_nodes | uniq -d) == '' && $(own_and_lent_nodes | wc -l) == 2 ]]; }
says_short() { swell jobs "$job" | grep 'times as fast where' && swell why "$job" | grep 'times as fast where'; }
was_lent() { grep "\"event\":\"companion-started\",\"job\":$job," "$events"; }
fell_short() { # of what was predicted, which four GPUs bring where the network is none of the limits
  jq -es --argjson job "$job" 'any(.[]; .event == "profile" and .job == $job and .predicted_speedup > 1.8 and .measured_speedup < 1.05)' "$events"
}
slow_interface() {
  rigid --gres=gpu:2 && within $patience in_state "$rigid_job" RUNNING && planned 4 8 8 1000 4 $gradient_kb $slow_kb_per_s &&
    within $patience over_both_nodes && within $patience fell_short && within $patience says_short && within $patience is_lent "$job" 0 &&
    says_short || { swell why "$job"; grep '"event":"profile"' "$events"; tail "$work/$job.out"; return 1; }
}
check 'lent GPUs that bring less than predicted are reclaimed, as over a slow interface; swell jobs and swell why say so' slow_interface
scancel "$job" && within $patience ended "$job"

fast_interface() {
  planned 4 8 8 1000 4 $gradient_kb && within $patience over_both_nodes && within $patience measured_well && is_lent "$job" 2
}
check 'over a fast one the same job gains what was predicted, and keeps them' fast_interface
clear_queue

# Without max= a job of one GPU has all eight, as its profile says that they pay; half of them go to the first job that needs a node.
planned_without_limit() {
  export PROGRAM_ARGS='8 8 1000 4'
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,grace=20 --gres=gpu:1 "$work/planned_job.sh") && out=$work/$job
}
# Slurm preempts a companion by itself where it comes before the controller's decision.
taken_back() { jq -c --argjson job "$1" 'select(.job == $job and (.event == "reclaim" or .event == "companion-preempted"))' "$events"; }
gives_back_for_a_newcomer() {
  planned_without_limit && within $patience is_lent "$job" 7 && within $patience word_is "$job" state ACTIVE || return
  rigid --gres=gpu:4 && within $patience in_state "$rigid_job" RUNNING || return
  taken_back "$job" > "$work/taken_back" || return
  # All that the newcomer needs is asked for at once, and has left before what does not leave is cancelled.
  jq -es 'length > 0 and (map(.time) | max - min) < 1' "$work/taken_back" && ! grep "\"event\":\"cancel\",\"job\":$job," "$events" &&
    within $patience is_lent "$job" 3 || { cat "$work/taken_back"; swell jobs "$job"; return 1; }
}
check 'a job without max= gives half of the cluster back for a newcomer, all at once' gives_back_for_a_newcomer
clear_queue

# A job with a deadline takes what keeps it from what another one is lent. Without one it would gain as much as the other one loses.
keeps_a_deadline() {
  local lender late
  planned 4 8 8 1000 4 && within $patience is_lent "$job" 2 && rigid --gres=gpu:2 && within $patience in_state "$rigid_job" RUNNING || return
  lender=$job
  STEPS=8200 PROGRAM_ARGS='8 8 1000 4' sbatch --parsable --output="$work/%j.out" --elastic=mode=live,max=4,grace=20,deadline=40m --gres=gpu:2 \
    "$work/planned_job.sh" > late_job 2> "$work/sbatch.err" && late=$(cat late_job) && grep 'deadline=.*nothing is promised before' "$work/sbatch.err" || return
  within $patience is_lent "$late" 2 && jq -es --argjson job "$lender" 'any(.[]; .job == $job and .event == "reclaim" and (.reason | contains("keeps its deadline")))' "$events" &&
    within $patience grep_in "its deadline, 20.*Z: kept, with [0-9.]* min to spare" swell why "$late" &&
    within $patience grep_in "Job $late, deadline: kept, with" swell jobs "$late" || { swell why "$late"; swell jobs; return 1; }
}
grep_in() { "${@:2}" > shown && grep -q "$1" shown; } # PATTERN COMMAND...
check 'a job with a deadline is lent what keeps it, from what another one is lent; swell why and swell jobs say so' keeps_a_deadline
clear_queue

misses_a_deadline() {
  ! sbatch --elastic=mode=live,deadline=2020-01-01T08:00 --gres=gpu:2 "$work/planned_job.sh" 2> "$work/sbatch.err" && grep 'has passed; give a later time' "$work/sbatch.err" || return
  export PROGRAM_ARGS='8 8 1000 4'
  job=$(sbatch --parsable --output="$work/%j.out" --elastic="mode=live,max=4,grace=20,deadline=$(date -d '+20 seconds' +%FT%T)" --gres=gpu:2 "$work/planned_job.sh") || return
  within $patience in_history '.event == "deadline-missed" and ((.details.reason // .reason) | length) > 0' && within $patience grep_in 'deadline: missed' swell jobs "$job" &&
    swell history "$job" | grep deadline-missed || { swell why "$job"; swell history "$job"; return 1; }
}
check 'a deadline that has passed is refused, and one that is missed is an event with its cause' misses_a_deadline
clear_queue

false_profile() {
  attackers_job backup mode=live,max=8 || return
  { hello_of "$mine" 2
    printf 'wait welcome\n'
    printf '{"type":"profile","generation":0,"companions":[],"step_s":0.000002,"profile":{"plan":{"micro_batches":1,"stages":[{"layers":8,"tp":1,"groups":[{"node":"%s","gpu_type":"","gpus":[0],"local_batch":8},{"node":"%s","gpu_type":"","gpus":[1],"local_batch":8}]}]},' \
      "$(squeue -h -j "$mine" -o %N)" "$(squeue -h -j "$mine" -o %N)"
    printf '"groups":[{"stage":0,"group":0,"fwd_s":0.0000005,"fwd_commu_s":0,"bwd_s":0.000001,"optim_s":0.0000001,"commu_extra_s":0,"head_fwd_s":0,"head_bwd_s":0,"layer_param_bytes":800000000,"layer_state_bytes":3200000000,"extra_param_bytes":0,"extra_state_bytes":0,"peak_bytes":5000000000}],'
    printf '"layer_launch_s":0,"activ_bytes":100000,"last_activ_p_bytes":0,"tied_embedding":false,"whole_activations":5}}\n'
    printf 'wait refused\n'; } | hostile backup > said 2>&1 &
  # Any GPUs lent to it would have been granted in the round that wrote this. AdminComment has no blanks: fwd_s reads "fwd s".
  within $patience decided "$mine" 'not at all: lent nothing until it reports a usable profile: fwd.s .* a h100 needs at least .*: mark ' &&
    is_lent "$mine" 0 && ! granted "$mine" && swell why "$mine" | grep 'lent nothing until' && ! granted "$mine" ||
    { swell jobs "$mine"; cat said; return 1; }
}
granted() { grep "\"event\":\"grant\",\"job\":$1," "$events"; }
check 'a profile that cannot be true is refused, and lent nothing for; swell jobs and swell why say so' false_profile
clear_queue

# Lent before its profile: its program gives the last of four ranks 4 of 10 samples, where a plan gives nobody more than 3.
wait_for_no_profile() {
  sed -i 's/^ProfileWait=.*/ProfileWait=0/' "$SWELL_CLUSTER_DIR/etc/swell.conf" && within $patience queue_is_empty && "$cluster" restart-ctld
}
told_a_better_plan() {
  wait_for_no_profile && planned 4 8 10 1000 4 && within $patience is_lent "$job" 2 && within $patience began_without_a_plan || return
  within $patience divided_well && within $patience word_is "$job" state ACTIVE && is_lent "$job" 2 &&
    grep "\"event\":\"plan\",\"job\":$job,.*times as fast is predicted" "$events" && grep 'switching to another plan' "$work/$job.out" ||
    { cat "$out/began"; swell jobs "$job"; return 1; }
}
began_without_a_plan() { awk '$3 == 4 && $7 == "-"' "$out/began" | grep .; }
divided_well() {
  programs_with_plans | grep . | tail -n 1 | cut -d' ' -f7- | jq -e '[.stages[].groups[]] | length == 4 and all(.[]; .local_batch <= 3)'
}
check 'a job that was lent GPUs before its profile is told a better plan for them, and switches to it' told_a_better_plan
clear_queue

# Policy=flextrain: jobs that have started count, for an hour; few are many where hardly any risk is taken.
use_flextrain() {
  sed -i -E '/^(ProfileWait|Policy|ArrivalWindow|ArrivalGPUs|ScaleUpChance)=/d' "$SWELL_CLUSTER_DIR/etc/swell.conf" &&
    printf 'ProfileWait=600\nPolicy=flextrain\nArrivalWindow=3600\nArrivalGPUs=1\n%s\n' "$@" >> "$SWELL_CLUSTER_DIR/etc/swell.conf" &&
    within $patience queue_is_empty && "$cluster" restart-ctld
}
lent_and_given_back() {
  use_flextrain ScaleUpChance=0 && planned 4 8 8 1000 4 && within $patience is_lent "$job" 2 && within $patience word_is "$job" state ACTIVE || return
  # Two nodes of 4 GPUs: 4 are idle. A job that needs a whole node more gets the lent ones, and nothing is lent while it runs or others wait.
  rigid --nodes=1 --gres=gpu:4 && within $patience in_state "$rigid_job" RUNNING && local first=$rigid_job
  rigid --nodes=1 --gres=gpu:2 && within $patience in_state "$rigid_job" RUNNING && within $patience is_lent "$job" 0 &&
    scancel "$first" "$rigid_job" || { swell jobs "$job"; swell why "$job"; return 1; }
}
check 'Policy=flextrain lends by a profile, and gives back for a pending job' lent_and_given_back
# Two stages on the job's own GPUs, under 1F1B: while nothing is idle it is told a schedule that leaves fewer gaps.
last_plan() { programs_with_plans | tail -n 1 | cut -d' ' -f7-; }
runs_plan() { # CONDITION: of the last plan
  last_plan | grep . | jq -e "$1"
}
is_rescheduled() {
  clear_queue && use_flextrain ScaleUpChance=0 && rigid --nodes=1 --gres=gpu:4 && within $patience in_state "$rigid_job" RUNNING && full=$rigid_job &&
    rigid --nodes=1 --gres=gpu:2 && within $patience in_state "$rigid_job" RUNNING || return
  export PLANNED_STAGES=1
  planned 4,consistency=exact 8 8 1000 4
  unset PLANNED_STAGES
  within $patience runs_plan '(.stages | length) == 2 and (.schedule | length) > 0 and (.stages[0].chunks | length) > 1' &&
    within $patience word_is "$job" state ACTIVE && is_lent "$job" 0 && within $patience in_history '.event == "plan" and (.reason | test("times as fast"))' ||
    { swell why "$job"; cat "$out/began" "$work/$job.out"; return 1; }
}
check 'Policy=flextrain: an exact job that is lent nothing is told a faster schedule for its own GPUs' is_rescheduled
grows_and_shrinks_in_depth() {
  "$cluster" kill-ctld -KILL && "$cluster" restart-ctld && scancel "$full" "$rigid_job" && within $patience is_lent "$job" 2 &&
    within $patience runs_plan '(.stages | length) == 4 and (.schedule | length) > 0' && within $patience word_is "$job" state ACTIVE &&
    rigid --nodes=1 --gres=gpu:4 && rigid --nodes=1 --gres=gpu:2 && within $patience is_lent "$job" 0 && within $patience in_state "$rigid_job" RUNNING &&
    within $patience runs_plan '(.stages | length) == 2 and (.schedule | length) > 0' && within $patience word_is "$job" state ACTIVE ||
    { swell why "$job"; cat "$out/began" "$work/$job.out"; return 1; }
}
check 'it grows to four stages over a kill -9 of slurmctld, and is back on two with that schedule' grows_and_shrinks_in_depth
share_is_seen() { # 0.4, and what the clock adds
  within $patience in_history '.event == "profile" and any(.coefficients.types[]; .weights_share > 0.3 and .weights_share < 0.5)' || { swell history "$job" --json; return 1; }
}
check 'the time of the gradients of weights is measured, and is in the history' share_is_seen
says_not_grown() { swell why "$job" | grep -E 'not grown: [0-9]+ submissions? of 1 GPU or more in 1 h; chance 0\.[0-9]+ of 0\.99999'; }
waits_for_quiet() {
  clear_queue && sbatch --array=0-7 --gres=gpu:1 --wrap true > /dev/null && within $patience queue_is_empty && use_flextrain ScaleUpChance=0.99999 &&
    planned 4 8 8 1000 4 && within $patience decided "$job" planned && within $patience says_not_grown && is_lent "$job" 0 ||
    { swell jobs "$job"; swell why "$job"; return 1; }
}
check 'it lends nothing after submissions that are remembered over a restart of slurmctld; swell why says so' waits_for_quiet
finish_tests
