#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# As a researcher sees it: jobs grow over idle GPUs, and give them back to basic demand.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 4 --gpus-per-node 4

refuses() { # WORDS sbatch-arguments...: a submission fails with one line that has the words
  local words=$1 said
  shift
  if said=$(sbatch "$@" "$work/trainer_job.sh" 2>&1); then
    printf 'accepted: %s\n' "$*"
    return 1
  fi
  printf '%s\n' "$said"
  [[ $(grep -c -- "$words" <<< "$said") == 1 ]]
}
bad_options_are_named() {
  refuses 'unknown key "colour"; the keys are max' --elastic=colour=red --gres=gpu:2 &&
    refuses 'max=-3 is not valid' --elastic=max=-3 --gres=gpu:2 &&
    refuses 'max=1 is below the 2 GPUs' --elastic=max=1 --gres=gpu:2 &&
    refuses 'asks for no GPUs' --elastic &&
    refuses 'sizes=4/2 is not valid' --elastic=sizes=4/2 --gres=gpu:2 &&
    refuses 'does not contain the 2 GPUs' --elastic=sizes=4/8 --gres=gpu:2
}
check 'bad values of --elastic are refused in one line that names the key' bad_options_are_named

the_server_checks_too() {
  SWELL_ELASTIC=max=zz refuses 'max=zz is not valid' --gres=gpu:2 || return
  SWELL_ELASTIC=max=2x sbatch --parsable --gres=gpu:2 --hold "$work/trainer_job.sh" > id || return
  word_is "$(cat id)" elastic max=2x,consistency=relaxed,mode=restart,grace=30
}
check 'clients without the SPANK plugin are checked by the server' the_server_checks_too

directive() {
  { printf '#!/bin/bash\n#SBATCH --elastic=max=3x\n#SBATCH --gres=gpu:2\n'; echo 'sleep 60'; } > directive.sh
  job=$(sbatch --parsable directive.sh) && word_is "$job" elastic max=3x,consistency=relaxed,mode=restart,grace=30 &&
    salloc --elastic=max=3x --gres=gpu:2 true 2> said && srun --elastic=max=3x --gres=gpu:2 true
}
check '--elastic works as #SBATCH, with salloc and with srun' directive

grows() {
  submit --elastic=max=8 --gres=gpu:2 && within 30 grown "$job" 8 && settled || return
  # torchrun's environment: ranks 0..7 once each, rank 0 in the basic allocation, groups in themselves whole
  cat "$work/$job/start.$(newest_generation "$job")."* | sort -n -k2 | tee layout
  awk '{ if ($2 != NR - 1 || $3 != 8) exit 1
         if (seen[$6, $4]++ || $4 >= $5) exit 1
         size[$6]++; want[$6] = $5; n = split($8, gpus, ","); if (n != $5) exit 1 }
       END { if (NR != 8) exit 1; for (g in size) if (size[g] != want[g]) exit 1 }' layout || return
  [[ $(scontrol -o show job "$job" | grep -o 'companions=[^] ]*') =~ companions=[0-9]+:node[0-9]:[0-9]:[0-9] ]] &&
    touch "$work/$job/finish" && within 20 ended "$job" && within 10 has_no_companions "$job" &&
    [[ $(cat "$work/$job/status") == 0 ]]
}
check 'a job grows over idle GPUs and ends with its program' grows

a_pending_job_gets_the_gpus() {
  submit --elastic=max=16,grace=10 --gres=gpu:4 && within 30 grown "$job" 16 && settled || return
  local before
  before=$(step_of "$job")
  rigid --gres=gpu:4 -N 2 && within 15 in_state "$rigid_job" RUNNING && settled || return
  within 30 grown "$job" 8 && goes_on "$job" || return
  # Where Slurm preempts before the controller has taken them back, its TERM ends workers without a checkpoint.
  [[ $(word_of "$job" reclaims) -ge 2 ]] && within 30 further_than "$job" "$before" || return
  scancel "$rigid_job" && within 40 grown "$job" 16 && settled
}
check 'a pending job gets lent GPUs back, and its end lends them again' a_pending_job_gets_the_gpus

never_against_the_queue() {
  # 4 nodes of 4: a rigid job on one node, one that waits for all four nodes: the idle three may be lent
  # until it can start, and are back when it can.
  rigid --gres=gpu:4 -w node1 && within 10 in_state "$rigid_job" RUNNING || return
  local first=$rigid_job
  submit --elastic=max=12,grace=10 --gres=gpu:4 -w node2 && within 30 grown "$job" 12 || return
  rigid --gres=gpu:4 -N 3 --exclude=node2 || return
  sleep 3 # long enough for several rounds of the controller
  in_state "$rigid_job" PENDING && is_lent "$job" 8 || return
  scancel "$first" && within 30 in_state "$rigid_job" RUNNING && settled && within 20 is_lent "$job" 0 &&
    goes_on "$job"
}
check 'a blocked job costs nobody anything until it can start' never_against_the_queue

two_share() {
  submit --elastic --gres=gpu:2 && local one=$job && submit --elastic --gres=gpu:2 && local two=$job || return
  within 40 grown "$one" 8 && within 40 grown "$two" 8 && settled || return
  [[ $(lent "$one") == 6 && $(lent "$two") == 6 ]]
}
check 'two elastic jobs share what is idle' two_share

sizes_and_excluded_nodes() {
  submit --elastic=sizes=2/6/14,max=16 --gres=gpu:2 --exclude=node4 -w node1 && within 30 grown "$job" 6 && settled ||
    return
  [[ ! $(word_of "$job" companions) =~ node4 ]]
}
check 'only allowed sizes and nodes are used' sizes_and_excluded_nodes

