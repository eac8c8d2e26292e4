#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell doctor and swell jobs on real clusters: a site is broken, the doctor names the fault, and what it
# prints after "fix:" makes the site whole.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 3 --gpus-per-node 4

doctor() { swell doctor > "$TMPDIR/doctor.txt" 2>&1; }
known_warning='^$' # what this Slurm cannot do without
is_healthy() { doctor && ! grep -vE "$known_warning" "$TMPDIR/doctor.txt" | grep -E '^(FAULT|warn)'; }
healthy() { within 15 is_healthy || { cat "$TMPDIR/doctor.txt"; return 1; }; }
finds() { # LEVEL CHECK: what the doctor says of one check
  doctor
  local rc=$?
  [[ $1 == FAULT && $rc -ne 1 || $1 == warn && $rc -ne 0 ]] && printf 'exit status %s\n' "$rc" && return 1
  grep -q "^$1 *$2: " "$TMPDIR/doctor.txt" && return 0
  cat "$TMPDIR/doctor.txt"
  return 1
}

# fix: does what the doctor says. systemctl is the private cluster's restart; an edit of slurm.conf is made.
fix() {
  local line
  while IFS= read -r line; do
    printf 'fix: %s\n' "$line"
    case $line in
      'systemctl restart slurmctld'*) "$cluster" restart-ctld ;;
      'in slurm.conf: take nodes out of PrivateData') sed -i '/^PrivateData=/s/nodes,//' "$SLURM_CONF" ;;
      'in slurm.conf: '*) line=${line#in slurm.conf: } && set_conf "${line%% *}" ;;
      'in slurm.conf, on the line '* | 'use ExpansionQOS'*) ;;
      *) eval "$line" ;;
    esac > "$TMPDIR/fix.log" 2>&1 < /dev/null || { cat "$TMPDIR/fix.log"; return 1; }
  done < <(sed -n 's/^ *fix: //p' "$TMPDIR/doctor.txt")
}
set_conf() { # KEY=VALUE
  sed -i "/^${1%%=*}=/d" "$SLURM_CONF" && sed -i "1i $1" "$SLURM_CONF"
}

check 'a healthy site has no fault and no warning' healthy

# breaks_and_fixes LEVEL CHECK COMMAND...: the command breaks the site; what is printed fixes it.
breaks_and_fixes() {
  local level=$1 name=$2
  shift 2
  eval "$*" > /dev/null 2>&1 || { printf 'could not break it: %s\n' "$*"; return 1; }
  within 10 finds "$level" "$name" || finds "$level" "$name" || return
  fix && healthy
}
check 'no QOS preempts the expansions' breaks_and_fixes FAULT preempts sacctmgr -i modify qos where name=normal set Preempt=
check 'the QOS of swell.conf is missing' breaks_and_fixes FAULT expansion-qos sacctmgr -i delete qos expansion
check 'the QOS gives no grace' breaks_and_fixes FAULT GraceTime sacctmgr -i modify qos where name=expansion set GraceTime=0
check 'the QOS is not ended when preempted' breaks_and_fixes FAULT expansion-qos \
  sacctmgr -i modify qos where name=expansion set PreemptMode=suspend
check 'the QOS preempts another' breaks_and_fixes FAULT preempts-nothing \
  'sacctmgr -i add qos low && sacctmgr -i modify qos where name=expansion set Preempt=low'
check 'a limit on the QOS' breaks_and_fixes warn limits \
  sacctmgr -i modify qos where name=expansion set GrpTRES=gres/gpu=4 MaxWall=60 MaxJobsPerUser=3
check 'a user may not use the QOS' breaks_and_fixes FAULT associations sacctmgr -i modify user where name=nobody set QOS-=expansion
check 'jobs may not be submitted from the nodes' breaks_and_fixes FAULT 'AllocNodes of train' \
  scontrol update PartitionName=train AllocNodes=elsewhere
check 'the partition does not take the QOS' breaks_and_fixes FAULT 'QOS of train' \
  scontrol update PartitionName=train AllowQos=normal
check 'InactiveLimit is set' breaks_and_fixes warn InactiveLimit 'set_conf InactiveLimit=600 && scontrol reconfigure'
check 'no signal on preemption' breaks_and_fixes warn 'preemption signal' \
  "set_conf SlurmctldParameters=idle_on_node_suspend && scontrol reconfigure"
check 'users may not see nodes' breaks_and_fixes warn PrivateData 'set_conf PrivateData=nodes,usage && scontrol reconfigure'
check 'another scheduler' breaks_and_fixes FAULT SchedulerType \
  "sed -i 's|^PluginDir=[^:]*/swell/shadow:|PluginDir=|' $SLURM_CONF && $cluster restart-ctld"
