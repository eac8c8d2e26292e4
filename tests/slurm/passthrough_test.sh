#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Where another select plugin is configured, or Slurm's topology gives jobs their shape, Swell's shadow of cons_tres
# stands aside although its folder is in front: jobs stand where they stand without it.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name select_linear.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/select_linear.so ]] || skip 'no select_linear.so of Slurm was found'
shadow=$SWELL_STAGE/lib/swell/select
[[ -e $shadow/select_cons_tres.so ]] || skip "no select_cons_tres.so in $shadow: build src/plugins/select"
cluster_up --nodes 4 --gpus-per-node 2 --no-accounting --conf "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock" \
  --conf SelectType=select/linear --conf SelectTypeParameters=CR_Memory --conf DefCpuPerGPU= --conf DefMemPerCPU= --conf DefMemPerNode=1000

linear_serves() {
  scontrol show config | grep -q 'SelectType *= select/linear' &&
    rigid -N 2 --gres=gpu:2 && within 15 in_state "$rigid_job" RUNNING && rigid -N 2 --gres=gpu:2 && within 15 in_state "$rigid_job" RUNNING &&
    rigid -N 1 && in_state "$rigid_job" PENDING
}
check 'select/linear serves alone, whole nodes each' linear_serves

# ---- topologies: 12 nodes; what they publish puts every third one into one rack, Slurm's topology the neighbours

