#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sites with heterogeneous jobs: Swell under the name of the stock scheduler.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name sched_backfill.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/sched_backfill.so ]] || skip 'no sched_backfill.so of Slurm was found'
shadow=$SWELL_STAGE/lib/swell/shadow
cluster_up --nodes 2 --gpus-per-node 4 --conf SchedulerType=sched/backfill \
  --conf "PluginDir=$shadow:$SWELL_STAGE/plugins:$stock"

het_elastic() {
  local said
  said=$(sbatch --elastic --gres=gpu:1 : --gres=gpu:1 "$work/trainer_job.sh" 2>&1) && return 1
  printf '%s\n' "$said"
  [[ $said =~ 'heterogeneous job cannot be elastic' ]]
}
check 'a heterogeneous job with --elastic is refused with the reason' het_elastic

het_plain() {
  rigid --gres=gpu:1 : --gres=gpu:1 && within 30 in_state "$rigid_job" RUNNING
}
check 'heterogeneous jobs run as without Swell' het_plain

elastic() {
  submit --elastic=max=8 --gres=gpu:2 && within 30 grown "$job" 8 && rigid --gres=gpu:4 &&
    within 20 in_state "$rigid_job" RUNNING && settled && within 20 grown "$job" 4
}
check 'elastic jobs grow and give back under the name of the stock scheduler' elastic

# Slurm gives two components of a job never the same node: the idle GPUs of one node do not do for both.
het_beside_lent() {
  local busy
  rigid --gres=gpu:3 -w node2 && busy=$rigid_job && within 20 in_state "$busy" RUNNING &&
    submit --elastic=max=5 --gres=gpu:1 -w node2 && within 40 grown "$job" 5 || return
  scancel "$busy" && within 20 ended "$busy" && within 20 grown "$job" 5 || return
  rigid --gres=gpu:1 : --gres=gpu:1 && within 40 in_state "$rigid_job" RUNNING || { squeue -o '%i %T %r %N'; return 1; }
  # Whichever is quicker, the controller or Slurm itself.
  grep -E '"event":"(reclaim|companion-preempted)"' "$events" | grep "\"job\":$job\b" | grep 'needed by job\|preempted by Slurm' && settled
}
check 'a heterogeneous job does not wait for lent GPUs' het_beside_lent

finish_tests
