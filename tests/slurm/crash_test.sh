#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# kill -9 of every process in every state: jobs go on, invariants hold, nothing is left behind.
# shellcheck disable=SC2034 # programs: lib.sh
programs=(few_threads.so)
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 4 --gpus-per-node 2

grown_job() { submit --elastic=max=8,grace=10 --gres=gpu:2 -w node1 && within 30 grown "$job" 8; }
reaches() { # JOB STATE: the agent has told of this state since the mark
  tail -n "+$mark" "$events" | grep '"event":"status"' | grep "\"job\":$1," | grep "\"state\":\"$2\"" > /dev/null
}
set_mark() { mark=$(($(wc -l < "$events") + 1)); }

kill_slurmctld() { "$cluster" kill-ctld -KILL && "$cluster" restart-ctld; }
kill_swellrun() { kill -KILL "$(cat "$work/$job/swellrun.pid")"; }

# small_job: an elastic job that has its basic demand only, since another job holds all other nodes, and
# that slurmctld has saved: what Slurm itself loses in a crash, the last seconds, is not ours to test.
small_job() {
  rigid --gres=gpu:2 -N 3 -w node2,node3,node4 && within 10 in_state "$rigid_job" RUNNING || return
  blocker=$rigid_job rigid_job=
  submit --elastic=max=8,grace=10 --gres=gpu:2 -w node1 && within 20 workers_run "$job" 2 && within 20 is_saved
}
is_saved() { [[ $SWELL_CLUSTER_DIR/state/job_state -nt $work/$job/start.0.0 ]]; }

# at_state STATE: a job just then. DRAINING: `rigid_job` is what it gives its GPUs back for.
at_state() {
  small_job || return
  set_mark
  [[ $1 == ALLOCATED ]] && return
  scancel "$blocker" || return
  case $1 in
    WARMING | SWITCHING) within 30 reaches "$job" "$1" ;;
    ACTIVE) within 30 grown "$job" 8 ;;
    DRAINING)
      within 30 grown "$job" 8 && set_mark && rigid --gres=gpu:2 -N 2 -w node3,node4 &&
        within 30 reaches "$job" DRAINING
      ;;
  esac
}

slurmctld_dies() { # STATE
  at_state "$1" && kill_slurmctld || return
  scancel "$blocker" 2> /dev/null
  # A rigid job submitted in the last seconds is lost with slurmctld; Slurm forgets, we go on.
  [[ -n ${rigid_job:-} && -n $(state_of "$rigid_job") ]] && { within 40 in_state "$rigid_job" RUNNING || return; }
  [[ -n ${rigid_job:-} && -z $(state_of "$rigid_job") ]] && rigid_job=
  within 60 grown "$job" "$([[ -n ${rigid_job:-} ]] && echo 4 || echo 8)" && settled && goes_on "$job" &&
    in_state "$job" RUNNING
}
for state in ALLOCATED WARMING SWITCHING ACTIVE DRAINING; do
  rigid_job=
  check "slurmctld is killed by signal 9 while the job is $state" slurmctld_dies "$state"
done

swellrun_dies() { # STATE
  at_state "$1" && kill_swellrun || return
  within 40 ended "$job" && within 20 has_no_companions "$job" && settled || return
  [[ $(cat "$work/$job/status") == 137 ]] && within 20 no_workers "$job"
}
for state in ALLOCATED WARMING SWITCHING ACTIVE DRAINING; do
  check "swellrun is killed by signal 9 while the job is $state" swellrun_dies "$state"
done