cluster_down
cluster_up --nodes 12 --gpus-per-node 2 --no-accounting --conf "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock"
etc=${SLURM_CONF%/*}

publish() {
  local i
  for ((i = 1; i <= 12; i++)); do scontrol update NodeName="node$i" Extra="{\"swell\":{\"v\":1,\"leaf\":\"rack$((i % 3))\"}}" || return; done
}
publish
idle_again() { [[ $(sinfo -h -t idle -o %D) == 12 ]]; }
restart_with() { # KEY=VALUE...: of slurm.conf; slurmctld's log begins anew
  local line
  for line; do sed -i "/^${line%%=*}=/d" "$SLURM_CONF" && sed -i "1i $line" "$SLURM_CONF" || return; done
  "$cluster" kill-ctld && : > "$SWELL_CLUSTER_DIR/log/slurmctld.log" && "$cluster" restart-ctld && within 20 idle_again
}
stands_aside() { grep -q "swell: select: Slurm's topology gives jobs their shape, so cons_tres decides alone" "$SWELL_CLUSTER_DIR/log/slurmctld.log"; }
placements() { # [sbatch options of one job]...: where they stand, one after the other
  local options
  for options; do
    # shellcheck disable=SC2086 # several options
    rigid --gres=gpu:1 $options && within 15 in_state "$rigid_job" RUNNING || return
    squeue --all -h -j "$rigid_job" -o '%N'
  done
}
# same_without_it PLUGIN FILE TEXT OPTIONS...: under a topology, jobs stand where they do without the shadow.
same_without_it() {
  local plugin=$1 file=$2 text=$3
  shift 3
  rm -f "$etc"/topology.*
  printf '%s\n' "$text" > "$etc/$file"
  restart_with "TopologyPlugin=$plugin" "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock" && within 25 stands_aside || return
  placements "$@" > with || return
  clear_queue
  restart_with "PluginDir=$SWELL_STAGE/plugins:$stock" && placements "$@" > without || return
  printf 'with the shadow:\n%s\nwithout:\n%s\n' "$(< with)" "$(< without)"
  [[ $(wc -l < with) == "$#" ]] && cmp with without
}

blocks=$'BlockName=b1 Nodes=node[1-4]\nBlockName=b2 Nodes=node[5-8]\nBlockName=b3 Nodes=node[9-12]\nBlockSizes=4,8'
if [[ -e $stock/topology_block.so ]]; then
  check 'segments of blocks' same_without_it topology/block topology.conf "$blocks" '-N 2' '-N 4 --segment=2' '-N 3'
fi
if sbatch --consolidate-segments --version > /dev/null 2>&1; then
  check 'consolidated segments' same_without_it topology/block topology.conf "$blocks" '-N 3' '-N 4 --segment=2 --consolidate-segments'
fi
if [[ -e $stock/topology_ring.so ]]; then
  check 'arcs of rings' same_without_it topology/flat topology.yaml \
    $'- topology: rings\n  cluster_default: true\n  ring:\n    rings:\n      - ring: r1\n        nodes: node[1-6]\n      - ring: r2\n        nodes: node[7-12]' \
    '-N 2' '-N 3' '-N 4'
fi
if [[ -e $stock/topology_torus3d.so ]]; then
  check 'boxes of tori' same_without_it topology/flat topology.yaml \
    $'- topology: tori\n  cluster_default: true\n  torus3d:\n    toruses:\n      - name: t1\n        dims: {x: 3, y: 2, z: 2}\n        nodes: node[1-12]\n        placements:\n          - dims: {x: 2, y: 2, z: 1}\n          - dims: {x: 1, y: 2, z: 1}' \
    '-N 2' '-N 4' '-N 2'
fi

# A job that asks for it starts again at once when a node of it fails.
expedited() {
  local job first good
  rm -f "$etc"/topology.*
  restart_with TopologyPlugin=topology/flat "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock" \
    SlurmctldParameters=preempt_send_user_signal,enable_expedited_requeue || return
  rigid -N 2 --gres=gpu:1 --requeue=expedite && within 15 in_state "$rigid_job" RUNNING || return
  job=$rigid_job first=$(squeue -h -j "$rigid_job" -o %B)
  scontrol update NodeName="$first" State=DOWN Reason=test && within 30 runs_again "$job"
  good=$?
  scontrol update NodeName="$first" State=RESUME
  return $good
}
runs_again() { [[ $(scontrol -o show job "$1") =~ JobState=RUNNING.*Restarts=1 ]]; }
# One of its two nodes is clean again, and waits with it for the other, where an Epilog takes long: an elastic job that could
# use that one is lent nothing there.
kept() {
  local first good
  printf '#!/bin/sh\nif grep -q "^$SLURMD_NODENAME\$" %s/slow; then sleep 12; fi\n' "$TMPDIR" > "$TMPDIR/epilog" && chmod 755 "$TMPDIR/epilog"
  : > "$TMPDIR/slow"
  restart_with "Epilog=$TMPDIR/epilog" && scontrol reconfigure || return
  rigid -N 2 --gres=gpu:2 --requeue=expedite && within 15 in_state "$rigid_job" RUNNING || return
  local waits=$rigid_job
  first=$(squeue -h -j "$waits" -o %B)
  rigid -N 9 --gres=gpu:2 && within 15 in_state "$rigid_job" RUNNING && submit --elastic=max=4x --gres=gpu:2 && within 30 workers_run "$job" 2 || return
  scontrol show hostnames "$(squeue -h -j "$waits" -o %N)" | grep -vx "$first" > "$TMPDIR/slow"
  scontrol update NodeName="$first" State=DOWN Reason=test && scontrol update NodeName="$first" State=RESUME && is_lent_nothing_meanwhile "$waits"
  good=$?
  within 30 runs_again "$waits" && word_is "$job" grants 0 && ((good == 0))
}
is_lent_nothing_meanwhile() { # JOB: over many rounds of the controller, while JOB is EXPEDITING
  local look
  for look in {1..20}; do is_lent "$job" 0 && [[ $(squeue -h -j "$1" -o %T) == @(COMPLETING|EXPEDITING) ]] && sleep 0.3 || return; done
}
if sbatch --help | grep "requeue.*expedite" > /dev/null; then
  check 'a job with an expedited requeue starts again at once' expedited
  check 'GPUs of the waiting job are not lent meanwhile' kept
fi

finish_tests
