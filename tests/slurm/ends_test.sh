#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# However a job or a companion ends, nothing is left behind and nobody else is hurt.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# Slurm starts a requeued job again when its credentials have expired.
cluster_up --nodes 4 --gpus-per-node 2 --credential-life 20

grown_job() { submit --elastic=max=8 --gres=gpu:2 "$@" && within 30 grown "$job" 8; }
nothing_left() { within 15 has_no_companions "$1" && settled && within 15 no_workers "$1"; }

parent_ends() { grown_job && touch "$work/$job/finish" && within 20 ended "$job" && nothing_left "$job"; }
check 'the parent ends by itself' parent_ends

parent_cancelled() { grown_job && scancel "$job" && within 30 ended "$job" && nothing_left "$job"; }
check 'the parent is cancelled' parent_cancelled

parent_killed_hard() { grown_job && scancel --signal=KILL --full "$job" && within 30 ended "$job" && nothing_left "$job"; }
check 'everything of the parent is killed by signal 9' parent_killed_hard

# Slurm sends it to the programs on the job's own GPUs alone.
dies_of_a_signal() {
  grown_job && scancel --signal=INT "$job" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 130 ]] &&
    grep -x 'swellrun: the program ended with 130 after Slurm sent it INT: the run ends' "$work/$job.out" && nothing_left "$job"
}
check 'a program that dies of a signal from the user ends the job, lent GPUs or not' dies_of_a_signal

