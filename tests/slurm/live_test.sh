#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live on a real cluster: a program of the runtime is resized while it trains. It never writes a checkpoint, so every
# step that it has at the end was handed from program to program.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v cc > /dev/null || skip 'no C compiler: run contrib/setup'
program=$work/regression
cc -O1 -I"$top/src" "$top/examples/regression.c" -o "$program" -L"$SWELL_STAGE/lib" -Wl,-rpath,"$SWELL_STAGE/lib" -lswell -lm ||
  skip 'examples/regression.c could not be built with the installed libswell'
cat > "$work/live_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
# shellcheck disable=SC2086 # options, separated by blanks
swellrun --swell-events="$OUT/events" ${RUN_OPTIONS:-} ./regression $STEPS 4 12 10 ${PACE_US:-20000} &
echo "$!" > "$OUT/swellrun.pid"
wait $!
echo "$?" > "$OUT/status"
EOJ
cluster_up --nodes 3 --gpus-per-node 4

live() { # STEPS [sbatch options]: sets `job` and `out`
  export STEPS=$1
  shift
  job=$(sbatch --parsable --output="$work/%j.out" "$@" "$work/live_job.sh") || return
  out=$work/$job
}
event() { # NAME [COUNT]: that many such events, or one, are in the job's log
  (($(grep -c "\"event\":\"$1\"" "$out/events" 2> /dev/null) >= ${2:-1}))
}
ranks_run() { # N: the newest epoch has N programs, which run
  local newest pid n=0
  newest=$(awk '{ if ($2 > e) e = $2 } END { print e }' "$out/began")
  while read -r pid epoch _; do
    [[ $epoch == "$newest" ]] && kill -0 "$pid" 2> /dev/null && n=$((n + 1))
  done < "$out/began"
  ((n == $1))
}
live_grown() { # TOTAL
  local basic
  basic=$(word_of "$job" basic)
  [[ -n $basic ]] && is_lent "$job" $(($1 - basic)) && word_is "$job" state ACTIVE && ranks_run "$1"
}
programs_end() { ! pgrep -f "$program\$|^./regression" > /dev/null; }
# As it is at the end of a run that nobody resized.
right_state() {
  mkdir -p "$work/alone" && OUT=$work/alone "$program" "$STEPS" 4 12 10 && for layer in 0 1 2 3; do
    cmp "$work/alone/layer$layer" "$out/layer$layer" || return
  done
}
nothing_left() {
  ! find /dev/shm -maxdepth 1 -name '*swell*' | grep . && ! find /tmp "$TMPDIR" -maxdepth 1 -name 'swell-worker-*' | grep .
}
handed_over() { # every program but the first epoch's took its state over
  awk '{ if ($2 == 1 && $6 != "new" || $2 != 1 && $6 != "taken") exit 1 }' "$out/began"
}
well_ended() {
  within 60 ended "$job" && [[ $(cat "$out/status") == 0 ]] && handed_over && right_state && within 10 has_no_companions "$job" &&
    nothing_left
}

grows_live() {
  live 400 --elastic=mode=live,max=2 --gres=gpu:1 && within 30 live_grown 2 && event switch-committed && well_ended
}
check 'a live job grows from one replica to two and ends as if it had not' grows_live

finish_tests