# The last worker is killed: one of a companion where there are any, which the job survives; before that
# one of the basic demand, whose failure is the program's own, as with srun.
worker_dies() { # STATE
  at_state "$1" && within 10 kill_last_worker || return
  scancel "$blocker" 2> /dev/null
  within 60 over_or_on || return
  settled && if ended "$job"; then
    [[ $(cat "$work/$job/status") == 137 ]] && within 20 has_no_companions "$job" && within 20 no_workers "$job"
  else
    goes_on "$job"
  fi
}
# One that was picked may leave for the growth before it is killed: then another is.
kill_last_worker() {
  local pid
  pid=$(last_worker) && kill -KILL "$pid" 2> /dev/null
}
last_worker() {
  local file pid last=''
  for file in $(find "$work/$job" -name 'start.*' | sort -t. -k2n -k3n); do
    read -r pid _ < "$file"
    kill -0 "$pid" 2> /dev/null && last=$pid
  done
  [[ -n $last ]] && printf '%s\n' "$last"
}
over_or_on() { ended "$job" || { [[ -n ${rigid_job:-} ]] && grown "$job" 4; } || grown "$job" 8; }
for state in ALLOCATED WARMING SWITCHING ACTIVE DRAINING; do
  rigid_job=
  check "a worker is killed by signal 9 while the job is $state" worker_dies "$state"
done

# The first PROGRAM of a job, an srun say, asks a slurmctld that stands still, and dies before it answers. Losing what slurmctld had not saved of the job would be
# Slurm's own loss.
mkdir "$work/asks"
cat > "$work/asks/srun" << 'EOJ'
#!/bin/bash
PATH=${PATH#*:}
if [[ $0 == */"$ASKS" ]] && mkdir "$TRAINER_WORK/asked"; then
  echo "$$" > "$TRAINER_WORK/asked/pid"
  scontrol update "job=$SLURM_JOB_ID" comment=asked # so that slurmctld saves it
  until [[ $SWELL_CLUSTER_DIR/state/job_state -nt $TRAINER_WORK/asked ]]; do sleep 0.1; done
  until kill -STOP "$SLURMCTLD_PID" && ! ls "$SWELL_CLUSTER_DIR"/state/*.new; do kill -CONT "$SLURMCTLD_PID"; done
fi > /dev/null 2>&1
exec "${0##*/}" "$@"
EOJ
chmod +x "$work/asks/srun" && ln -s srun "$work/asks/scontrol"
program_asks() { # its connection to slurmctld stands
  local port
  port=$(printf ':%04X' "$(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF")")
  find "/proc/$(cat "$work/$job/asked/pid")/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' |
    awk -v port="$port" 'NR == FNR { own[$1]; next } $10 in own && $4 == "01" && $3 ~ port "$" { found = 1 } END { exit !found }' - /proc/net/tcp
}
slurmctld_dies_asked() { # PROGRAM
  ASKS=$1 SLURMCTLD_PID=$("$cluster" pid slurmctld) PATH=$work/asks:$PATH submit --elastic=max=8,grace=10 --gres=gpu:2 -w node1 &&
    within 40 program_asks && kill_slurmctld && within 60 grown "$job" 8 && settled && goes_on "$job"
  local result=$?
  cat "$work/$job.out"
  return $result
}
at_launch() {
  slurmctld_dies_asked srun && grep -x 'swellrun: srun ended with 1: slurmctld was away; its workers are launched again in [2-8] s' "$work/$job.out"
}
check 'slurmctld is killed by signal 9 while srun asks it for the step of a job' at_launch
check 'slurmctld is killed by signal 9 while swellrun asks it for the job' slurmctld_dies_asked scontrol

slurmd_dies() { # STATE
  at_state "$1" && "$cluster" kill-slurmd node4 -KILL && "$cluster" start-slurmd node4 || return
  scancel "$blocker" 2> /dev/null
  [[ -n ${rigid_job:-} ]] && { within 60 in_state "$rigid_job" RUNNING || return; }
  goes_on "$job" && within 60 grown "$job" "$([[ -n ${rigid_job:-} ]] && echo 4 || echo 8)" && settled
}
for state in ALLOCATED WARMING SWITCHING ACTIVE DRAINING; do
  rigid_job=
  check "slurmd of a lent node is killed by signal 9 while the job is $state" slurmd_dies "$state"
done

