#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The shadow of select/cons_tres: jobs of several nodes stand close together, companions near their parents,
# and slurmctld does with it all that it does without.
#   SELECT_JOBS=10000   how many jobs of an array pass through (1500)
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name select_cons_tres.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/select_cons_tres.so ]] || skip 'no select_cons_tres.so of Slurm was found'
shadow=$SWELL_STAGE/lib/swell/select
cluster_up --nodes 12 --gpus-per-node 2 --no-accounting --conf "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock" \
  --conf "PartitionName=low Nodes=ALL PriorityTier=2 PreemptMode=CANCEL" \
  --conf SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,default_queue_depth=300 --conf MaxJobCount=20000 --conf MaxArraySize=20001
ctld_log=$SWELL_CLUSTER_DIR/log/slurmctld.log
# Nodes publish what they are made of when slurmd starts, and in newer Slurm at each reconfiguration: from now on
# what this test writes stays.
sed -i '/spank_swell/s/$/ topology=off/' "${SLURM_CONF%/*}/plugstack.conf" || exit 1

# Three racks; neighbours by name never share one.
rack_of() { printf 'rack%s' $(($1 % 3)); }
publish() {
  local i
  for ((i = 1; i <= 12; i++)); do scontrol update NodeName="node$i" Extra="{\"swell\":{\"v\":1,\"leaf\":\"$(rack_of "$i")\"}}" || return; done
}
racks_known() { [[ $(grep -o 'swell: select: .*' "$ctld_log" | grep -v 'Extra of\|registered' | tail -n 1) =~ '12 nodes under 3 switches' ]]; }
node_numbers() { scontrol show hostnames "$(squeue --all -h -j "$1" -o %N)" | sed 's/^node//'; }
racks_of() { # JOB: how many racks it stands in
  local node
  for node in $(node_numbers "$1"); do rack_of "$node" && printf '\n'; done | sort -u | wc -l
}
holds() { # [sbatch options]: a job that holds nodes and runs; sets `rigid_job`
  rigid "$@" && within 15 in_state "$rigid_job" RUNNING
}
slurmctld_lives() { [[ $("$cluster" pid slurmctld) == "$pid" ]] && scontrol ping | grep -q UP; }
pid=$("$cluster" pid slurmctld)

all_symbols() {
  local missing
  missing=$(comm -23 <(nm -D "$stock/select_cons_tres.so" | sed -n 's/.* [TRDB] \(select_p_.*\|plugin_.*\|init\|fini\)$/\1/p' | sort) \
    <(nm -D "$shadow/select_cons_tres.so" | sed -n 's/.* [TRDB] //p' | sort))
  printf 'cons_tres has, the shadow has not: %s\n' "$missing"
  [[ -z $missing ]]
}
check 'every symbol of cons_tres that Slurm asks for is passed on' all_symbols

without_topology() {
  holds -N 4 --gres=gpu:2 && grep -q 'swell: select: nothing tells nodes apart' "$ctld_log"
}
check 'without any topology jobs run as under cons_tres' without_topology

one_rack() {
  publish && within 25 racks_known || return
  holds -N 4 --gres=gpu:2 && [[ $(racks_of "$rigid_job") == 1 ]] && holds -N 2 --gres=gpu:1 && [[ $(racks_of "$rigid_job") == 1 ]] &&
    holds -n 6 --gpus-per-task=1 && [[ $(racks_of "$rigid_job") == 1 ]]
}
check 'jobs of several nodes stand in one rack' one_rack

others_hear_nothing() {
  local one loaded=0
  for one in squeue sinfo 'scontrol show nodes' 'srun -N 1 true'; do
    # shellcheck disable=SC2086 # words
    LD_DEBUG=files LD_DEBUG_OUTPUT=$work/loads $one > "$work/said" 2>&1 || { cat "$work/said"; return 1; }
    ! grep -i 'swell: ' "$work/said" || return
    grep -qs "$shadow/select_cons_tres.so" "$work"/loads.* && loaded=$((loaded + 1))
    rm -f "$work"/loads.*
  done
  printf '%s of 4 clients load it\n' "$loaded"
  ! grep 'swell: select' "$SWELL_CLUSTER_DIR"/log/slurmd*.log && grep -q 'swell: select' "$ctld_log" || return
  # 24.11 loads it where records of nodes are read, of which each has a part that is the plugin's; 26.05 in slurmctld alone.
  case $(scontrol -V) in
    *' 22.05.'*) ((loaded == 4)) ;;
    *' 24.11.'*) ((loaded == 2)) ;;
    *) ((loaded == 0)) ;;
  esac
}
check 'programs other than slurmctld that load it hear nothing of it' others_hear_nothing

