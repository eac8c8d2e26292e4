#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Signals from the user while a live switch is under way, and the end of a job that takes its time for it.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2

# Programs of the first generation ignore USR2, as if they handled it; those of later ones do not yet.
cat > "$work/late_handler" << 'EOJ'
#!/bin/bash
((SWELL_GENERATION > 0)) || trap '' USR2
exec ./held "$@"
EOJ
chmod +x "$work/late_handler"

held_are() { [[ $(wc -l 2> /dev/null < "$out/held") == "$1" ]]; }
held_growth() { live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 held_are 4; }
# Gives two of four workers back, for a job that waits on node2: the next programs, two, do not begin.
held_return() {
  live --elastic=mode=live,max=4,grace=60 --gres=gpu:2 -w node1 && within 120 held_are 4 && touch "$out/go" && within 120 live_grown 4 && settled &&
    rm "$out/go" || return
  rigid --gres=gpu:2 -w node2 && within 60 held_are 6
}
ends_of() { # SIGNAL
  local code=$((128 + $(kill -l "$1")))
  scancel --signal="$1" "$job" && within 30 ended "$job" || return
  [[ $(cat "$out/status") == "$code" ]] && grep -x "swellrun: the program ended with $code after Slurm sent it $1: the run ends" "$work/$job.out" &&
    within 20 has_no_companions "$job" && settled && within 20 nobody_runs && nothing_left &&
    ! event growth-paused && ! grep 'a live switch failed' "$work/$job.out" && grep "the switch was called off: Slurm sent the job $1" "$work/$job.out" &&
    { swell why "$job" 2> /dev/null || swell history "$job"; } > said && ! grep 'live switch failed\|a worker has ended' said
}
nobody_runs() {
  local pid
  for pid in $(cut -d' ' -f1 "$out/began" "$out/held"); do ! kill -0 "$pid" 2> /dev/null || return; done
}
dies_while_it() { # held_growth or held_return, SIGNAL
  export PROGRAM=./held
  "$1" && ends_of "$2" && { [[ $1 != held_return ]] || within 30 in_state "$rigid_job" RUNNING; }
  local result=$?
  unset PROGRAM
  cat "$out/events" said "$work/$job.out"
  return $result
}
for signal in INT HUP QUIT USR2; do
  check "programs that die of $signal while the job grows live end it, and its companion goes back" dies_while_it held_growth $signal
done
for signal in INT USR2; do
  check "so do programs that die of $signal while it gives GPUs back live" dies_while_it held_return $signal
done

survives() {
  export PROGRAM=./late_handler
  held_growth && scancel --signal=USR2 "$job" && within 60 event switch-aborted && within 60 held_are 8 && ! event growth-paused &&
    within 20 shows_why && touch "$out/go" && within 60 live_grown 4 && well_ended
  local result=$?
  unset PROGRAM
  cat "$out/events" "$work/$job.out"
  return $result
}
shows_why() { swell jobs | grep "^Job $job, last live switch: called off in prepare: Slurm sent the job USR2"; }
check 'where new programs alone die of it, the others train on, and the job grows as before' survives

# It saves for a while as it ends. GPUs become idle just then.
cat > "$work/saves.sh" << 'EOJ'
#!/bin/bash
trap 'exit 0' USR1
trap 'touch "$OUT/saving"; until [[ -e $OUT/saved ]]; do sleep 0.1; done; exit 0' TERM
while :; do sleep 0.1; done
EOJ
chmod +x "$work/saves.sh"
cat > "$work/saves_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/$SLURM_JOB_ID
mkdir -p "$OUT"
trap 'kill -TERM $!' TERM
swellrun ./saves.sh &
until wait $!; (($? != 143)); do :; done
EOJ
grants_of() { grep -c "\"event\":\"grant\".*\"job\":$job[,}]\|\"job\":$job,.*\"event\":\"grant\"" "$events"; }
offered_nothing() { # scancel's options
  rigid --gres=gpu:2 -w node2 && within 30 in_state "$rigid_job" RUNNING || return
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=max=4 --gres=gpu:2 -w node1 saves_job.sh) && out=$work/$job &&
    within 30 word_is "$job" state ACTIVE && within 20 waits_for 'no GPU that it could use is idle' || return
  scancel "$@" "$job" && within 20 test -e "$out/saving" && within 10 waits_for 'the job is ending' && scancel "$rigid_job" &&
    within 20 ended "$rigid_job" || return
  sleep 5 # several rounds of the controller
  [[ $(grants_of) == 0 ]] && has_no_companions "$job" && ! grep 'GPUs are offered' "$work/$job.out" && touch "$out/saved" && within 20 ended "$job"
  local result=$?
  swell why "$job"
  cat "$work/$job.out"
  return $result
}
waits_for() { swell why "$job" | grep "^it takes no more now: $1"; }
check 'a job whose programs were sent TERM is offered nothing while they end' offered_nothing --signal=TERM
check 'nor one whose script was, and hands it on' offered_nothing --batch --signal=TERM

finish_tests
