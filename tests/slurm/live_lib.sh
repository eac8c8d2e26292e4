# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What the tests of live mode share; sourced after lib.sh, before cluster_up. The program is examples/regression.c, built
# with the installed libswell; a job's folder `out` has what its programs say.
command -v cc > /dev/null || skip 'no C compiler: run contrib/setup'
program=$work/regression
cc -O1 -I"$top/src" "$top/examples/regression.c" -o "$program" -L"$SWELL_STAGE/lib" -Wl,-rpath,"$SWELL_STAGE/lib" -lswell -lm ||
  skip 'examples/regression.c could not be built with the installed libswell'
cat > "$work/live_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
swellrun --swell-events="$OUT/events" "${PROGRAM:-./regression}" $STEPS 4 12 10 ${PACE_US:-20000} &
echo "$!" > "$OUT/swellrun.pid"
wait $!
echo "$?" > "$OUT/status"
EOJ
# Programs of later epochs wait before they begin, until the file $OUT/go is there; their pids are in $OUT/held.
cat > "$work/held" << 'EOJ'
#!/bin/bash
if ((SWELL_EPOCH > 0)) && [[ ! -e $OUT/go ]]; then
  echo "$$ $SWELL_EPOCH $RANK $PPID" >> "$OUT/held"
  while [[ ! -e $OUT/go ]]; do sleep 0.05; done
fi
exec ./regression "$@"
EOJ
chmod +x "$work/held"

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
# As it is at the end of a run that nobody resized.
right_state() {
  mkdir -p "$work/alone" && OUT=$work/alone "$program" "$STEPS" 4 12 10 && for layer in 0 1 2 3; do
    cmp "$work/alone/layer$layer" "$out/layer$layer" || return
  done
}
nothing_left() {
  ! find /dev/shm -maxdepth 1 -name '*swell*' | grep . && ! find "$TMPDIR" -maxdepth 1 -name 'swell-worker-*' | grep .
}
handed_over() { # every program but the first epoch's took its state over
  awk '{ if ($2 == 1 && $6 != "new" || $2 != 1 && $6 != "taken") exit 1 }' "$out/began"
}
well_ended() {
  within 60 ended "$job" && [[ $(cat "$out/status") == 0 ]] && handed_over && right_state && within 10 has_no_companions "$job" &&
    nothing_left
}

goes_on_live() { # the epoch that trains is not the first program's again: nobody began anew
  [[ $(awk '$6 == "new" && $2 > 1' "$out/began") == '' ]]
}
