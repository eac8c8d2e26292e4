#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A training program in miniature: counts steps, checkpoints on USR1 and leaves, resumes from the
# checkpoint, ends when ./finish exists (or FAIL_AT is reached, with exit code 3). Every worker leaves a
# file that says how it was started: "PID RANK WORLD LOCAL_RANK LOCAL_WORLD NODE_RANK HOST GPUS". While
# ./hang names their number, workers hang before they are ready; while ./last exists those on lent GPUs do
# not end, and take a moment to die of TERM. Where IGNORE_SIGNAL=GENERATION is set, workers of that generation and
# later ones do not leave. While ./slow_leave exists, workers that were asked to leave take their time.
cd "${TRAINER_WORK:?}" || exit 2
leave() {
  while [[ -e slow_leave ]]; do read -rt 0.2 -u "$never"; done
  if ((RANK == 0)); then echo "$step" > checkpoint.new && mv checkpoint.new checkpoint; fi
  echo "$step" > "left.$SWELL_GENERATION.$RANK"
  exit 0
}
die() {
  read -rt 0.5 -u "$never"
  exit 143
}
if [[ $(cat hang 2> /dev/null) == "$WORLD_SIZE" ]]; then
  : > "hung.$SWELL_GENERATION.$RANK"
  exec sleep 36000
fi
step=$(cat checkpoint 2> /dev/null || echo 0)
trap 'leave' USR1
[[ -n ${IGNORE_SIGNAL:-} ]] && ((SWELL_GENERATION >= IGNORE_SIGNAL)) && trap ':' USR1
echo "$$ $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK ${SLURMD_NODENAME:-} ${CUDA_VISIBLE_DEVICES:-}" \
  > ".start.$RANK" && mv ".start.$RANK" "start.$SWELL_GENERATION.$RANK"
# A program started for each step would cost more than all else that a suite does.
exec {never}<> <(:)
[[ -e last ]] && trap 'die' TERM
while [[ ! -e finish || (-e last && RANK -ge SWELL_BASIC_WORKERS) ]]; do
  read -rt 0.2 -u "$never" || :
  step=$((step + 1))
  if ((RANK == 0)); then
    echo "$step" > step.new && mv step.new step
    [[ -n ${FAIL_AT:-} ]] && ((step >= FAIL_AT)) && exit 3
  fi
done
((RANK == 0)) && echo "$step" > checkpoint
exit 0
