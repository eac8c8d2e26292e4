#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live where cgroups let a job open its own GPUs alone (ConstrainDevices=yes): a job and its companion on the same node do
# not share devices. State in host memory moves between them all the same.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
own=/sys/fs/cgroup/devices/swell-test-$$
{ mkdir "$own" && rmdir "$own"; } 2> /dev/null || skip 'cgroup v1 with the controller devices, and root, are needed'
# Slurm names cgroups by node and job alone, and clusters of other tests have the same ones: one at a time. (It locks the folders of
# controllers itself.)
exec {lock}< /sys/fs/cgroup && flock -w 1200 "$lock" || skip 'another test holds the lock of the cgroups for 20 minutes'
cluster_up --nodes 2 --gpus-per-node 4 --no-slurmd --conf TaskPlugin=task/cgroup
printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\n' > "$(dirname "$SLURM_CONF")/cgroup.conf"
"$cluster" restart-ctld > "$TMPDIR/restart.log" 2>&1 || { cat "$TMPDIR/restart.log"; exit 1; } # slurmctld tells its controller what cgroup.conf has
# Devices of a number that no driver has: who may open one is told that there is none, others that they may not.
gpus=$(dirname "$SLURM_CONF")/../gpus
for i in 0 1 2 3; do rm "$gpus/gpu$i" && mknod -m 666 "$gpus/gpu$i" c 240 "$i" || exit 1; done
for node in node1 node2; do "$cluster" start-slurmd "$node" > "$TMPDIR/start.log" 2>&1 || { cat "$TMPDIR/start.log"; exit 1; }; done

cat > opens << 'EOJ'
#!/bin/bash
# opens FOLDER: the numbers of the GPUs that this process may open.
for i in 0 1 2 3; do LC_ALL=C cat "$1/gpu$i" 2>&1 | grep -q 'No such device' && printf '%s ' "$i"; done
EOJ
# Each program says what it may open, and where it is.
cat > opening << EOJ
#!/bin/bash
echo "\$SWELL_GENERATION \$RANK \$SLURM_JOB_ID \$(./opens "$gpus")" >> "\$OUT/opened"
echo "\$SWELL_GENERATION \$RANK \$NCCL_HOSTID" >> "\$OUT/hosts"
exec ./in_step "\$@"
EOJ
chmod +x opens opening

constrained() { [[ $(srun --quiet -w node1 --gres=gpu:2 ./opens "$gpus") == '0 1 ' ]]; }
check 'a job of this cluster may open its own GPUs alone' constrained

# Two of its own on node1; lent are the node's two others, and the four of node2.
each_has_its_own() { # of node1 the job has 0 and 1 itself, and the companion there 2 and 3
  local seen
  seen=$(sort -n -k2 "$out/opened" | awk '$1 == 1 { for (i = 4; i <= NF; i++) printf "%s", $i; printf " " }')
  printf 'by rank: %s\n' "$seen"
  [[ $seen == '01 01 23 23 0123 0123 0123 0123 ' ]]
}
hosts_are_apart() { # NCCL takes the job's own workers on node1 for another host than the lent ones there
  local seen
  seen=$(sort -n -k2 "$out/hosts" | awk -v job="$job" '$1 == 1 { sub("\\." job "$", ".own", $3); sub(/\.[0-9]+$/, ".lent", $3); printf "%s ", $3 }')
  printf 'by rank: %s\n' "$seen"
  [[ $seen == 'node1.own node1.own node1.lent node1.lent'*([[:space:]]) ]]
}
says_devices_are_apart() { swell doctor | grep "GPUs of one node.*ConstrainDevices=yes"; }
check 'swell doctor says that a job and its companion on one node do not share devices' says_devices_are_apart

grows_and_shrinks() {
  export PLANS='2=2,1,1,0 4=1,2,2,0 8=2,2,2,1' PROGRAM=./opening
  live --elastic=mode=live,max=8 --gres=gpu:2 -w node1 && within 120 live_grown 8 && each_has_its_own && hosts_are_apart &&
    grep '"event":"switch-committed".*"mapped arena":[1-9]' "$out/events" &&
    rigid --gres=gpu:4 -w node2 && within 120 live_grown 4 && within 120 in_state "$rigid_job" RUNNING && goes_on_live && well_ended
  local result=$?
  unset PLANS PROGRAM
  cat "$work/$job.out"
  return $result
}
check 'a live job grows on its own node and on another, and shrinks, without a device of the others' grows_and_shrinks

finish_tests