worker_of_companion_dies() {
  grown_job || return
  local pid generation
  generation=$(newest_generation "$job") && pid=$(awk '$7 == "node4" { print $1 }' "$work/$job/start.$generation".* | head -n 1)
  kill -KILL "$pid" && within 30 newer_generation "$generation" && within 60 grown "$job" 8 && settled && goes_on "$job"
}
newer_generation() { (($(newest_generation "$job") > $1)); }
check 'a worker on a companion is killed: the job restarts from its checkpoint' worker_of_companion_dies

node_goes_down() {
  grown_job || return
  "$cluster" kill-slurmd node4 -KILL && scontrol update nodename=node4 state=down reason=test || return
  within 40 without_node node4 && goes_on "$job" && in_state "$job" RUNNING && settled || return
  "$cluster" start-slurmd node4
  scontrol update nodename=node4 state=resume
  within 60 grown "$job" 8
}
without_node() { [[ ! $(word_of "$job" companions) =~ $1 ]] && workers_run "$job" 6; }
check 'the node of a companion goes down' node_goes_down

node_is_drained() {
  grown_job || return
  scontrol update nodename=node4 state=drain reason=test || return
  within 40 without_node node4 && goes_on "$job" && in_state "$job" RUNNING && settled || return
  scontrol update nodename=node4 state=resume && within 60 grown "$job" 8 && settled
}
check 'GPUs lent on a drained node go back, and the node is not lent from' node_is_drained

reconfigured() {
  grown_job && scontrol reconfigure && sleep 1 && in_state "$job" RUNNING && settled && goes_on "$job" &&
    rigid --gres=gpu:2 -N 1 && within 30 in_state "$rigid_job" RUNNING && settled && within 30 grown "$job" 6
}
check 'scontrol reconfigure changes nothing' reconfigured

preempted_without_a_controller() {
  # The controller is off, Slurm alone preempts: swellrun takes the same path.
  grown_job && "$cluster" kill-ctld || return # one that runs would read the file
  sed -i 's/^Elasticity=.*//; $aElasticity=no' "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && rigid --gres=gpu:2 -N 2 -w node3,node4 || return
  within 40 in_state "$rigid_job" RUNNING && goes_on "$job" && in_state "$job" RUNNING && within 20 workers_run "$job" 4
  local status=$?
  sed -i '/^Elasticity=no/d' "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
check 'Slurm preempts companions while the controller is off' preempted_without_a_controller

# slurmctld starts while Swell can have no more than N threads in it; later there are enough again.
says_since() { tail -n "+$mark" "$SWELL_CLUSTER_DIR/log/slurmctld.log" | grep -E "$1" > /dev/null; }
says_how_often() { tail -n "+$mark" "$SWELL_CLUSTER_DIR/log/slurmctld.log" | grep -cE "$1"; }
has_few_threads() { # N WORDS
  printf '%s\n' "$1" > "$work/few" && mark=$(($(wc -l < "$SWELL_CLUSTER_DIR/log/slurmctld.log") + 1)) &&
    FEW_THREADS=$work/few LD_PRELOAD=$work/few_threads.so "$cluster" restart-ctld &&
    within 20 says_since "swell: $2" && in_state "$job" RUNNING && goes_on "$job" &&
    (($(says_how_often "swell: $2") == 1)) && ! says_since 'swell: the controller is ready' && rm "$work/few" && rigid --gres=gpu:2 -w node4 &&
    within 20 says_since 'swell: the controller is ready' && within 40 in_state "$rigid_job" RUNNING && within 60 grown "$job" 6 && settled &&
    scancel "$rigid_job" && within 60 grown "$job" 8 && goes_on "$job"
}
no_threads() {
  grown_job && has_few_threads 0 'elasticity is off: .*each submission' && has_few_threads 2 'agents cannot be served yet' &&
    has_few_threads 4 'elasticity is off: .*started again, after 60 s at most' && has_few_threads 5 'elasticity is off: .*started again, after 60 s at most'
}
check 'a controller whose threads cannot be started is started again once they can' no_threads

finish_tests
