#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Where another select plugin is configured, Swell's shadow of cons_tres stands aside although its folder is in front
# and slurmctld loads every select plugin there is.
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

finish_tests
