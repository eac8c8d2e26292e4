#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A GPT-2 and a LLaMA under the engine on a real cluster, re-planned live: lent GPUs by the controller, two plans of their owner's, GPUs
# taken back for a rigid job, and lent again. Each step is trained once, with the loss of a run that nobody resizes.
#   engine_cluster_test.sh [--long FOLDER] [FAMILY...]   (default: gpt2)
# --long: ten million parameters, paced host devices, new processes for each plan, the run that is not resized beside it; leaves logs and
# FOLDER/FAMILY.svg. A quarter of an hour for each family. Otherwise programs are forked from one that has imported torch.
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
after_check() { :; } # jobs live over several behaviours
keep='' size=small gap=2 grace=60
if [[ ${1:-} == --long ]]; then
  keep=$(realpath "${2:?a folder}") size=10m gap=12
  grace=300 # four programs that import torch and transformers beside six that train, on two cores
  shift 2
  mkdir -p "$keep"
fi
families=("$@")
((${#families[@]})) || families=(gpt2)
[[ -z $keep || -n $* ]] || families=(gpt2 llama)
# Two GPUs of the job's own, two that others take and give back; with the run that is not resized beside it, twice as many.
cluster_up --grace "$grace" --nodes 2 --gpus-per-node "$([[ $size == small ]] && printf 2 || printf 4)"
# All generations train on the same bytes, whatever becomes of the sources meanwhile.
export TEST_TEXTS=$work/texts
mkdir "$TEST_TEXTS" && cp "$top"/docs/*.md "$TEST_TEXTS" || exit 1
program=("$SWELL_PYTHON")
if [[ -n $keep ]]; then
  # A step of two workers takes 4.2 s, one of four 2.4 s, by each of the plans below at most 3.6 s: more than what two cores compute for
  # all of them, and each less than on two, else the controller takes back what brings nothing.
  export SWELL_PACED=${SWELL_PACED-host:0.003tflops:memory=2GB/s:link=200MB/s:network=200MB/s}
else
  warm_program=$top/contrib/lib/warm.py
  "$SWELL_PYTHON" "$warm_program" serve "$work/warm" "$pytorch_tests/preload.py" > "$work/warm.out" 2>&1 &
  warm=$!
  trap 'kill "$warm" 2> /dev/null; cluster_down; rm -rf "$TMPDIR"' EXIT
  program+=("$warm_program" run "$work/warm")
fi
program+=("$pytorch_tests/jobs/engine_planned.py")

is_in_generation() { word_is "$job" state ACTIVE && (($(word_of "$job" generation) >= $1)); }
goes_on() { # FOLDER: some steps more
  local from
  from=$(cat "$1/step.0") && within 300 step_reached "$1" $((from + gap))
}
# re_planned GENERATION COMMAND...: the command brings the job to a later generation, live, in which it trains.
re_planned() {
  local generation
  generation=$(word_of "$job" generation)
  "$@" && within 200 is_in_generation $((generation + 1)) && goes_on "$folder" && return
  tail -n 20 "$folder.out"
  return 1
}
runs_alone() { # FAMILY: two GPUs of its own; the others are taken
  within 60 test -n "$keep" -o -S "$work/warm" && needs_gpus || return
  if [[ -n $keep ]]; then # the same run on two GPUs, never resized; the files are its own
    others=$rigid_job
    needs_gpus || return
    run_job "$1-reference" "--elastic=mode=live,max=2,grace=$grace" --gres=gpu:2 -w node1 -- "${program[@]}" "$1" "$size" || return
    reference_job=$job
  fi
  run_job "$1" "--elastic=mode=live,max=4,grace=$grace" --gres=gpu:2 -w node1 -- "${program[@]}" "$1" "$size" || return
  within 200 step_reached "$folder" $gap || { cat "$folder.out" "$work/warm.out"; return 1; }
}
frees_gpus() { scancel "$rigid_job"; }
needs_gpus() { # for longer than a run lasts
  rigid_job=$(sbatch --parsable --output=/dev/null --gres=gpu:2 -w node2 --wrap 'sleep 36000') && within 200 in_state "$rigid_job" RUNNING
}
gpus_of() { # JOB: a line "NODE GPU" for each
  local list range
  list=$(scontrol -d -o show job "$1" | grep -o 'IDX:[0-9,-]*' | head -n 1)
  for range in $(tr ',' ' ' <<< "${list#IDX:}"); do
    seq -f "$(squeue -h -j "$1" -o %N) %.0f" "${range%-*}" "${range#*-}"
  done
}
# wants FILTER: its owner asks for stages over the GPUs that it has; $g: groups of one GPU and two samples, in their order.
wants() {
  local companion layers=4
  [[ $size == small ]] || layers=8
  companion=$(word_of "$job" companions)
  { gpus_of "$job"; [[ $companion != *:* ]] || gpus_of "${companion%%:*}"; } |
    jq -Rnc --argjson layers $layers '[inputs / " " | {node: .[0], gpu_type: "h100", gpus: [.[1] | tonumber], local_batch: 2}] as $g |
      {micro_batches: 3, stages: ('"$1"')}' > "$folder/wanted" && swell replan "$job" --plan "$folder/wanted"
}
# The larger part of the layers comes first: the plans are uneven, and gain by four GPUs.
first='($layers * 5 / 8 | ceil)'
two_stages='[{layers: '$first', tp: 1, groups: $g[0:2]}, {layers: ($layers - '$first'), tp: 1, groups: $g[2:4]}]'
# Tensor parallelism on the first stage, which has one replica; two unequal ones on the second.
asymmetric='[{layers: '$first', tp: 2, groups: [$g[0] + {gpus: ($g[0].gpus + $g[1].gpus), local_batch: 4}]},
  {layers: ($layers - '$first'), tp: 1, groups: [($g[2] | .local_batch = 3), ($g[3] | .local_batch = 1)]}]'
# From the plan that runs; right behind it another, which waits until the programs before have left.
two_plans() {
  local generation
  generation=$(word_of "$job" generation)
  wants "$two_stages" && within 200 is_in_generation $((generation + 1)) && wants "$asymmetric" && within 200 is_in_generation $((generation + 2)) &&
    goes_on "$folder" && jq -c .stages "$folder/plan" && jq -e --slurpfile wanted "$folder/wanted" '.stages == $wanted[0].stages' "$folder/plan" && return
  tail -n 20 "$folder.out"
  return 1
}
says_sizes() { # by SWELL_SHIM; 12 samples, passes of 1 or 2, and so many layers
  local at_most=$((size_layers * 12))
  jq -es --argjson job "$job" --argjson most $at_most 'any(.[]; .event == "program-sizes" and .job == $job and .gpus == [range(1; $most + 1)])' "$events"
}
# No plan was so slow that the controller took GPUs back for it, and each began, within the time for it.
keeps_its_gpus() {
  jq -c --argjson job "$job" 'select(.job == $job and .event == "reclaim" and .cause == "shortfall")' "$events" > "$folder/shortfalls"
  grep -h -e 'called off' -e 'still . workers' "$folder.out" > "$folder/called-off"
  cat "$folder/shortfalls" "$folder/called-off"
  [[ ! -s $folder/shortfalls && ! -s $folder/called-off ]]
}
loss_is_kept() { # FAMILY
  local reference=$work/$1-reference last
  last=$(for last in "$folder/step.0" "$reference/step.0"; do [[ ! -e $last ]] || printf '%s\n' "$(< "$last")"; done | sort -n | tail -n 1)
  last=$((last + (size_layers == 8 ? 16 : 6)))
  mkdir -p "$reference" && printf '%s\n' "$last" | tee "$folder/last" "$reference/last" || return
  if [[ -z $keep ]]; then
    touch "$folder/fast" "$reference/fast"
    (cd "$reference" && env -u SLURM_CONF RANK=0 WORLD_SIZE=1 "${program[@]}" "$1" "$size") || return
  else
    within 900 ended "$reference_job" && [[ $(cat "$reference/status") == 0 ]] || { tail -n 20 "$reference.out"; return 1; }
  fi
  within 200 ended "$job" && [[ $(cat "$folder/status") == 0 ]] || { tail -n 20 "$folder.out"; return 1; }
  grep -o 'live: from .*' "$folder.out"
  ! grep 'asked to leave' "$folder.out" && (($(grep -c 'live: from' "$folder.out") == 5)) &&
    "$SWELL_PYTHON" "$pytorch_tests/compare_losses.py" "$reference/losses" "$folder/losses" "$last" 1e-4 || return
  compared=$(tail -n 1 "$check_log")
  [[ -z $keep ]] || {
    cp "$folder/losses" "$keep/$1.losses" && cp "$reference/losses" "$keep/$1-reference.losses" && cp "$folder.out" "$keep/$1.out" &&
      "$SWELL_PYTHON" "$pytorch_tests/plot_runs.py" "$folder/losses" "$reference/losses" "$keep/$1.svg"
  }
}
size_layers=4
[[ $size == small ]] || size_layers=8
for family in "${families[@]}"; do
  compared='' others=''
  check "$family: trains on GPUs of its own" runs_alone "$family"
  check "$family: says for which numbers of workers it has a plan" within 60 says_sizes
  check "$family: the controller lends it GPUs, live" re_planned frees_gpus
  check "$family: its owner has it run two plans, of stages and of unequal degrees, one right after the other" two_plans
  check "$family: GPUs that a rigid job needs are taken back, live" re_planned needs_gpus
  check "$family: they are lent again" re_planned frees_gpus
  check "$family: no plan was called off, and none was so slow that GPUs were taken back for it" keeps_its_gpus
  check "$family: each step has the loss of the run that nobody resizes" loss_is_kept "$family"
  [[ -z $compared ]] || printf '# %s: %s\n' "$family" "$compared"
  scancel "$rigid_job" ${others:+"$others"} 2> /dev/null
done
finish_tests