check 'a scheduler that refuses heterogeneous jobs' breaks_and_fixes warn SchedulerType \
  "set_conf SchedulerType=sched/swell && $cluster restart-ctld"
check 'the plugin of sbatch is required' breaks_and_fixes warn spank_swell.so "sed -i s/^optional/required/ ${SLURM_CONF%/*}/plugstack.conf"
# A setting that slurmctld would not start with is found before its restart. It runs on; the fix restarts it.
check 'a job_submit plugin is misspelt' breaks_and_fixes FAULT JobSubmitPlugins "set_conf JobSubmitPlugins=swel"
check 'PluginDir lacks Slurm'\''s own folder' breaks_and_fixes FAULT PluginDir "sed -i '/^PluginDir=/s|:[^:]*\$||' $SLURM_CONF"
check 'PluginDir has a folder that is not there' breaks_and_fixes FAULT PluginDir "sed -i 's|^PluginDir=|PluginDir=/no/such/folder:|' $SLURM_CONF"
check 'no job_submit plugin' breaks_and_fixes FAULT JobSubmitPlugins "sed -i /^JobSubmitPlugins/d $SLURM_CONF && $cluster restart-ctld"

a_bad_swell_conf() {
  local conf=${SLURM_CONF%/*}/swell.conf
  cp "$conf" "$TMPDIR/good.conf" && printf 'Colour=red\n' >> "$conf"
  finds FAULT swell.conf && grep -q 'unknown key "Colour"' "$TMPDIR/doctor.txt" &&
    grep -q "fix: .*EDITOR $conf" "$TMPDIR/doctor.txt" && cp "$TMPDIR/good.conf" "$conf" && healthy
}
check 'a bad swell.conf is named with its line' a_bad_swell_conf

the_qos_is_misspelt() {
  local conf=${SLURM_CONF%/*}/swell.conf
  cp "$conf" "$TMPDIR/good.conf" && sed -i 's/^ExpansionQOS=.*/ExpansionQOS=expnsion/' "$conf" || return
  finds FAULT expansion-qos && grep -q "fix: in $conf: ExpansionQOS=expansion " "$TMPDIR/doctor.txt" || return
  cp "$TMPDIR/good.conf" "$conf" && healthy
}
check 'a QOS misspelt in swell.conf is fixed there' the_qos_is_misspelt

a_folder_in_place_of_the_state() {
  local state=$SWELL_CLUSTER_DIR/state/swell_state
  "$cluster" kill-ctld && rm -f "$state" && mkdir "$state" && "$cluster" restart-ctld || return
  within 20 finds FAULT swell_state && grep -q 'swell_state: Is a directory; .*it will not know which GPUs it has lent' "$TMPDIR/doctor.txt" || return
  grep -q "fix: ls -ld ${state%/*}" "$TMPDIR/doctor.txt" && rmdir "$state" && "$cluster" restart-ctld && healthy && [[ -f $state ]]
}
check 'a folder in place of the state file is named' a_folder_in_place_of_the_state

only_fault() { [[ $(grep -c '^FAULT' "$TMPDIR/doctor.txt") == 1 ]] || { cat "$TMPDIR/doctor.txt"; return 1; }; }
slurmctld_is_gone() {
  local began=$SECONDS
  "$cluster" kill-ctld -9 && began=$SECONDS && finds FAULT slurmctld && ((SECONDS - began <= 20)) && only_fault && grep -q '^ok *job_submit_swell.so' "$TMPDIR/doctor.txt" &&
    grep -q '^ok *munge' "$TMPDIR/doctor.txt" && "$cluster" restart-ctld && healthy
}
check 'without slurmctld the files are checked all the same' slurmctld_is_gone

# Just after its start slurmctld listens at neither port. Three tries, as it may take longer than the doctor waits here.
just_restarted() {
  local try
  for try in 1 2 3; do
    "$cluster" kill-ctld || return
    "$cluster" run slurmctld > "$TMPDIR/run.log" 2>&1 &
    doctor
    wait $!
    ! grep -E '^FAULT' "$TMPDIR/doctor.txt" && return
  done
  return 1
}
check 'a slurmctld that was just restarted is waited for' just_restarted

munge_is_gone() {
  "$cluster" kill munged || return
  finds FAULT munge && only_fault && grep -q '^ok *JobSubmitPlugins' "$TMPDIR/doctor.txt"
  local status=$?
  "$cluster" run munged && healthy && return $status
}
check 'without munge the fault is munge, and the files are checked all the same' munge_is_gone

before_the_restart() {
  cp "$SLURM_CONF" "$TMPDIR/good.conf"
  sed -i '/^JobSubmitPlugins/d' "$SLURM_CONF" && "$cluster" restart-ctld && finds FAULT JobSubmitPlugins || return
  cp "$TMPDIR/good.conf" "$SLURM_CONF"
  finds FAULT restart && only_fault && grep -q 'JobSubmitPlugins=swell (it runs with none)' "$TMPDIR/doctor.txt" && fix && healthy
}
check 'lines of slurm.conf that wait for the restart are checked and named' before_the_restart

closed_file() { # FILE CHECK
  chmod 600 "$1" || return
  setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups -- swell doctor > "$TMPDIR/doctor.txt" 2>&1
  chmod 644 "$1"
  grep "^FAULT *$2: .*cannot be read" "$TMPDIR/doctor.txt" || { cat "$TMPDIR/doctor.txt"; return 1; }
}
if [[ $(id -u) == 0 ]]; then
  check 'a swell.conf that is there but closed is told from none' closed_file "${SLURM_CONF%/*}/swell.conf" swell.conf
  check 'a plugstack.conf that is there but closed is told from none' closed_file "${SLURM_CONF%/*}/plugstack.conf" spank_swell.so
fi

grace_of_a_job() {
  submit --elastic=grace=90 --gres=gpu:4 && finds warn 'grace of the jobs' && grep -q "$job (90 s)" "$TMPDIR/doctor.txt" &&
    fix && healthy
}
check 'a job that needs more grace than the QOS gives' grace_of_a_job

no_job_yet() { # a new cluster: the page has no jobs to simulate
  local said
  printf '#!/bin/sh\necho "JobIDRaw|Account|QOS|Partition|Submit|ElapsedRaw|AllocTRES|State"\n' > "$TMPDIR/sacct" && chmod +x "$TMPDIR/sacct"
  said=$(PATH=$TMPDIR:$PATH swell sim --site --days 3 2>&1) && return 1
  [[ $said == "swell: sacct: Slurm's accounting has no job of the last 3 days; take more with --days, "*'--trace FILE' ]] || { printf '%s\n' "$said"; return 1; }
}
check 'swell sim --site says where a cluster has run no job yet' no_job_yet

jobs_are_shown() {
  [[ $(swell jobs) == 'No elastic jobs.' ]] || return
  submit --elastic=max=12 --gres=gpu:4 --job-name=llama && within 30 grown "$job" 12 || return
  swell jobs | tee "$TMPDIR/jobs.txt"
  grep -qE "^ *$job +root +llama +ACTIVE +4 +8 +12/12 " "$TMPDIR/jobs.txt" || return
  local each
  for each in $(companions "$job"); do
    grep -qE "[ ,]$each node[0-9]:[0-9]" "$TMPDIR/jobs.txt" || return
    [[ $(swell jobs "$each" 2>&1) == *"companion of job $job"* ]] || return
  done
  [[ $(swell jobs --json "$job" | grep -c '"gpu_indices"') == "$(companions "$job" | wc -l)" ]] || return
  [[ $(swell jobs -u nobody) == 'No elastic jobs.' ]] || return
  swell jobs 999999
  [[ $? -eq 1 ]] || return
  swell jobs --no-such-option
  [[ $? -eq 2 ]]
}
check 'swell jobs shows the job and its companions' jobs_are_shown

own_site() { # what Slurm's own database says of jobs that ran here
  local each
  for each in 1 2 4; do sbatch -Q -n1 -c1 --mem=10 --gres=gpu:$each --wrap 'sleep 1' -o /dev/null || return; done
  sbatch -Q -n1 -c1 --mem=10 --wrap 'sleep 1' -o /dev/null
  ran() { (($(sacct -aXnP -S now-1days -o State | grep -c COMPLETED) >= 4)); }
  within 60 ran && swell sim --site --days 1 > "$TMPDIR/page.txt" 2> "$TMPDIR/few.txt" || { cat "$TMPDIR"/{page,few}.txt; return 1; }
  grep -qE '^[0-9]+ GPU jobs submitted in the last day, on 12 GPUs of 3 nodes \(h100\)' "$TMPDIR/page.txt" &&
    grep -q '^Left out: .*1 ask for no GPU.* were lent to other jobs by Swell' "$TMPDIR/page.txt" && grep -qE '^all +[0-9]+ ' "$TMPDIR/page.txt" &&
    grep -q 'these ratios are of [0-9]* jobs' "$TMPDIR/few.txt" || { cat "$TMPDIR"/{page,few}.txt; return 1; }
}
check 'swell sim --site reads this cluster and its own jobs' own_site

# A month of 50,000 jobs, as sacct -P prints it: arrays, CPU jobs, cancelled and running ones among them.
mkdir "$TMPDIR/month" && python3 - > "$TMPDIR/month/jobs" << 'MONTH'
import time
print("JobIDRaw|Account|Submit|ElapsedRaw|AllocTRES|State")
print("older|research", int(time.time()) - 60 * 86400, "4000000|gres/gpu=8|COMPLETED", sep="|")     # it ran on into the month
for i in range(50000):
    gpus = 0 if i % 10 == 3 else (1, 2, 4, 8)[i % 4]
    ran = 0 if i % 10 == 2 else 20 + (i * 37) % 360
    state = {2: "CANCELLED by 1000", 4: "RUNNING"}.get(i % 10, "COMPLETED")
    print(i, ("research", "nlp", "vision")[i % 3], int(time.time()) - (50000 - i) * 50, ran,
          f"billing=8,cpu=8,gres/gpu:h100={gpus},gres/gpu={gpus},node=1" if gpus else "billing=8,cpu=8,node=1", state, sep="|")
MONTH
printf '#!/bin/sh\necho "$@" > %q/asked; exec cat %q/jobs\n' "$TMPDIR/month" "$TMPDIR/month" > "$TMPDIR/month/sacct" && chmod +x "$TMPDIR/month/sacct"
month_of_jobs() {
  local began=$SECONDS
  PATH=$TMPDIR/month:$PATH swell sim --site > "$TMPDIR/page.txt" 2>&1 || { cat "$TMPDIR/page.txt"; return 1; }
  printf '# a month of 50,000 jobs took %s s\n' $((SECONDS - began))
  grep -q '^35000 GPU jobs submitted in the last 31 days' "$TMPDIR/page.txt" && grep -q 'now-31days' "$TMPDIR/month/asked" &&
    grep -q '^Left out: 5000 ask for no GPU, 5000 did not run, 5000 wait or run still, 1 were submitted before' "$TMPDIR/page.txt" || { cat "$TMPDIR/page.txt"; return 1; }
  for account in research nlp vision; do grep -qE "^$account +1[0-9]{4} +[0-9]+ +[0-9]+ .*[0-9.]+x" "$TMPDIR/page.txt" || { cat "$TMPDIR/page.txt"; return 1; }; done
}
check 'swell sim --site makes one page of a month of 50,000 jobs' month_of_jobs

site_and_file() {
  swell sim --site --trace "$TMPDIR/month/jobs" --hours 24 > "$TMPDIR/page.txt" 2>&1 || { cat "$TMPDIR/page.txt"; return 1; }
  grep -qE "^[0-9]+ GPU jobs? of $TMPDIR/month/jobs, on 12 GPUs of 3 nodes \(h100\)" "$TMPDIR/page.txt" || { cat "$TMPDIR/page.txt"; return 1; }
}
check 'swell sim --site takes jobs from a file, too' site_and_file

refused_site() { # WORD OPTION...
  local word=$1 said
  shift
  said=$("$@" 2>&1) && { printf '%s was taken\n' "$*"; return 1; }
  [[ $said == *"$word"* && $(wc -l <<< "$said") == 1 ]] || { printf '%s: %s\n' "$*" "$said"; return 1; }
}
wrong_sites() {
  printf '#!/bin/sh\necho "sacct: error: no route" >&2; exit 1\n' > "$TMPDIR/month/sacct"
  refused_site '--trace FILE' env PATH="$TMPDIR/month:$PATH" swell sim --site &&
    refused_site 'h99' swell sim --site --gpu-type h99 && refused_site '--policy' swell sim &&
    refused_site 'site' swell sim --site --cluster 2x8:h100 && refused_site 'site' swell sim --policy fifo --days 3
}
check 'a file that swell sim --site cannot read is one error with what to do' wrong_sites

cluster_down
cluster_up --nodes 2 --gpus-per-node 4 --no-accounting
if [[ $(scontrol -V) != *' 22.05.'* ]]; then
  known_warning='^warn *note: with preempt/partition_prio, newer versions of Slurm'
  check 'that newer Slurm refuses companions beside jobs that wait is said' within 15 finds warn note
fi
check 'a healthy site without slurmdbd' healthy
for each in PriorityTier=10:PriorityTier PreemptMode=OFF:PreemptMode GraceTime=0:GraceTime State=DOWN:expansion-partition \
  AllocNodes=elsewhere:'AllocNodes of expansion'; do
  check "expansion partition with ${each%%:*}" breaks_and_fixes FAULT "${each#*:}" \
    scontrol update PartitionName=expansion "${each%%:*}"
done
check 'expansion partition without all nodes' breaks_and_fixes warn nodes scontrol update PartitionName=expansion Nodes=node1

finish_tests