# scancel --signal reaches the programs by itself. The restart signal does not ask for the end: they leave a checkpoint, and train on from it.
restart_signal_of_the_user() {
  local generation swellrun
  grown_job && generation=$(newest_generation "$job") || return
  scancel --signal=USR1 "$job" && within 20 newer_generation "$job" "$generation" && within 30 grown "$job" 8 && goes_on "$job" || return
  generation=$(newest_generation "$job") swellrun=$(cat "$work/$job/swellrun.pid")
  kill -USR1 "$swellrun" && within 20 newer_generation "$job" "$generation" && within 30 grown "$job" 8 && goes_on "$job" || return
  touch "$work/$job/finish" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]] && nothing_left "$job"
}
newer_generation() { (($(newest_generation "$1") > $2)); }
check 'the restart signal from the user takes a checkpoint, and ends no training' restart_signal_of_the_user
# As where slurmstepd is held up between two processes.
signal_reaches_programs_first() {
  local generation programs shims
  grown_job && generation=$(newest_generation "$job") || return
  mapfile -t programs < <(cut -d' ' -f1 "$work/$job/start.$generation."[01])
  mapfile -t shims < <(ps -o ppid= -p "${programs[*]}" | tr -d ' ')
  [[ ${#shims[@]} == 2 && $(ps -o comm= -p "${shims[0]}") == swell-worker ]] || return
  kill -USR1 "${programs[@]}" && sleep 0.1 && kill -USR1 "${shims[@]}" && within 20 newer_generation "$job" "$generation" && within 30 grown "$job" 8 &&
    touch "$work/$job/finish" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]] && nothing_left "$job"
}
check 'also where it reaches programs before their shims' signal_reaches_programs_first

parent_times_out() {
  # Slurm counts in minutes: the limit is brought close once the job has grown.
  grown_job --time=10 && scontrol update job="$job" timelimit=1 || return
  within 100 ended "$job" && [[ $(sacct -n -X -j "$job" -o state%20) =~ TIMEOUT ]] && nothing_left "$job"
}
check 'the parent reaches its time limit' parent_times_out

parent_requeued() {
  grown_job --requeue || return
  local old
  old=$(companions "$job")
  scontrol requeue "$job" && within 20 none_runs "$old" && settled || return
  within 200 grown "$job" 8 && settled
}
none_runs() { # COMPANIONS
  local one
  for one in $1; do [[ -z $(squeue --all -h -t R,S -j "$one" -o %i 2> /dev/null) ]] || return 1; done
}
check 'the parent is requeued: old companions go, the new run grows anew' parent_requeued

companion_cancelled() {
  grown_job || return
  local victim from
  victim=$(companions "$job" | head -n 1)
  from=$(cat "$work/$job/step")
  scancel "$victim" && within 30 further_than "$job" "$from" && in_state "$job" RUNNING || return
  within 40 grown "$job" 8 && settled && goes_on "$job"
}
check 'a companion is cancelled by its owner: the training goes on, and grows again' companion_cancelled

all_companions_cancelled() {
  grown_job || return
  companions "$job" | xargs scancel && within 30 in_state "$job" RUNNING && within 40 grown "$job" 8 && settled
}
check 'all companions are cancelled at once' all_companions_cancelled

cancelled_at_the_end() {
  submit --hold --elastic=max=8 --gres=gpu:2 && mkdir "$work/$job" && touch "$work/$job/last" && scontrol release "$job" || return
  within 30 grown "$job" 8 && touch "$work/$job/finish" && within 20 workers_run "$job" 6 || return
  companions "$job" | xargs scancel && within 30 ended "$job" || return
  cat "$work/$job.out"
  [[ $(cat "$work/$job/status") == 0 ]] && nothing_left "$job"
}
check 'companions are cancelled as the training ends: the job ends well' cancelled_at_the_end

ignores_the_signal() {
  # Workers that do not leave are killed, and resume from their last checkpoint.
  IGNORE_SIGNAL=1 submit --elastic=max=8,grace=4 --gres=gpu:2 && within 40 grown "$job" 8 || return
  rigid --gres=gpu:2 -N 3 && within 30 in_state "$rigid_job" RUNNING && within 30 grown "$job" 2 && settled
}
check 'workers that ignore the restart signal are killed after the grace' ignores_the_signal

no_agent_no_growth() {
  job=$(sbatch --parsable --output="$work/%j.out" --elastic --gres=gpu:2 --wrap 'sleep 300') || return
  within 20 in_state "$job" RUNNING && within 10 word_is "$job" grants 0 || return
  sleep 3 # several rounds of the controller
  word_is "$job" grants 0 && swell jobs "$job" | grep -q ALLOCATED
}
check 'a job whose program is not under swellrun is left alone' no_agent_no_growth
is_told() {
  job=$(sbatch --parsable --output="$work/%j.out" --elastic --gres=gpu:2 --wrap 'sleep 300') && within 20 in_state "$job" RUNNING || return
  within 100 grep 'submitted with --elastic, but its script has not started swellrun, so it is lent no GPUs: write "swellrun python train.py"' "$work/$job.out" &&
    sleep 3 && [[ $(grep -c 'has not started swellrun' "$work/$job.out") == 1 ]]
}
check 'a minute after its start its output says once that swellrun is missing' is_told

# Slurm preempts the elastic job itself, for one of a QOS above its own, and sends the signal that it asked for.
preempted_itself() {
  sacctmgr -iQ add qos high set Preempt=normal,expansion Priority=1000 && sacctmgr -iQ modify qos normal set PreemptMode=requeue GraceTime=60 &&
    sacctmgr -iQ modify user root set qos+=high && TRAINER_RUN='--before-end=10 --requeue' submit --elastic=max=8,grace=10 --gres=gpu:2 -w node1 --requeue --signal=USR1@10 &&
    within 30 grown "$job" 8 || return
  local from
  from=$(cat "$work/$job/step") && rigid --qos=high --gres=gpu:2 -w node1 && within 90 in_state "$rigid_job" RUNNING && within 20 in_state "$job" PENDING &&
    grep -x 'swellrun: Slurm sent the job USR1: the workers leave, and swellrun ends with 75' "$work/$job.out" && (($(step_of "$job") >= from)) && has_no_companions "$job" && settled || return
  # The next run goes on from there: a worker that began anew would count from 0.
  from=$(cat "$work/$job/checkpoint") && rm "$work/$job/step" && scancel "$rigid_job" && within 150 test -e "$work/$job/step" &&
    (($(cat "$work/$job/step") > from)) && within 60 grown "$job" 8 && goes_on "$job"
}
check 'the job itself is preempted: it leaves with a checkpoint, is requeued, and goes on from there' preempted_itself

finish_tests
