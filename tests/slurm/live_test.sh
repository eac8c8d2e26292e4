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

goes_on_live() { # the epoch that trains is not the first program's again: nobody began anew
  [[ $(awk '$6 == "new" && $2 > 1' "$out/began") == '' ]]
}

grows_live() {
  live 400 --elastic=mode=live,max=2 --gres=gpu:1 && within 30 live_grown 2 && event switch-committed && well_ended
}
check 'a live job grows from one replica to two and ends as if it had not' grows_live

# PP, DP and TP up and down over three nodes: 2 ranks, 8, 4 beside a rigid job, and 8 again.
reclaimed_and_grown_again() {
  export PLANS='2=1,2,1,0 4=2,1,2,1 8=2,2,2,0'
  live 1500 --elastic=mode=live,sizes=2/4/8,max=8,grace=20 --gres=gpu:2 -w node1 && within 40 live_grown 8 && settled || return
  local began=$SECONDS
  rigid --gres=gpu:4 -N 2 -w node2,node3 && within 20 in_state "$rigid_job" RUNNING && settled || return
  printf 'the rigid job waited %s s\n' $((SECONDS - began))
  within 20 live_grown 4 || return
  scancel "$rigid_job" && within 40 live_grown 8 && event switch-committed 3 && well_ended
  local result=$?
  unset PLANS
  cat "$work/$job.out"
  return $result
}
check 'its lent GPUs go to a rigid job and come back, through plans of all three kinds' reclaimed_and_grown_again

# Whichever is quicker, the controller or Slurm itself.
preempted_live() {
  live 1200 --elastic=mode=live,max=8,grace=20 --gres=gpu:4 -w node1 && within 40 live_grown 8 && settled || return
  timeout 40 salloc --no-shell --gres=gpu:4 -N2 -w node2,node3 --job-name=interactive && within 30 live_grown 4 && goes_on_live || return
  scancel --name=interactive && well_ended
}
check 'an interactive job gets the GPUs at once, and the training loses nothing' preempted_live

held_growth() { # a job whose growth waits for its new programs: of epoch 1, four of them
  export PROGRAM=./held
  live "${1:-500}" --elastic=mode=live,max=4,grace=10 --gres=gpu:2 -w node1 && within 40 held_are 4
  local result=$?
  unset PROGRAM
  return $result
}
held_are() { [[ $(wc -l < "$out/held") == "$1" ]]; }
held_pid() { awk -v rank="$1" '$3 == rank { print $1 }' "$out/held"; }
held_shim() { awk -v rank="$1" '$3 == rank { print $4 }' "$out/held"; }
gave_up_growing() { event switch-aborted && has_no_companions "$job" && [[ $(word_of "$job" no_growth) == *live_switch_failed* ]]; }

new_program_dies() {
  held_growth && kill -KILL "$(held_pid 3)" && within 20 gave_up_growing && goes_on_live && ranks_run 2 && touch "$out/go" && well_ended
}
check 'a new program that is killed before the switch costs the training nothing' new_program_dies

new_shim_dies() {
  held_growth && kill -KILL "$(held_shim 3)" && within 20 event switch-aborted && within 20 event companion-lost && goes_on_live &&
    ranks_run 2 && touch "$out/go" && within 60 ended "$job" && [[ $(cat "$out/status") == 0 ]] && handed_over && right_state
}
check 'nor does a killed shim of a lent worker' new_shim_dies

agent_dies() {
  held_growth 100000 && local pids && pids=$(cut -d' ' -f1 "$out/began" "$out/held") && kill -KILL "$(cat "$out/swellrun.pid")" &&
    within 20 all_gone "$pids" && within 30 has_no_companions "$job" && within 30 ended "$job" && nothing_left
}
all_gone() { for each in $1; do kill -0 "$each" 2> /dev/null && return 1; done; return 0; }
check 'when swellrun is killed, no program of either epoch and no companion stays' agent_dies

lent_worker_dies() {
  live 600 --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 40 live_grown 4 || return
  kill -KILL "$(awk '$2 == 2 && $3 == 3 { print $1 }' "$out/began")"
  within 30 event companion-lost && within 60 ended "$job" && [[ $(cat "$out/status") == 0 ]] && right_state
}
check 'a lent worker that is killed sends the run back to its own GPUs' lent_worker_dies

silent_program() {
  live 1500 --elastic=mode=live,max=4,grace=10 --gres=gpu:2 -w node1 && within 40 live_grown 4 && settled || return
  kill -STOP "$(awk '$2 == 2 && $3 == 0 { print $1 }' "$out/began")"
  rigid --gres=gpu:2 -w node1 && within 30 in_state "$rigid_job" RUNNING || return
  grep 'the programs stopped answering; they are resized by restarts' "$work/$job.out" && within 20 ranks_run 2
}
check 'a program that stops answering gives the GPUs back in time all the same' silent_program

finish_tests