steps() { submit --elastic=step=3,max=12 --gres=gpu:2 && within 30 grown "$job" 11 && settled; }
check 'with a step, its basic demand and whole steps more' steps

stays() { # its node's other GPUs, and 25 s later the rest
  rigid --gres=gpu:4 -N 3 && within 10 in_state "$rigid_job" RUNNING && submit --elastic=max=16,stay=25 --gres=gpu:2 &&
    within 30 grown "$job" 4 && settled || return
  local since=$SECONDS
  scancel "$rigid_job" && within 10 says_that_it_stays && within 40 grown "$job" 16 || return
  printf 'it was grown again after %d s\n' $((SECONDS - since))
  ((SECONDS - since >= 20)) && settled # it was lent the first a little before it was grown
}
says_that_it_stays() { swell why "$job" | grep -E 'it stays as it is for [0-9]+ s more \(stay=25\)'; }
check 'a job that was lent GPUs stays as it is for the time that it asked for' stays

an_array() {
  submit --elastic=max=4 --gres=gpu:2 --array=1-3 || return
  local ids
  within 20 three_run || return
  ids=$(squeue -h -t R -n trainer_job.sh -o %A)
  for each in $ids; do within 40 grown "$each" 4 || return; done
  settled
}
three_run() { [[ $(squeue -h -t R -n trainer_job.sh -o %A | wc -l) == 3 ]]; }
check 'every task of an array is elastic on its own' an_array

exit_codes() {
  local code
  FAIL_AT=5 submit --elastic=max=2 --gres=gpu:2 && within 30 ended "$job" && [[ $(cat "$work/$job/status") == 3 ]] || return
  submit --elastic=max=8 --gres=gpu:2 && within 30 grown "$job" 8 || return
  kill -KILL "$(cut -d' ' -f1 "$work/$job/start.$(newest_generation "$job").0")"
  within 30 ended "$job" || return
  code=$(cat "$work/$job/status")
  printf 'exit code after a worker of the basic allocation was killed: %s\n' "$code"
  [[ $code == 137 ]] && within 10 has_no_companions "$job"
}
check 'exit codes and signals of the program reach sbatch' exit_codes

kill_first() { kill -KILL "$(cut -d' ' -f1 "$work/$job/start.$(newest_generation "$job").0")"; }
recovers() {
  TRAINER_RUN=--recover=300 submit --elastic=max=8 --gres=gpu:2 && within 30 grown "$job" 8 || return
  local lent generation
  lent=$(companions "$job" | sort) generation=$(newest_generation "$job")
  kill_first && within 20 newer_than "$generation" && within 20 workers_run "$job" 8 && settled || return
  [[ $(companions "$job" | sort) == "$lent" ]] || { printf 'lent: %s, then %s\n' "$lent" "$(companions "$job")"; return 1; }
  kill_first && within 30 ended "$job" && [[ $(cat "$work/$job/status") == 137 ]] && within 10 has_no_companions "$job"
}
hangs() { # N: as many workers of the newest try hang
  local try
  try=$(find "$work/$job" -name 'hung.*' -printf '%f\n' | cut -d. -f2 | sort -n | tail -n 1)
  [[ $(find "$work/$job" -name "hung.$try.*" | wc -l) == "$1" ]]
}
hung_recovery() { # SECONDS: a job on 8 GPUs, 6 of them lent, that was started again and hangs; sets `lent` and `since`
  TRAINER_RUN=--recover=$1 submit --elastic=max=8,grace=10 --gres=gpu:2 && within 30 grown "$job" 8 && settled || return
  lent=$(companions "$job" | sort) && echo 8 > "$work/$job/hang" && since=$SECONDS && kill_first && within 20 hangs 8
}
newer_than() { (($(newest_generation "$job") > $1)); }
check 'a program that fails is started again on the GPUs that are lent, and keeps them no longer than it asked for' recovers

gives_up_a_hang() {
  local lent since
  hung_recovery 20 && sleep 5 && [[ $(companions "$job" | sort) == "$lent" ]] || return
  within 30 has_no_companions "$job" && printf 'they waited %d s for it\n' $((SECONDS - since)) || return
  ((SECONDS - since >= 19 && SECONDS - since < 40)) && within 20 workers_run "$job" 2 && goes_on "$job" && settled || return
  grep 'the program has not recovered within 20 s (not all its workers handle USR1): on with the job.s own GPUs' "$work/$job.out" &&
    within 20 is_lent "$job" 0 && touch "$work/$job/finish" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]]
}
check 'where a program that is started again hangs, lent GPUs wait the time that it asked for and no longer' gives_up_a_hang

taken_from_a_hang() {
  local lent since
  hung_recovery 3000 && rigid --gres=gpu:4 -N 3 && within 20 in_state "$rigid_job" RUNNING && settled || return
  printf 'they came after %d s\n' $((SECONDS - since))
  within 20 workers_run "$job" 4 && goes_on "$job" && ! grep 'has not recovered' "$work/$job.out"
}
check 'and others who need them before have them at once' taken_from_a_hang

hangs_grown() { # on 8 GPUs, while it is grown
  lends_nothing && submit --elastic=max=8,grow=20 --gres=gpu:2 && within 30 workers_run "$job" 2 && echo 8 > "$work/$job/hang"
  local ready=$?
  swell drain --undo && ((ready == 0)) && within 30 hangs 8 && within 40 has_no_companions "$job" || return
  grep 'the growth took longer than 20 s (grow=20)' "$work/$job.out" && within 20 workers_run "$job" 2 && goes_on "$job" && settled &&
    within 20 is_lent "$job" 0 && [[ $(word_of "$job" no_growth) == the_growth_took_longer_than_20_s* ]] &&
    touch "$work/$job/finish" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]]
}
check 'a growth after which the program hangs is undone when the time that it asked for is over' hangs_grown

finish_tests
