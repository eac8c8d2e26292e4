#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A job of the soak: a trainer under swellrun for SOAK_LIFE seconds, or with SOAK_RIGID nothing but its GPUs. Leaves its
# exit status.
cd "${SOAK_WORK:?}" || exit 2
rm -f finish
export SLURM_DEBUG=1 # srun says of which step it is told that it is complete
if [[ -n ${SOAK_RIGID:-} ]]; then
  sleep "$SOAK_LIFE"
else
  (sleep "$SOAK_LIFE"; touch finish) &
  swellrun "$SOAK_TRAINER" &
  echo "$!" > swellrun.pid
  wait $!
fi
status=$?
echo "$status" > status
exit "$status"
