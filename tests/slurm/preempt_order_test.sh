#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Without Swell's select plugin Slurm preempts companions in its own order, and while others still leave: Swell takes back the same.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 5 --gpus-per-node 2 --grace 120 --conf SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0

left() { # JOB: how many of its companions were reclaimed or preempted
  jq -rs --argjson job "$1" 'map(select(.job == $job and (.event == "reclaim" or .event == "companion-preempted")) | .companion.id) | unique | length' "$events"
}
said() { "$cluster" logs slurmctld | grep 'Slurm preempts the oldest companions first' > /dev/null; }

# The job with more is missed less by the policy, but the other's companion is the oldest. It leaves when its grace ends, so that Slurm would
# preempt whatever else is in the way.
only_one_pays() {
  IGNORE_SIGNAL=1 submit --elastic=max=4,grace=12 --gres=gpu:2 -w node4 --exclude=node1,node2,node3 && local small=$job && within 30 grown "$small" 4 || return
  submit --elastic=max=6,grace=60 --gres=gpu:2 -w node1 --exclude=node5 && local large=$job && within 30 grown "$large" 6 && settled || return
  rigid --gres=gpu:2 && within 60 in_state "$rigid_job" RUNNING && within 30 grown "$small" 2 || return
  printf 'companions that left: %s of the smaller job, %s of the larger one\n' "$(left "$small")" "$(left "$large")"
  [[ $(left "$small") == 1 && $(left "$large") == 0 ]] && is_lent "$large" 4
}
check 'slurmctld says whom Slurm preempts first' within 10 said
check 'a waiting job costs one companion: Slurm and Swell take the same' only_one_pays

finish_tests