across() {
  # one node of each rack stays free
  holds -w node1,node2,node3,node4,node5,node6,node7,node8,node9 --gres=gpu:2 || return
  rigid -N 3 --gres=gpu:2 && within 5 in_state "$rigid_job" RUNNING && [[ $(racks_of "$rigid_job") == 3 ]]
}
check 'a job that fits only across racks starts at once' across

what_users_name() {
  holds -N 3 -w node1,node2 --gres=gpu:2 && node_numbers "$rigid_job" | grep -qx 1 && node_numbers "$rigid_job" | grep -qx 2 || return
  holds -N 3 --exclude=node3,node6,node9,node12 --gres=gpu:2 && [[ $(racks_of "$rigid_job") == 1 ]] || return
  scancel --user=root && within 20 queue_is_empty && holds --contiguous -N 4 --gres=gpu:2 || return
  [[ $(node_numbers "$rigid_job" | awk 'NR > 1 && $1 != last + 1 { bad = 1 } { last = $1 } END { print bad + 0 }') == 0 ]]
}
check 'nodes that a job names, excludes or wants side by side' what_users_name

gpus_once() {
  local i
  for ((i = 0; i < 12; i++)); do rigid -N 2 --gres=gpu:1 || return; done
  within 20 test_running 12 || return
  scontrol -o -d show job | awk '{ if (/JobState=RUNNING/) print }' | grep -o 'Nodes=[^ ]* CPU_IDs=[^ ]* Mem=[^ ]* GRES=gpu:h100:1(IDX:[0-9]*)' | while read -r nodes _ _ gres; do
    for node in $(scontrol show hostnames "${nodes#Nodes=}"); do printf '%s %s\n' "$node" "$gres"; done
  done | sort > pairs
  [[ $(wc -l < pairs) == 24 && -z $(uniq -d pairs) ]]
}
test_running() { [[ $(squeue -h -t R -o %i | wc -l) == "$1" ]]; }
check 'every GPU is in one allocation when jobs are placed twice over' gpus_once

preempted_only_when_needed() {
  # A job of the lower tier on a node of each of two racks: a job for which there is room elsewhere takes nobody's place.
  holds -p low -w node1,node2 -N 2 --gres=gpu:2 && local low=$rigid_job || return
  holds -N 4 --gres=gpu:2 && holds -N 4 --gres=gpu:2 && in_state "$low" RUNNING
}
check 'nothing is preempted for the sake of nearness' preempted_only_when_needed

companion_near() {
  # of the parent's rack (node2, 5, 8, 11) only node11 is free, elsewhere whole racks
  holds -w node5,node8 --gres=gpu:2 && submit --elastic=max=4 --gres=gpu:2 -w node2 && within 40 grown "$job" 4 || return
  [[ $(word_of "$job" companions) =~ :node11: ]] && settled
}
check 'a companion goes to the node nearest its parent' companion_near

garbage() {
  local i junk=('no json at all' '{"swell":42}' '{"swell":{"v":99}}' '{"swell":{"v":1,"leaf":[]}}' '{"swell":' '[]'
    '{"swell":{"v":1,"leaf":"rack1","g":[[9,9,9]]}}' "$(printf '%3000s' '' | tr ' ' x)")
  for ((i = 1; i <= 8; i++)); do scontrol update NodeName="node$i" Extra="${junk[i - 1]}" || return; done
  for ((i = 9; i <= 12; i++)); do scontrol update NodeName="node$i" Extra= || return; done
  within 25 grep -q 'swell: select: Extra of node' "$ctld_log" && within 25 nothing_known && holds -N 4 --gres=gpu:2 && slurmctld_lives || return
  scancel "$rigid_job" && publish && within 25 racks_known && holds -N 3 --gres=gpu:2 && [[ $(racks_of "$rigid_job") == 1 ]]
}
nothing_known() { ! racks_known; }
check 'garbage in Extra is named in the log, and does no harm' garbage

