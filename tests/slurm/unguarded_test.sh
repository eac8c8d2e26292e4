#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The place of companions without job_submit/swell to guard it: by the set-up that swell doctor asks for, a user's job that
# gets there gains nothing. It is held by the limits of the user's own QOS, charged, and ended for anybody's basic demand.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run as root'
cluster_up --nodes 2 --gpus-per-node 4 --users games,backup --grace 2 --conf JobSubmitPlugins= \
  --conf PriorityType=priority/multifactor --conf PriorityWeightQOS=1000 --conf PriorityCalcPeriod=1
grep -qi '^JobSubmitPlugins' "$SLURM_CONF" && { echo 'Bail out! job_submit/swell is loaded'; exit 1; }

user_job() { as games sbatch --parsable --output=/dev/null --wrap 'sleep 36000' "$@"; }
waits_for() { [[ $(squeue -h -j "$1" -o '%T %r') == "PENDING $2" ]]; } # JOB REASON
runs() { in_state "$1" RUNNING; }
doctor_says() { swell doctor > doctor.txt 2>&1; grep -q "^$1 *$2: " doctor.txt; } # LEVEL CHECK
limit() { sacctmgr -i modify "$@" > /dev/null; }
fix_of() { grep -A3 "^warn *$1: " doctor.txt | sed -n 's/^ *fix: //p' | head -n 1; } # CHECK

doctor_closes_it() {
  limit qos normal set MaxTRESPerUser=gres/gpu=3 && limit user where name=games set GrpJobs=5 &&
    limit qos expansion set UsageFactor=0 Priority=200 Flags+=OverPartQOS GrpJobs=50 || return
  within 10 doctor_says warn without-plugin || { cat doctor.txt; return 1; }
  grep 'without-plugin: ' doctor.txt
  local fix
  fix=$(fix_of without-plugin)
  printf '%s\n' "$fix"
  eval "$fix" && within 10 doctor_says ok without-plugin || { cat doctor.txt; return 1; }
}
check 'doctor names what a job would gain there, and its command takes that away' doctor_closes_it

held_by_limits() {
  local own more too_many
  own=$(user_job --gres=gpu:3) && more=$(user_job --gres=gpu:1) && within 10 runs "$own" && within 10 waits_for "$more" QOSMaxGRESPerUser ||
    return
  too_many=$(user_job --qos=expansion --gres=gpu:4) && within 10 waits_for "$too_many" QOSMaxGRESPerUser
}
check 'a job of a user there is held by the limit of his own QOS' held_by_limits

of_association() {
  limit qos normal set MaxTRESPerUser=gres/gpu=-1 && limit qos expansion set MaxTRESPerUser=gres/gpu=-1 &&
    limit user where name=games set GrpTRES=gres/gpu=3 && within 10 doctor_says ok without-plugin || { cat doctor.txt; return 1; }
  local own there
  own=$(user_job --gres=gpu:2) && within 10 runs "$own" && there=$(user_job --qos=expansion --gres=gpu:2) && within 10 waits_for "$there" AssocGrpGRES
  local status=$?
  limit user where name=games set GrpTRES=gres/gpu=-1 && return $status
}
check 'a limit of his association counts his jobs there together with his others' of_association

of_partition() {
  sacctmgr -i add qos train_limits set MaxTRESPerUser=gres/gpu=3 > /dev/null && within 10 scontrol update PartitionName=train QOS=train_limits &&
    limit qos normal set MaxTRESPerUser=gres/gpu=3 && within 10 doctor_says ok without-plugin || { cat doctor.txt; return 1; }
  local own there
  own=$(user_job --gres=gpu:2) && within 10 runs "$own" && there=$(user_job --qos=expansion --gres=gpu:2) && within 10 waits_for "$there" QOSMaxGRESPerUser
  local status=$?
  scontrol update PartitionName=train QOS= && limit qos normal set MaxTRESPerUser=gres/gpu=-1 && return $status
}
check 'and so does a limit of the QOS of the partition' of_partition

