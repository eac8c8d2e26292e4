#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Limits on what is lent, on a real cluster: MaxLentByAccount and MaxLentByQOS of swell.conf, `swell max`, `pause` and `resume` of owners.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
after_check() { :; } # the jobs live over several behaviours
cluster_up --nodes 3 --gpus-per-node 4 --conf RebootProgram=/bin/true --conf AccountingStorageEnforce=associations,limits,qos,safe --swell-conf 'MaxLentByAccount=nobody_else:9,*:5'
conf=${SLURM_CONF%/*}/swell.conf

lent_in_all() { # GPUS: to both jobs
  local -a each
  mapfile -t each < <(lent "$first" && lent "$second")
  ((each[0] + each[1] == $1))
}
together() {
  submit --elastic=max=10,grace=10 --gres=gpu:2 && first=$job && within 60 is_lent "$first" 5 || return
  submit --elastic=max=10,grace=10 --gres=gpu:2 && second=$job && within 60 limit_is_said "$second" && within 60 lent_in_all 5
}
limit_is_said() { swell why "$1" | grep -E "account [a-z_0-9]+ may have 5 lent GPUs, and has 5"; }
check 'the jobs of an account are lent no more than its limit together, and swell why says so' together

given_to_the_other() {
  swell max "$first" 2 && within 60 is_lent "$first" 0 && within 90 is_lent "$second" 5 && goes_on "$first" && goes_on "$second"
}
check 'GPUs that one of them gives back go to the other' given_to_the_other

lowered() {
  sed -i '/^MaxLentByAccount=/d' "$conf" && printf 'MaxLentByQOS=*:1\n' >> "$conf" && "$cluster" restart-ctld && within 90 at_most_1 &&
    goes_on "$first" && goes_on "$second"
}
at_most_1() { lent_in_all 0 || lent_in_all 1; }
check 'GPUs beyond a lowered limit are reclaimed, and both jobs go on' lowered
clear_queue

limited_by() { # LINE of swell.conf, instead of such lines
  sed -i '/^MaxLentBy/d' "$conf" && printf '%s\n' "$1" >> "$conf" && "$cluster" restart-ctld
}
# The jobs have 4 of 12 GPUs; one of them is of the account or QOS that is named.
named() { # OPTION NAME LINE: the job with that option is lent 1 GPU, the other all that it may have
  limited_by "$3" && submit --elastic=max=6 --gres=gpu:2 "$1=$2" && first=$job && submit --elastic=max=6 --gres=gpu:2 && second=$job &&
    within 60 is_lent "$first" 1 && within 60 is_lent "$second" 4 && within 60 word_is "$first" state ACTIVE && within 60 named_in_why "$2" && is_lent "$first" 1
}
named_in_why() { swell why "$first" | grep -E "(account|QOS) $1 may have 1 lent GPUs, and has 1"; }
make_names() {
  sacctmgr -i add account chemistry cluster="$(scontrol show config | awk '$1 == "ClusterName" { print $3 }')" && sacctmgr -i add user root account=chemistry &&
    sacctmgr -i add qos urgent set Preempt=expansion && sacctmgr -i modify user root set qos+=urgent
} > /dev/null
check 'an account and a QOS are made' make_names
check 'an account that is named has its own limit, in any case of letters, and no other has it' named --account chemistry 'MaxLentByAccount=Chemistry:1'
clear_queue
check 'so has a QOS that is named' named --qos urgent 'MaxLentByQOS=normal:9,urgent:1'
clear_queue

# asked JOB FILTER SUBCOMMAND...: of its JSON, which names the job, FILTER is true.
asked() {
  "${@:3}" --json > asked.json && cat asked.json && jq -e --argjson job "$1" ".job == \$job and ($2)" asked.json
}
resumed() {
  limited_by '' && submit --elastic=max=4,grace=10 --gres=gpu:2 && first=$job && within 60 is_lent "$first" 2 &&
    asked "$first" '.text | test("^it has at most 2 GPUs")' swell max "$first" 2 && within 60 is_lent "$first" 0 &&
    asked "$first" '.text | test("^it is lent no more")' swell pause "$first" &&
    asked "$first" '.text | test("limit is that of --elastic")' swell max "$first" 0 || return
  # The controller has decided when another job is lent GPUs.
  submit --elastic=max=4 --gres=gpu:2 && second=$job && within 60 is_lent "$second" 2 && is_lent "$first" 0 &&
    swell jobs --json | jq -e --argjson job "$first" 'any(.jobs[]; .id == $job and .paused)' &&
    asked "$first" '.text | test("^it may be lent GPUs again")' swell resume "$first" && within 60 is_lent "$first" 2 && goes_on "$first"
}
check 'a job that is paused is lent nothing, and again once it is resumed; all of it in JSON, too' resumed
wrong_asks() {
  ! swell max "$first" 1 --json > said 2>&1 && grep 'at most 1 GPU: the job has 2 of its own' said && ! swell pause 99999 --json > said 2>&1 && grep 'there is no job 99999' said
}
check 'an impossible request is an error with its reason' wrong_asks

# says WORDS SUBCOMMAND...: it fails, with these words.
says() {
  ! "${@:2}" > said 2>&1 && cat said && grep -qF -- "$1" said
}
of_others() {
  local companion waiting
  submit --elastic=max=4 --gres=gpu:2 && first=$job && within 60 is_lent "$first" 2 && companion=$(companions "$first" | head -n 1) || return
  says "job $companion is a companion of job $first" swell why "$companion" || return
  waiting=$(sbatch --parsable --hold --elastic=max=4 --gres=gpu:2 --wrap true 2> /dev/null) && rigid --gres=gpu:1 || return
  within 20 says "job $waiting waits still" swell pause "$waiting" && within 20 says "job $rigid_job was submitted without --elastic" swell why "$rigid_job" || return
  asked "$first" '.text | test("^it has at most 4 GPUs all the same: that is the max of its --elastic")' swell max "$first" 99 &&
    swell history "$first" > said && grep 'max: at most 99 GPUs' said || { cat said; return 1; }
  touch "$work/$first/finish" && within 30 ended "$first" && within 20 says "job $first has ended (COMPLETED): swell history $first" swell resume "$first" &&
    within 20 says "job $companion was a companion of job $first: swell history $first" swell history "$companion"
}
check 'a request for a job that is not running and elastic is answered with what it is' of_others

# Limits that Slurm sets a user, which companions count for like his own jobs.
with_limit() { # LIMIT=VALUE JOBS [sbatch options]: of a job that is lent GPUs and others of its user so many are submitted, and all of them start
  local limit=$1 i next
  sacctmgr -i modify user where name=root set "$limit" > /dev/null && "$cluster" restart-ctld && within 30 idle_nodes || return
  submit --elastic=max=12,grace=10 --gres=gpu:2 --nodelist=node1 "${@:3}" && within 60 lent_some "$job" || { swell why "$job"; return 1; }
  for ((i = 0; i < $2; ++i)); do
    next=$(sbatch --parsable --output=/dev/null --gres=gpu:2 "${@:3}" --wrap 'sleep 36000') && within 60 in_state "${next%%;*}" RUNNING || { squeue -o '%i %j %T %r'; swell why "$job"; return 1; }
  done
  goes_on "$job" && scancel --user=root && within 30 queue_is_empty && sacctmgr -i modify user where name=root set "${limit%%=*}=$([[ $limit == Grp* ]] && printf 'gres/gpu=')-1" > /dev/null
}
lent_some() { (($(lent "$1") > 0)); }
idle_nodes() { [[ $(sinfo -h -t idle -o %D) == 3 ]]; }
clear_queue
limited_by ''
check 'lent GPUs do not use up MaxJobs: the next job of the user starts' with_limit MaxJobs=2 1
check 'lent GPUs do not use up GrpTRES' with_limit GrpTRES=gres/gpu=6 1
check 'lent GPUs do not use up the minutes of GrpTRESMins, which AccountingStorageEnforce=safe keeps for whole jobs' with_limit GrpTRESMins=gres/gpu=500 1 --time=60
check 'some of MaxSubmitJobs stay free' with_limit MaxSubmitJobs=4 1
# While nothing else changes in Slurm: the job has three companions, and a limit of four jobs is set.
set_later() {
  submit --elastic=max=12,grace=10 --gres=gpu:2 --nodelist=node1 && within 60 grown "$job" 12 || return
  sacctmgr -i modify user where name=root set MaxSubmitJobs=4 > /dev/null
  within 12 one_is_free && next=$(sbatch --parsable --output=/dev/null --hold --gres=gpu:2 --wrap true) && goes_on "$job"
  local status=$?
  scancel --user=root && within 30 queue_is_empty && sacctmgr -i modify user where name=root set MaxSubmitJobs=-1 > /dev/null && return $status
}
one_is_free() { (($(squeue -h -o %i | wc -l) <= 3)); }
check 'a limit that is set while a job is lent GPUs is kept within seconds' set_later

# There are 12 GPUs. A running job keeps to its --constraint where it is lent GPUs.
lent_on() { # JOB NODES...: it is lent GPUs on these nodes and on no others
  local nodes
  nodes=$(for each in $(companions "$1"); do squeue -h -j "$each" -o %N; done | sort | tr '\n' ' ')
  [[ ${nodes% } == "${*:2}" ]]
}
by_constraint() {
  local n
  for n in 1 2 3; do scontrol update nodename="node$n" availablefeatures="f$n,g" activefeatures="f$n,g" || return; done
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --constraint='[f1|f2]&g' && within 60 is_lent "$job" 2 && lent_on "$job" node1 && scancel "$job" && within 30 ended "$job" || return
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --constraint='(f1|f3)&g' && within 60 is_lent "$job" 6 && lent_on "$job" node1 node3 && scancel "$job" && within 30 ended "$job" || return
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --constraint='f1&g|f2' && within 30 not_understood && is_lent "$job" 0
}
not_understood() { swell why "$job" | grep 'it takes no more now: its constraint "f1&g|f2" is not understood by Swell: .*; it is lent nothing'; }
clear_queue
check 'a job is lent GPUs only where its constraint lets it run; one that is not understood lends nothing' by_constraint
clear_queue

shrunk_by_scontrol() {
  job=$(sbatch --parsable --hold --output="$work/%j.out" -N3 --gres=gpu:4 --elastic=min=4,grace=5 "$work/trainer_job.sh" 2> /dev/null) || return
  scontrol update job="$job" numnodes=1 && scontrol update job="$job" gres=gpu:1 && scontrol update job="$job" NumTasks=1 NumCPUs=1 && scontrol release "$job" &&
    within 60 word_is "$job" basic 1 && within 30 word_is "$job" wanted 8
}
check 'a job that makes itself smaller after its submission is owed eight times what it holds, no more' shrunk_by_scontrol
clear_queue

drained_node() {
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 && within 60 is_lent "$job" 10 && scontrol update nodename=node2 state=drain reason=repair || return
  within 20 lent_on "$job" node1 node3 && within 20 drain_is_said && in_state "$job" RUNNING && goes_on "$job" &&
    scontrol update nodename=node2 state=resume && within 60 is_lent "$job" 10
}
drain_is_said() { swell why "$job" | grep 'taken back last: its node is drained'; }
check 'GPUs lent on a drained node go back, and return with the node' drained_node

# asked_to_end WORDS...: scontrol is given them for node2. A rigid job keeps the node from what it is asked for, and undone_by fixes that.
asked_to_end() {
  scontrol "$@" && within 20 lent_on "$job" node1 node3 && within 20 drain_is_said && in_state "$rigid_job" RUNNING && goes_on "$job" || return
  scontrol ${undone_by:-update nodename=node2 state=resume} && within 60 lent_on "$job" node1 node2 node3 && within 20 is_lent "$job" 9
}
other_ways_to_end() {
  rigid --gres=gpu:1 -w node2 && within 30 in_state "$rigid_job" RUNNING && within 60 is_lent "$job" 9 || return
  undone_by='cancel_reboot node2' asked_to_end reboot node2 && asked_to_end update nodename=node2 state=fail reason=fan &&
    scancel "$rigid_job" && within 30 ended "$rigid_job"
}
check 'so it is on a node that is to be rebooted, or is failing' other_ways_to_end

# A srun that is stopped would keep companions in COMPLETING for more than a minute, after which Slurm drains their nodes.
suspended() {
  scontrol suspend "$job" && within 30 lent_ones_are_gone && rigid --gres=gpu:4 -w node2 && within 30 in_state "$rigid_job" RUNNING &&
    scancel "$rigid_job" && within 30 ended "$rigid_job" && [[ -z $(sinfo -h -t drain -o %N) ]] || { sinfo -N -o '%N %T %E'; return 1; }
  scontrol resume "$job" && within 90 is_lent "$job" 10 && goes_on "$job"
}
lent_ones_are_gone() { [[ -z $(squeue --all -h --states=RUNNING,COMPLETING -o %i) ]]; }
check 'others have what is lent to a suspended job after its grace, and it grows again once it is resumed' suspended
clear_queue

# A user's own job waits for no companion, whatever its name is like.
waits_for_no_companion() {
  submit --elastic=max=8,grace=5 --gres=gpu:2 -w node1 && within 60 grown "$job" 8 && rigid --job-name="swell-$job" --dependency=singleton &&
    within 30 in_state "$rigid_job" RUNNING && is_lent "$job" 6
}
check 'a job of the user with --dependency=singleton waits for no companion' waits_for_no_companion
clear_queue

# A site keeps texts of its own in AdminComment, such as statistics of the job.
others_write_admin_comment() {
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --begin=now+8 && within 20 in_state "$job" PENDING && sleep 2 && scontrol update job="$job" AdminComment='before its start' &&
    within 60 is_lent "$job" 10 && has_words "$job" 'before its start' || return
  scontrol update job="$job" AdminComment='JS1:abc' && for one in $(companions "$job"); do scontrol update job="$one" AdminComment='' && scontrol update job="$one" AdminComment=JS1 || return; done
  sleep 4 # several rounds of the controller
  is_lent "$job" 10 && has_words "$job" 'JS1:abc' && settled && (($(squeue --all -h --name="swell-$job-lent" | wc -l) == 3)) && [[ $(word_of "$job" generation) == 1 ]] || return
  scancel "$job" && within 30 ended "$job" && within 30 queue_is_empty
}
has_words() { scontrol -o show job "$1" | grep -F "AdminComment=$2 swell["; }
check "text of others in AdminComment leaves Swell's words, and stays" others_write_admin_comment

one_is_suspended() {
  local one
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 && within 60 is_lent "$job" 10 && one=$(companions "$job" | tail -n 1) && scontrol suspend "$one" &&
    within 20 ended "$one" && goes_on "$job" && within 60 is_lent "$job" 10
}
check 'a companion that is suspended alone is given back, and the training goes on' one_is_suspended
clear_queue

reserved_at_once() {
  # The controller may read its records in the second before.
  local begun='taken back last: (it must end before its job: )?reservation now (has begun|begins) on its node'
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 && within 60 is_lent "$job" 10 || return
  scontrol create reservation reservationname=now starttime=now duration=60 nodes=node2 flags=maint,ignore_jobs users=root && within 30 lent_on "$job" node1 node3 &&
    goes_on "$job" && swell why "$job" | grep -E "$begun" || return
  scontrol delete reservation=now && within 60 is_lent "$job" 10
}
check 'GPUs lent on a node go back when a reservation begins there at once' reserved_at_once
scontrol delete reservation=now > /dev/null 2>&1
clear_queue

refusals() { grep -c '"grant-refused"' "$events"; }
shorter_than_the_job() {
  local before
  before=$(refusals)
  scontrol create reservation reservationname=repair starttime=now+20minutes duration=60 nodes=node3 flags=maint,ignore_jobs users=root && scontrol update partitionname=train MaxTime=60 || return
  submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --time=50 && within 60 is_lent "$job" 10 && within 20 reservation_is_said &&
    [[ $(squeue -h --name="swell-$job-lent" -w node3 -o %l) =~ ^1[789]:00$ && $(squeue -h --name="swell-$job-lent" -w node2 -o %l) =~ ^(49|50):00$ ]] || return
  scancel "$job" && within 30 ended "$job" && swell drain --no-wait && submit --elastic=max=12,grace=5 --gres=gpu:2 -w node1 --time=50 && within 20 in_state "$job" RUNNING || return
  scontrol update partitionname=train MaxTime=10 && swell drain --undo && within 60 is_lent "$job" 10 && [[ $(squeue -h --name="swell-$job-lent" -w node2 -o %l) =~ ^(9|10):00$ ]] && [[ $(refusals) == "$before" ]]
}
reservation_is_said() { swell why "$job" | grep 'on node3 goes back .*: reservation repair begins on its node'; }
check 'a companion ends before a reservation of its node and within MaxTime, and swell why names the reservation' shorter_than_the_job
clear_queue
scontrol delete reservation=repair > /dev/null 2>&1 # no job without a time limit may start on its node before

# Policies do not see where such a job may start: Slurm preempts companions for it, and starts it in its next round of backfill, seconds later.
in_flexible_reservation() {
  local each
  scontrol create reservation reservationname=flex starttime=now duration=60 nodes=node2 flags=flex,ignore_jobs users=root &&
    scontrol update partitionname=train MaxTime=UNLIMITED && lends_nothing || return
  for each in 1 2 3; do submit --elastic=max=12,grace=5 --gres=gpu:1 -w node1 && within 20 in_state "$job" RUNNING || return; done
  swell drain --undo && within 60 nothing_idle && rigid --reservation=flex -N 2 --gres=gpu:4 && within 20 in_state "$rigid_job" RUNNING && goes_on "$job" ||
    { squeue --all -o '%i %j %T %N %b %r' && grep -c '"companion-preempted"' "$events"; return 1; }
}
nothing_idle() { ! sinfo -h -p train -t idle,mix -o %T | grep -v reserved; }
check 'a job in a reservation with FLEX starts outside of it, too, where GPUs are lent' in_flexible_reservation
clear_queue
scontrol delete reservation=flex > /dev/null 2>&1

finish_tests
