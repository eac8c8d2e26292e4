#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Live jobs whose users say what they train (swellrun --model) are planned for by data sheets until they report a profile; a
# site may lend nothing to those of which nothing is known.
programs=(planned) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cat > "$work/planned_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
exec swellrun $RUN_ARGS --swell-events="$OUT/events" ./planned $PROGRAM_ARGS
EOJ
after_check() { :; } # jobs live over several behaviours
# Nobody is lent anything without a profile, but by data sheets.
profile_wait=600 cluster_up --nodes 2 --gpus-per-node 4
patience=100
unset SWELL_FIRST_WAIT # jobs wait for what they are offered before they begin

# 8 layers and 32 samples a step, as the programs have them; a GPU of a H100's data sheet needs long enough for one.
printf '{"name":"eight-layers","layers":8,"hidden":4096,"heads":1,"sequence":2048,"global_batch":32}\n' > "$work/model.json"

planned() { # SWELLRUN_OPTIONS ARGUMENTS...: sets `job` and `out`; 2 GPUs
  export RUN_ARGS=$1 PROGRAM_ARGS="${*:2}"
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,max=4,grace=20 --gres=gpu:2 "$work/planned_job.sh") &&
    out=$work/$job
}
said_by() { # WORDS: a decision of the job was of this kind
  grep "\"event\":\"decided-by\",\"job\":$job,\"by\":\"$1\"" "$events"
}

first_step_on_lent_gpus() {
  planned "--model=$work/model.json" 8 8 1000 4 && within $patience test -s "$out/began" && within $patience is_lent "$job" 2 || return
  # Every program that ever began: over four GPUs, with a plan.
  within $patience began_on_four && awk '$3 != 4 || $7 == "-"' "$out/began" | { ! grep .; } || { cat "$out/began" "$work/$job.out"; return 1; }
}
began_on_four() { (($(awk '$3 == 4' "$out/began" | wc -l) >= 4)); }
check 'a job whose model is named has its first step on lent GPUs, by a plan' first_step_on_lent_gpus
told_why() {
  said_by 'by data sheet' && grep "\"event\":\"decided-by\",\"job\":$job,.*eight-layers, .* parameters, 32 samples a step" "$events" &&
    grep "\"event\":\"grant\",\"job\":$job,.*times as fast is predicted by data sheets" "$events" || { cat "$events"; return 1; }
}
check 'that was by data sheet, and is said' told_why
as_counted_on() { # what the grant counted on is what Slurm gave, and what the plan has
  local counted="" given="" planned=""
  counted=$(jq -r --argjson job "$job" 'select(.event == "grant" and .job == $job) | "\(.node) \(.gpu_indices)"' "$events") &&
    given=$(jq -r --argjson job "$job" 'select(.event == "companion-started" and .job == $job) | .companion | "\(.node) \(.gpu_indices)"' "$events") &&
    planned=$(awk 'NR == 1' "$out/began" | cut -d' ' -f7- | jq -r '[.stages[].groups[].gpus[]] | sort | "\(.[0])-\(.[-1])"')
  printf '%s; %s; %s\n' "$counted" "$given" "$planned"
  [[ $counted == "$given" && $counted == *' 2-3' && $planned == 0-3 ]]
}
check 'its grant names the GPUs that it counts on: those that Slurm gives, and the plan is over' as_counted_on
profile_takes_over() { within $patience said_by planned && swell why "$job" | grep 'decision: planned' && is_lent "$job" 2; }
check 'its first profile takes their place' profile_takes_over
scancel "$job" && within $patience ended "$job"

bad_models() {
  ! sbatch --wait --output="$work/bad.out" --elastic=mode=live --gres=gpu:2 --wrap 'swellrun --model=gpt-unheard-of true; exit $?' > said 2>&1 &&
    cat "$work/bad.out" && grep 'swellrun: --model=gpt-unheard-of: it is not a file, and there is no model' "$work/bad.out" &&
    sbatch --wait --output="$work/restart.out" --elastic --gres=gpu:2 --wrap "swellrun --model=$work/model.json true" > said 2>&1 &&
    grep -- '--model is not used: without --elastic=mode=live' "$work/restart.out"
}
check 'a model that does not exist is named; in restart mode it is said to be of no use' bad_models

nothing_for_who_says_nothing() {
  # A new slurmctld may start jobs beside ones that it does not know to have ended, before their node has registered: without GPUs.
  sed -i 's/^ProfileWait=.*/ProfileWait=0\nLendWithoutProfile=no/' "$SWELL_CLUSTER_DIR/etc/swell.conf" && within $patience queue_is_empty &&
    "$cluster" restart-ctld || return
  # The first would be lent what is idle at once; the other one is decided about later, by data sheets, and is.
  local first
  # shellcheck disable=SC2016 # for the worker
  first=$(sbatch --parsable --output="$work/%j.out" --elastic=max=4 --gres=gpu:2 --wrap \
    "swellrun bash -c 'trap \"exit 0\" USR1; : > $work/first_began; while :; do sleep 0.1; done'") &&
    within $patience test -e "$work/first_began" &&
    planned "--model=$work/model.json" 8 8 1000 4 && within $patience is_lent "$job" 2 && said_by 'by data sheet' || return
  grep "\"event\":\"decided-by\",\"job\":$first,\"by\":\"not at all\",\"reason\":\"LendWithoutProfile=no in swell.conf, and its program has reported no profile" "$events"
}
check 'with LendWithoutProfile=no a job of which nothing is known is lent nothing, and reads why' nothing_for_who_says_nothing
finish_tests
