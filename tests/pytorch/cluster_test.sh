#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Programs of the frameworks that know nothing of Swell, on a real cluster under swellrun.
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
cluster_up --nodes 1 --gpus-per-node 2

# left_alone NAME LOOP: it trains on, is lent nothing, and the job says why.
left_alone() {
  run_job "$1" --elastic=max=2 --gres=gpu:1 -- "$SWELL_PYTHON" "$pytorch_tests/loops.py" "$2" . || return
  within 300 step_reached "$folder" 3 && within 60 says "$job" 'no_growth=[^ ]*handler' || return
  gets_on "$folder" && is_lent "$job" 0 && in_state "$job" RUNNING && ! was_requeued "$job"
}
check 'a script that never heard of Swell is left as it is, and the job says why' left_alone plain plain
check 'Lightning is left as it is: its handler that requeues the job is not there' left_alone lightning lightning

requeued_without_the_run_id() {
  run_job requeue --requeue --elastic=max=2 --gres=gpu:1 -- \
    env -u TORCHELASTIC_RUN_ID "$SWELL_PYTHON" "$pytorch_tests/loops.py" lightning . || return
  within 300 was_requeued "$job"
}
check 'without TORCHELASTIC_RUN_ID a growth would requeue the job of Lightning' requeued_without_the_run_id

jit() {
  lends_nothing && run_job jit --elastic=max=2,grace=300 --gres=gpu:1 -- --restart-signal=TERM "$SWELL_PYTHON" "$pytorch_tests/jobs/jit.py" . || return
  within 300 test -s "$folder/start.0" && swell drain --undo && within 300 lent_and_active "$job" 1 && within 300 test -s "$folder/start.1" && gets_on "$folder" || return
  cat "$folder"/start.*
  # "WORLD STEP": on two workers, from where the one has left
  [[ $(cat "$folder/start.0") == '1 0' ]] && read -r world step < "$folder/start.1" && [[ $world == 2 && $step -ge 3 ]]
}
check "transformers' enable_jit_checkpoint is resized with --restart-signal=TERM" jit

finish_tests
