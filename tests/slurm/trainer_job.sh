#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The batch script of the tests: trainer.sh under swellrun, with files in ./JOBID. TRAINER_RUN replaces
# the launcher's options.
work=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$work"
export TRAINER_WORK=$work
echo "$$" > "$work/batch.pid"
# shellcheck disable=SC2086 # options, separated by blanks
swellrun ${TRAINER_RUN:-} "${TRAINER:?}" &
echo "$!" > "$work/swellrun.pid"
wait $!
status=$?
echo "$status" > "$work/status"
exit $status
