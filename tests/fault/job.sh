#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A job of the soak: a trainer under swellrun for SOAK_LIFE seconds; with SOAK_KIND=live a program of the runtime, for as many steps as
# that takes it; with SOAK_KIND=rigid nothing but its GPUs. Leaves its exit status.
cd "${SOAK_WORK:?}" || exit 2
rm -f finish began steps.* layer* # slurmctld may start it a second time, after it forgot that it did
export SLURM_DEBUG=1 # srun says of which step it is told that it is complete
if [[ $SOAK_KIND == rigid ]]; then
  sleep "$SOAK_LIFE"
else
  program=("$SOAK_PROGRAMS/trainer.sh")
  if [[ $SOAK_KIND == live ]]; then
    # Ranks keep step with each other, as collectives have them do.
    export OUT=$SOAK_WORK TMPDIR=$SOAK_PROGRAMS/tmp
    program=(env "LD_PRELOAD=$SOAK_PROGRAMS/in_step.so" "$SOAK_PROGRAMS/regression" $((SOAK_LIFE * 10)) 4 12 10 100000)
  else
    (sleep "$SOAK_LIFE"; touch finish) &
  fi
  swellrun "${program[@]}" &
  echo "$!" > swellrun.pid
  wait $!
fi
status=$?
echo "$status" > status
exit "$status"
