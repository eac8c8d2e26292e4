# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions shared by the tests of live mode; sourced after lib.sh, which had programs=(regression in_step.so), and before cluster_up. A job's
# folder `out` has what its programs say.
cat > "$work/live_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
swellrun --swell-events="$OUT/events" "${PROGRAM:-./in_step}" $STEPS ${SHAPE:-4 12 10} ${PACE_US:-20000} &
echo "$!" > "$OUT/swellrun.pid"
wait $!
echo "$?" > "$OUT/status"
EOJ
# Ranks keep step with each other, and do not end before the test lets them.
cat > "$work/in_step" << 'EOJ'
#!/bin/bash
[[ ! -e $OUT/plan.$WORLD_SIZE ]] || export PLAN=$(< "$OUT/plan.$WORLD_SIZE")
LD_PRELOAD=$PWD/in_step.so exec ./regression "$@"
EOJ
# Programs of later generations wait before they begin, until the file $OUT/go is there; their pids are in $OUT/held.
cat > "$work/held" << 'EOJ'
#!/bin/bash
if ((SWELL_GENERATION > 0)) && [[ ! -e $OUT/go ]]; then
  echo "$$ $SWELL_GENERATION $RANK $PPID" >> "$OUT/held"
  while [[ ! -e $OUT/go ]]; do sleep 0.05; done
fi
exec ./in_step "$@"
EOJ
chmod +x "$work/held" "$work/in_step"

# Steps of 20 ms or more, so that a run lasts longer than any test waits, until lets_end. Unless SWELL_FIRST_WAIT is given,
# nothing is lent before it has begun on its own GPUs: on a loaded machine lent ones might be up before these.
live() { # [sbatch options]: sets `job` and `out`
  export STEPS=${STEPS:-12000}
  ((SWELL_FIRST_WAIT > 0)) || lends_nothing || return
  job=$(sbatch --parsable --output="$work/%j.out" "$@" "$work/live_job.sh") && out=$work/$job &&
    { ((SWELL_FIRST_WAIT > 0)) || within 120 test -s "$out/began"; }
  local status=$?
  swell drain --undo > /dev/null && return $status
}
# Its programs do 150 more steps at most, without pauses from now on. A rank that pauses cannot be there before it has read the number.
lets_end() {
  local last
  last=$(($(newest_step) + 150))
  ((last < STEPS)) || last=$STEPS
  printf '%s\n' "$last" > "$out/last.new" && mv "$out/last.new" "$out/last" && touch "$out/fast"
}
newest_step() { # the last one that any rank of any generation has come to
  local generation first steps most=0
  while read -r generation first; do
    steps=$(steps_of "$generation") && ((first + steps > most)) && most=$((first + steps))
  done < <(awk '{ print $2 - 1, $5 }' "$out/began")
  printf '%s\n' "$most"
}
steps_of() { # GENERATION: how many steps its ranks have done
  od -An -v -w8 -tu8 "$out/steps.$1" | sort -n | tail -n 1 | tr -d ' '
}
event() { # NAME [COUNT]: that many such events, or one, are in the job's log
  (($(grep -c "\"event\":\"$1\"" "$out/events" 2> /dev/null) >= ${2:-1}))
}
ranks_run() { # N: the newest generation has N programs, which run
  local newest pid n=0
  newest=$(awk '{ if ($2 > e) e = $2 } END { print e }' "$out/began")
  while read -r pid generation _; do
    [[ $generation == "$newest" ]] && kill -0 "$pid" 2> /dev/null && n=$((n + 1))
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
  local shape=${SHAPE:-4 12 10} steps=$STEPS alone=$work/alone
  [[ ! -e $out/last ]] || steps=$(< "$out/last")
  # shellcheck disable=SC2086
  rm -rf "$alone" && mkdir "$alone" && OUT=$alone "$work/regression" "$steps" $shape || return
  for layer in 0 1 2 3; do
    cmp "$alone/layer$layer" "$out/layer$layer" || return
  done
}
nothing_left() {
  ! find /dev/shm -maxdepth 1 -name '*swell*' | grep . && ! find "$TMPDIR" -maxdepth 1 -name 'swell-worker-*' | grep .
}
handed_over() { # every program but the first generation's took its state over
  awk '{ if ($2 == 1 && $6 != "new" || $2 != 1 && $6 != "taken") exit 1 }' "$out/began"
}
ends_right() { lets_end && within 120 ended "$job" && [[ $(cat "$out/status") == 0 ]] && right_state; }
well_ended() {
  ends_right && handed_over && within 60 has_no_companions "$job" && within 60 nothing_left
}

# The pid of rank R's program of generation E, as the system sees it: `began` has only those that have adopted.
program_of() { # GENERATION RANK
  local pid
  for pid in $(processes_with "SLURM_JOB_ID=$job"); do
    [[ $(cat "/proc/$pid/comm" 2> /dev/null) == regression ]] && grep -qszx "SWELL_GENERATION=$1" "/proc/$pid/environ" &&
      grep -qszx "RANK=$2" "/proc/$pid/environ" && printf '%s\n' "$pid" && return
  done
  return 1
}

# A growth of two workers to four that needs 32 KiB beside the state of 128 KiB, as layers are cut in two, and may have half of it.
needs_chunks=(STEPS=4000 SHAPE='4 32 32' PLANS='2=2,1,1,0 4=1,2,2,0' SWELL_SWITCH_MEMORY=16K)
# No part of the first generation's last step is done again.
no_step_lost() {
  local from
  from=$(awk '$2 == 3 { print $5; exit }' "$out/began")
  printf 'the first generation did %s steps; the next goes on from step %s\n' "$(steps_of 0)" "$from"
  [[ $(steps_of 0) == "$from" ]]
}

goes_on_live() { # the generation that trains is not the first program's again: nobody began anew
  [[ $(awk '$6 == "new" && $2 > 1' "$out/began") == '' ]]
}
goes_on_with() { grep "live: $1 workers\? goe\?s\? on from the snapshot of step" "$work/$job.out"; }
