#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live where Slurm gives each job a /tmp and a /dev/shm of its own (job_container/tmpfs): the shims of a job and of its
# companion on the same node do not see each other's sockets. State moves by TCP between them, and one line says so.
programs=(regression in_step.so) # of lib.sh
test_base=/var/tmp               # the cluster's own files must be seen by jobs

# Slurm keeps a job's mount namespace by a mount. Linux 6.18 numbers namespaces by the processor that they are made on, and refuses
# a mount of one ("Invalid argument") where the own has a higher number. So a root of another Slurm is made on the processor whose
# numbers are lowest.
cpus=$(sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status)
each_cpu() { tr ',' '\n' <<< "$cpus" | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done; }
keeps_namespaces() { # of each processor; in mounts of its own
  local cpu
  mount -t tmpfs kept /mnt && touch /mnt/kept || return
  for cpu in $(each_cpu); do taskset -c "$cpu" unshare --mount=/mnt/kept --propagation private true && umount /mnt/kept || return; done
}
lowest_cpu() {
  local cpu
  for cpu in $(each_cpu); do
    taskset -c "$cpu" unshare --mount --propagation private taskset -c "$cpus" bash -c keeps_namespaces 2> /dev/null && printf '%s\n' "$cpu" && return
  done
}
export cpus
export -f each_cpu keeps_namespaces
cpu=$(lowest_cpu)
[[ -z $cpu ]] || taskset -pc "$cpu" $$ > /dev/null
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
taskset -pc "$cpus" $$ > /dev/null
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
((EUID == 0)) || skip 'job_container/tmpfs mounts file systems: root is needed'
unshare --mount true 2> /dev/null || skip 'this root may not make mount namespaces'
case $SWELL_STAGE in /tmp/* | /dev/shm/*) skip "jobs do not see SWELL_STAGE=$SWELL_STAGE in a /tmp of their own" ;; esac
containers=JobContainerType=job_container/tmpfs
[[ -z $(find /usr/lib /usr/lib64 -name namespace_tmpfs.so -path '*slurm*' 2> /dev/null) ]] || containers=NamespaceType=namespace/tmpfs # its newer name
cluster_up --nodes 2 --gpus-per-node 4 --no-slurmd --conf "$containers" --conf PrologFlags=contain
printf 'AutoBasePath=true\nBasePath=%s/containers\n' "$TMPDIR" > "$(dirname "$SLURM_CONF")/job_container.conf"
for node in node1 node2; do "$cluster" start-slurmd "$node" > "$TMPDIR/start.log" 2>&1 || { cat "$TMPDIR/start.log"; exit 1; }; done

is_private() {
  touch /tmp/swell-seen-by-all."$$"
  srun --quiet -w node1 bash -c "! test -e /tmp/swell-seen-by-all.$$ && touch /tmp/of-this-job && ! ls -A /dev/shm | grep ."
  local result=$?
  rm /tmp/swell-seen-by-all."$$"
  ((result == 0)) && ! test -e /tmp/of-this-job
}
check 'a job of this cluster has a /tmp and a /dev/shm of its own' is_private

# Two of its own on node1; lent are the node's two others, and the four of node2.
says_which_path() {
  grep 'do not see each other.s TMPDIR .job_container/tmpfs, or containers without a common folder.: state goes between them by TCP' "$work/$job.out" &&
    grep '"event":"switch-committed".*"tcp within a node":[1-9]' "$out/events"
}
grows_and_shrinks() {
  export PLANS='2=2,1,1,0 4=1,2,2,0 8=2,2,2,1'
  live --export=ALL,TMPDIR=/tmp --elastic=mode=live,max=8 --gres=gpu:2 -w node1 && within 120 live_grown 8 && says_which_path &&
    rigid --gres=gpu:4 -w node2 && within 120 live_grown 4 && within 120 in_state "$rigid_job" RUNNING && goes_on_live && well_ended
  local result=$?
  unset PLANS
  cat "$work/$job.out"
  return $result
}
check 'a live job grows on its own node and on another, and shrinks; one line names the path that is left' grows_and_shrinks

recovers() { # after kill -9 of a lent rank, whose partner is in another job's /tmp
  local pid
  export SWELL_SNAPSHOT_EVERY=20 PLANS='2=2,1,1,0 4=1,2,2,0'
  live --export=ALL,TMPDIR=/tmp --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && settled &&
    within 60 snapshots_are_there && pid=$(awk '$2 > e { e = $2 } $2 == e && $3 == 3 { p = $1 } END { print p }' "$out/began") && kill -9 "$pid" &&
    within 120 goes_on_with '[24]' && ends_right
  local result=$?
  unset SWELL_SNAPSHOT_EVERY PLANS
  cat "$work/$job.out"
  return $result
}
snapshots_are_there() { (($(steps_of 1) > 100)); } # of the second generation
check 'snapshots go to a partner there, and the run goes on from them' recovers

finish_tests
