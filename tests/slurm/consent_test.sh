#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Jobs that consent to start and to run with fewer GPUs than they ask for (--elastic=min=N).
programs=(planned) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
after_check() { :; } # jobs live over several behaviours
profile_wait=600 cluster_up --nodes 2 --gpus-per-node 4
# Until then jobs are submitted for all that they ask for, and told so: slurmctld of 24.11 takes the first before it.
ready() { "$cluster" logs slurmctld | grep 'the controller is ready' > /dev/null; }
within 20 ready || exit 1

shows() { # JOB WORDS: slurmctld's record has them
  scontrol -o show job "$1" | tee shown | grep -qE -- "$2" || { cat shown; return 1; }
}
held() { # sbatch options: sets `job`, and leaves what sbatch says in `said`
  job=$(sbatch --parsable --hold "$@" "$work/trainer_job.sh" 2> said) && job=${job%%;*} || { cat said; return 1; }
}
in_proportion() {
  held --elastic=min=2 --gres=gpu:4 --ntasks-per-node=4 --cpus-per-task=2 --mem=400 &&
    grep 'submitted for 2 of its 4 GPUs' said && word_is "$job" basic 2 && word_is "$job" wanted 4 || return
  shows "$job" 'NumTasks=2 ' && shows "$job" 'gres.gpu:2' && shows "$job" 'MinMemoryNode=200M' && shows "$job" 'NumCPUs=4 ' || return
  held --elastic=min=4 --nodes=2 --gpus-per-node=4 && shows "$job" 'NumNodes=1(-1)? ' && shows "$job" 'gres.gpu:4' && word_is "$job" wanted 8 || return
  held --elastic=min=1 --gpus=4 && shows "$job" 'gres.gpu:1' && word_is "$job" basic 1 && scancel --user=root && within 20 queue_is_empty
}
check 'a job that consents is submitted for fewer GPUs, and for tasks, CPUs and memory in proportion' in_proportion

refused() { # WORDS sbatch options
  ! sbatch "${@:2}" "$work/trainer_job.sh" > said 2>&1 && cat said && grep -q -- "$1" said
}
what_cannot_be() {
  refused 'min=8 is above the 4 GPUs' --elastic=min=8 --gres=gpu:4 &&
    refused 'its 3 tasks cannot be divided by 2 of 4 GPUs' --elastic=min=2 --gres=gpu:4 --ntasks=3 &&
    refused 'multiple of the 4 GPUs of each, such as min=4' --elastic=min=3 --gres=gpu:4 --nodes=2
}
check 'requests that cannot be divided so are refused in one line' what_cannot_be

# node1 is taken, and half of node2.
starts_with_fewer() {
  rigid --nodelist=node1 --gres=gpu:4 && rigid --nodelist=node2 --gres=gpu:2 && within 30 in_state "$rigid_job" RUNNING &&
    submit --elastic=min=2 --gres=gpu:4 --ntasks-per-node=4 && within 30 in_state "$job" RUNNING && within 30 workers_run "$job" 2 || return
  swell jobs "$job" | tee shown | grep "^Job $job asked for 4 GPUs and consented to run with 2" || { cat shown; return 1; }
  swell why "$job" --json | jq -e '.wanted_gpus == 4'
}
check 'it starts where only the fewer are free, and swell says what it asked for' starts_with_fewer
is_lent_the_rest() { scancel "$rigid_job" && within 30 grown "$job" 4 && settled; }
check 'it is lent the rest when that is free' is_lent_the_rest
consenting=$job
# By fewest-first alone the job of one GPU would be served before that of two.
comes_first() {
  touch "$work/$consenting/finish" && within 30 ended "$consenting" && lends_nothing || return
  rigid --nodelist=node2 --gres=gpu:1 && local last=$rigid_job && submit --elastic=max=8 --gres=gpu:1 && local other=$job &&
    within 30 in_state "$other" RUNNING && swell drain --undo && within 30 lending || return
  submit --elastic=min=2,max=8 --gres=gpu:4 && within 30 in_state "$job" RUNNING && within 30 workers_run "$job" 2 &&
    within 30 workers_run "$other" 1 && scancel "$last" && within 30 is_lent "$job" 1 && is_lent "$other" 0 && settled ||
    { swell jobs; return 1; }
}
lending() { grep -q '"event":"drain-ended"' "$events"; }
check 'GPUs that it asked for come before GPUs that others never asked for' comes_first
clear_queue

# It starts on the two that are idle; three are lent to the other job.
takes_from_others() {
  rigid --nodelist=node2 --gres=gpu:2 && submit --elastic=max=4 --gres=gpu:1 --nodelist=node1 && local other=$job && within 30 is_lent "$other" 3 || return
  submit --elastic=min=2 --gres=gpu:4 && within 30 in_state "$job" RUNNING && within 60 is_lent "$job" 2 && within 30 is_lent "$other" 1 && settled &&
    grep "\"event\":\"reclaim\".*\"job\":$other.*wanted them and started with fewer" "$events" || { swell jobs; return 1; }
}
check 'others lose for it what they never asked for, and no more' takes_from_others
clear_queue

not_while_draining() {
  lends_nothing && held --elastic=min=2 --gres=gpu:4 && grep 'min=2 is not used' said && word_is "$job" basic 4 && swell drain --undo &&
    [[ -z $(word_of "$job" wanted) ]]
}
check 'while nothing is lent it asks for all, and its owner reads so' not_while_draining
clear_queue

cat > "$work/planned_job.sh" << 'EOJ'
#!/bin/bash
export OUT=$PWD/${SLURM_JOB_ID:?}
mkdir -p "$OUT"
unset SWELL_FIRST_WAIT
exec swellrun ./planned 8 8 1000 4
EOJ
starts_with_all() {
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,min=2,max=8 --gres=gpu:4 "$work/planned_job.sh") &&
    within 60 all_began && [[ $(awk '{ print $3 }' "$work/$job/began" | sort -u) == 4 ]] || { cat "$work/$job/began" "$work/$job.out"; swell jobs; return 1; }
}
all_began() { (($(wc -l < "$work/$job/began") >= 4)); }
check 'on an idle cluster a live one begins with all that it asked for, before it has a profile' starts_with_all
finish_tests
