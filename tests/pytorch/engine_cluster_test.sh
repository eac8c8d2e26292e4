#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A GPT-2 and a LLaMA under the engine on a real cluster, in live mode: the controller lends GPUs by their profiles, with a plan, and
# their owner has them run two more plans. The loss of every step is that of a run that nobody resizes.
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
after_check() { :; } # jobs live over several behaviours
profile_wait=600 cluster_up --nodes 2 --gpus-per-node 4
# So slow that profiles are stable where the machine is busy, too: a step of two workers takes 1.5 s, all its parts 0.05 s or more.
export SWELL_PACED=host:0.00002tflops:memory=25MB/s:link=3MB/s:network=3MB/s

declare -A jobs
for family in gpt2 llama; do
  run_job "$family" --elastic=mode=live,max=4,grace=60 --gres=gpu:2 -- "$SWELL_PYTHON" "$pytorch_tests/jobs/engine_planned.py" "$family"
  jobs[$family]=$job
done

plan_of_four() { [[ -s $1/plan ]] && jq -e '[.stages[].groups[].gpus[]] | length == 4' "$1/plan"; }
lent_a_plan() { # FAMILY
  within 400 plan_of_four "$work/$1" && gets_on "$work/$1" && within 60 word_is "${jobs[$1]}" state ACTIVE && swell jobs "${jobs[$1]}" |
    grep 'is decided planned' && jq -c . "$work/$1/plan"
}
# plan_from FAMILY FILTER: a plan over the GPUs that it has; $g: they, one by one, in their order.
plan_from() {
  jq -c '[.stages[].groups[] | . as $group | .gpus[] as $gpu | $group | .gpus = [$gpu]] | sort_by(.node, .gpus) as $g |
    {micro_batches: 3, stages: '"$2}" "$work/$1/plan" > "$work/$1.plan"
}
follows() { jq -e --slurpfile wanted "$work/$1.plan" '.stages == $wanted[0].stages' "$work/$1/plan"; }
replanned() { # FAMILY FILTER
  plan_from "$1" "$2" && swell replan "${jobs[$1]}" --plan "$work/$1.plan" || return
  within 300 follows "$1" && gets_on "$work/$1" && within 60 word_is "${jobs[$1]}" state ACTIVE || { cat "$work/$1/plan"; return 1; }
}
two_stages='[{layers: 3, tp: 1, groups: [$g[0, 1] | .local_batch = 2]}, {layers: 1, tp: 1, groups: [$g[2, 3] | .local_batch = 2]}]'
# Tensor parallelism on the first stage, which has one replica; two unequal ones on the second.
asymmetric='[{layers: 1, tp: 2, groups: [$g[0] + {gpus: ($g[0].gpus + $g[1].gpus), local_batch: 4}]},
  {layers: 3, tp: 1, groups: [($g[2] | .local_batch = 3), ($g[3] | .local_batch = 1)]}]'
loss_is_kept() { # FAMILY
  local folder=$work/$1 last
  last=$(($(cat "$folder/step.0") + 6))
  printf '%s\n' "$last" > "$folder/last"
  mkdir -p "$folder-reference" && cp "$folder/last" "$folder-reference" || return
  (cd "$folder-reference" && env -u SLURM_CONF -u SWELL_PACED RANK=0 WORLD_SIZE=1 "$SWELL_PYTHON" "$pytorch_tests/jobs/engine_planned.py" "$1") || return
  within 120 ended "${jobs[$1]}" && [[ $(cat "$folder/status") == 0 ]] || { tail -n 20 "$folder.out"; return 1; }
  grep -o 'live: from .*' "$folder.out"
  (($(grep -c 'live: from' "$folder.out") == 3)) && "$SWELL_PYTHON" "$pytorch_tests/compare_losses.py" "$folder-reference/losses" "$folder/losses" "$last" 1e-4
}
for family in gpt2 llama; do
  check "$family: lent GPUs because of its profile, with a plan that its programs follow" lent_a_plan "$family"
done
for family in gpt2 llama; do
  check "$family: two stages, by a live switch that its owner asks for" replanned "$family" "$two_stages"
done
for family in gpt2 llama; do
  check "$family: stages of unequal degrees" replanned "$family" "$asymmetric"
done
for family in gpt2 llama; do
  check "$family: the loss is that of the run that nobody resizes" loss_is_kept "$family"
done
finish_tests