usage() { scontrol show assoc_mgr users=games flags=assoc | sed -n 's/.*UsageRaw\/Norm\/Efctv=\([0-9]*\)\..*/\1/p' | sort -n | tail -n 1; }
charged() {
  local before there
  before=$(usage) && there=$(as games sbatch --parsable --output=/dev/null --qos=expansion --gres=gpu:1 --wrap 'sleep 3') &&
    within 20 ended "$there" || return
  within 10 at_least_charged $((${before:-0} + 3)) || { echo "before: $before, now: $(usage)"; return 1; }
}
at_least_charged() { (($(usage) >= $1)); }
check 'his use there is charged' charged

ended_for_basic_demand() {
  local there other
  there=$(user_job --qos=expansion --gres=gpu:4 -N2) && within 10 runs "$there" || return
  other=$(as backup sbatch --parsable --output=/dev/null --gres=gpu:4 --wrap 'sleep 36000') && within 30 runs "$other" && ended "$there"
}
check "anybody's basic demand ends it" ended_for_basic_demand

closed_before_removal() {
  local there own
  there=$(user_job --qos=expansion --gres=gpu:1) && own=$(user_job --hold --gres=gpu:1) && within 10 runs "$there" &&
    limit qos expansion set GrpSubmitJobs=0 || return
  within 10 refused user_job --qos=expansion --gres=gpu:1 && refused as games scontrol update job="$own" qos=expansion && runs "$there"
  local status=$?
  limit qos expansion set GrpSubmitJobs=-1 && return $status
}
refused() { # COMMAND...: by a limit; what was accepted is taken back
  local said
  said=$("$@" 2>&1) && { scancel "$said" 2> /dev/null; return 1; }
  [[ $said == *'accounting/QOS policy'* ]]
}
check 'GrpSubmitJobs=0, as before the plugin is removed, closes it to all; what runs there goes on' closed_before_removal

cluster_down
cluster_up --nodes 2 --gpus-per-node 4 --no-accounting --grace 2 --conf JobSubmitPlugins= \
  --conf 'PartitionName=train Nodes=ALL Default=YES PriorityTier=10 MaxTime=60 MaxNodes=1'

partition_closes() {
  within 10 doctor_says warn without-plugin || { cat doctor.txt; return 1; }
  grep 'without-plugin: ' doctor.txt
  local fix there
  fix=$(fix_of without-plugin)
  printf '%s\n' "$fix"
  eval "$fix" && within 10 doctor_says ok without-plugin || { cat doctor.txt; return 1; }
  there=$(user_job -p expansion --time=61 --gres=gpu:1 2>&1) && within 10 waits_for "$there" PartitionTimeLimit || { echo "$there"; squeue --all; return 1; }
  there=$(user_job -p expansion -N2 --gres=gpu:1 2>&1) && within 10 waits_for "$there" PartitionNodeLimit || { echo "$there"; squeue --all; return 1; }
}
check 'without slurmdbd: the limits of users'"'"' partitions hold in that of companions' partition_closes

partition_ends() {
  local there other
  there=$(user_job -p expansion --gres=gpu:4) && within 10 runs "$there" || return
  other=$(as backup sbatch --parsable --output=/dev/null --gres=gpu:4 -w "$(squeue --all -h -j "$there" -o %N)" --wrap 'sleep 36000') &&
    within 30 runs "$other" && ended "$there"
}
check "and anybody's basic demand ends what runs there" partition_ends

partition_inactive() {
  local there said
  there=$(user_job -p expansion --gres=gpu:1) && within 10 runs "$there" && scontrol update PartitionName=expansion State=DRAIN || return
  said=$(user_job -p expansion --gres=gpu:1 2>&1) && { echo "accepted: $said"; return 1; }
  runs "$there"
}
check 'State=DRAIN, as before the plugin is removed, closes it to all; what runs there goes on' partition_inactive

finish_tests
