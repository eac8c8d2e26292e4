#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# All memory that libslurm hands out is freed, also what its own functions forget: slurmctld would lose memory
# at every look that the controller takes.
#   HEAP_LOOKS=10000   how often each question is asked
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
probe=$SWELL_STAGE/../tests/slurm/heap_probe
[[ -x $probe ]] || skip "$probe is not built: run make -C tests/slurm check in the build folder"
cluster_up --nodes 4 --gpus-per-node 4 --slurmd 2 --conf 'NodeSet=half Nodes=node[1-2]' --conf 'PartitionName=half Nodes=half'

# Every field that an administrator, a user or Swell may fill, in jobs that run and that wait, nodes and partitions.
long=$(printf 'words%.0s' {1..40})
fill() {
  local i
  for i in 1 2 3 4; do scontrol update "NodeName=node$i" "Extra=$long" "Comment=$long" || return; done
  for i in {1..10}; do
    rigid --hold --elastic=max=4 --gres=gpu:2 "--comment=$long" "--job-name=$long" --array=1-3 &&
      scontrol update "JobId=$rigid_job" "AdminComment=$long" || return
  done
  for i in 1 2; do
    rigid -N 1 --gres=gpu:2 "--comment=$long" && scontrol update "JobId=$rigid_job" "AdminComment=$long" &&
      within 15 in_state "$rigid_job" RUNNING || return
  done
}

flat() {
  local looks=${HEAP_LOOKS:-10000}
  fill && "$probe" "$looks" node1 "$rigid_job" > grown
  local status=$?
  cat grown
  ((status == 0)) || return
  # Less than one byte a look: what is left is the allocator's and stdio's.
  awk -v looks="$looks" '$2 >= looks { bad = 1 } END { exit bad || NR != 8 }' grown
}
check 'the heap is flat over thousands of looks' flat

finish_tests