reconfigured() {
  local i
  holds -N 2 --gres=gpu:2 && local kept=$rigid_job || return
  for ((i = 0; i < 5; i++)); do scontrol reconfigure || return; done
  # From 23.11 on the plugin starts anew, and knows of racks again after a moment.
  in_state "$kept" RUNNING && within 25 stands_in_one_rack && slurmctld_lives
}
stands_in_one_rack() {
  holds -N 3 --gres=gpu:2 || return
  [[ $(racks_of "$rigid_job") == 1 ]] || { scancel "$rigid_job" && return 1; }
}
check 'reconfigured with jobs running' reconfigured

restarted() {
  holds -N 2 --gres=gpu:2 && local kept=$rigid_job || return
  # slurmctld saves its state up to 5 s after a change; what it had not saved when it is killed is lost.
  touch "$work/before" && scontrol update "JobId=$kept" Comment=kept && within 15 saved || return
  "$cluster" kill-ctld -9 && "$cluster" restart-ctld || return
  pid=$("$cluster" pid slurmctld)
  within 20 in_state "$kept" RUNNING && within 20 racks_known || return
  within 20 all_up && holds -N 3 --gres=gpu:2 && [[ $(racks_of "$rigid_job") == 1 ]]
}
saved() { [[ $SWELL_CLUSTER_DIR/state/job_state -nt $work/before ]]; }
all_up() { [[ $(sinfo -h -N -p train -t idle,mix,alloc -o %N | wc -l) == 12 ]]; }
check 'slurmctld killed and started again' restarted

# Slurm starts jobs on a node in partial use before it has registered, when another job there ends just after the start of slurmctld.
gpus_after_a_start() {
  local i files
  for ((i = 0; i < 12; i++)); do
    # They end one after the other, for 3 s: Slurm asks nodes for their registration 5 s after its start.
    sbatch --quiet -N 1 --gres=gpu:1 --output=/dev/null --wrap "until [ -e $work/freed ]; do sleep 0.1; done; sleep $((i / 4)).$((i % 4 * 25))" &&
      sbatch --quiet -N 1 --gres=gpu:1 --output=/dev/null --wrap "until [ -e $work/freed ]; do sleep 0.1; done; sleep 10" || return
  done
  within 15 test_running 24 || return
  for ((i = 0; i < 11; i++)); do says_its_gpus || return; done
  "$cluster" restart-ctld && pid=$("$cluster" pid slurmctld) && touch "$work/freed" && says_its_gpus && within 60 queue_is_empty || return
  files=("$work"/gpus.*)
  cat "${files[@]}"
  ((${#files[@]} == 12)) && [[ $(cat "${files[@]}" | grep -c 'GPUs [01]$') == 12 ]] && grep -q 'swell: select: all nodes with GPUs have registered' "$ctld_log"
}
# shellcheck disable=SC2016 # for the job
says_its_gpus() { sbatch --quiet -N 1 --gres=gpu:1 --output="$work/gpus.%j" --wrap 'echo "GPUs $SLURM_JOB_GPUS"'; }
check 'jobs that start just after slurmctld get their GPUs' gpus_after_a_start

many() {
  local n=${SELECT_JOBS:-1500} began=$SECONDS before after
  before=$(awk '/VmRSS/ { print $2 }' "/proc/$pid/status")
  sbatch --quiet --array="1-$n" -N 2 --gres=gpu:1 --output=/dev/null --error=/dev/null "$work/nothing.sh" || return
  until queue_is_empty; do
    ((SECONDS - began < 120 + n / 4)) || { squeue -h | wc -l; return 1; }
    sleep 0.5
  done
  after=$(awk '/VmRSS/ { print $2 }' "/proc/$pid/status")
  printf '%s jobs in %s s; slurmctld: %s KiB before, %s after\n' "$n" $((SECONDS - began)) "$before" "$after" >&3
  slurmctld_lives
}
printf '#!/bin/sh\n' > "$work/nothing.sh"
exec 3>&1
check 'an array of jobs of two nodes passes through' many

removed() {
  holds -N 3 --gres=gpu:2 && local kept=$rigid_job && rigid -N 12 --gres=gpu:2 && local waiting=$rigid_job || return
  sed -i "s|^PluginDir=.*|PluginDir=$SWELL_STAGE/plugins:$stock|" "$SLURM_CONF" && "$cluster" restart-ctld || return
  pid=$("$cluster" pid slurmctld)
  within 20 in_state "$kept" RUNNING && in_state "$waiting" PENDING && ! grep -q "$shadow" "/proc/$pid/maps" || return
  scancel "$kept" && within 30 in_state "$waiting" RUNNING && slurmctld_lives
}
check 'taken out again, running and waiting jobs go on under cons_tres alone' removed

finish_tests
