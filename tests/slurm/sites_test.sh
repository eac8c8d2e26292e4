#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sites that are set up otherwise: records that users may not see (PrivateData), limits of partitions. The jobs are those of an ordinary user.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run it as root'
cluster_up --nodes 3 --gpus-per-node 4 --users games
as_games() { setpriv --reuid=games --regid="$(id -g games)" --clear-groups -- env TMPDIR=/tmp HOME="$work" "$@"; }
sbatch() { as_games "$(command -v sbatch)" "$@"; }

restart_with() { # KEY=VALUE of slurm.conf
  sed -i "/^${1%%=*}=/d" "$SLURM_CONF" && sed -i "1i $1" "$SLURM_CONF" && "$cluster" restart-ctld && within 30 all_idle
}
all_idle() { [[ $(sinfo -h -t idle -o %D) == 3 ]]; }

# A job on two nodes has its four ranks, is lent the third node's GPUs and some of its own nodes, and gives one node's back.
has_ranks() { # JOB GENERATION WORLD: its workers are told these ranks, each once, and so many of them
  local ranks
  ranks=$(awk -v world="$3" '$3 == world { print $2 }' "$work/$1/start.$2".* | sort -n | tr '\n' ' ')
  [[ $ranks == "$(seq -s ' ' 0 $(($3 - 1))) " ]] || { echo "ranks: $ranks"; return 1; }
}
grows_where() { # PrivateData
  restart_with "PrivateData=$1" && lends_nothing && submit --elastic=max=12,grace=10 --gres=gpu:2 -N 2 && within 30 workers_run "$job" 4 && has_ranks "$job" 0 4 &&
    swell drain --undo && within 60 grown "$job" 12 && has_ranks "$job" "$(newest_generation "$job")" 12 || { cat "$work/$job.out"; swell why "$job"; return 1; }
  rigid --gres=gpu:4 -N 1 && within 30 in_state "$rigid_job" RUNNING && within 30 grown "$job" 8 && has_ranks "$job" "$(newest_generation "$job")" 8 && goes_on "$job" &&
    as_games swell why "$job" > said && touch "$work/$job/finish" && within 30 ended "$job" && ! grep 'running as srun' "$work/$job.out"
}
for each in nodes jobs,partitions accounts,events,reservations,usage,users,cloud jobs,nodes,partitions,reservations,usage,users,accounts; do
  check "where users may not see $each, a job has its ranks, grows and gives back" grows_where "$each"
done
restart_with PrivateData=none
clear_queue

# A job of 1 GPU, 16 CPUs and 16000 MiB a worker.
refusals() { grep -c '"grant-refused"' "$events"; }
limits_are() { scontrol update partitionname=train MaxMemPerNode=0 MaxCPUsPerNode=UNLIMITED MinNodes=1 && scontrol update partitionname=train "$1"; }
keeps_to() { # LIMIT LENT: so much is lent, nothing of it is refused
  local before
  before=$(refusals)
  limits_are "$1" && submit --elastic=max=12,grace=5 --gres=gpu:1 -w node1 && within 60 grown "$job" $((1 + $2)) && goes_on "$job" && [[ $(refusals) == "$before" ]] && return
  swell why "$job"
  grep grant-refused "$events" | tail -n 3
  return 1
}
names() { swell why "$job" > said; cat said && grep -F "$1" said; }
# lends_nothing_by LIMIT WORDS: set while the job runs, it keeps it from growing, without an offer; unset it grows.
lends_nothing_by() {
  local before
  before=$(refusals)
  limits_are "$3" && lends_nothing && submit --elastic=max=12,grace=5 --gres=gpu:1 "${@:4}" && within 30 in_state "$job" RUNNING && limits_are "$1" && swell drain --undo &&
    within 30 names "$2" && is_lent "$job" 0 && [[ $(refusals) == "$before" ]]
}
check 'companions keep to MaxMemPerNode of their partition: several smaller ones are lent' keeps_to MaxMemPerNode=40000 11
clear_queue
check 'they keep to MaxCPUsPerNode' keeps_to MaxCPUsPerNode=48 8
clear_queue
both_keep_to() { # LIMIT LENT: two jobs on node1 are lent so much together
  local before first
  before=$(refusals)
  limits_are "$1" && lends_nothing && submit --elastic=max=12,grace=5 --gres=gpu:1 -w node1 && first=$job && submit --elastic=max=12,grace=5 --gres=gpu:1 -w node1 &&
    within 30 workers_run "$first" 1 && within 30 workers_run "$job" 1 && swell drain --undo && within 60 lent_together "$2" && goes_on "$first" && goes_on "$job" &&
    lent_together "$2" && [[ $(refusals) == "$before" ]] && return
  swell drain --undo
  swell why "$job"
  grep grant-refused "$events" | tail -n 3
  return 1
}
lent_together() { (($(lent "$first") + $(lent "$job") == $1)); }
check 'two jobs share what MaxCPUsPerNode leaves' both_keep_to MaxCPUsPerNode=48 7
clear_queue
check 'MaxMemPerNode below a worker lends nothing, and swell why names it' lends_nothing_by MaxMemPerNode=9000 'MaxMemPerNode=9000 of partition train is below the 16000 MiB of a worker' MinNodes=1 -w node1
clear_queue
check 'so does MaxMemPerCPU' lends_nothing_by MaxMemPerCPU=900 'MaxMemPerCPU=900 of partition train is too low for 16000 MiB with 16 CPUs' MinNodes=1 -w node1
clear_queue
check 'so does MinNodes' lends_nothing_by MinNodes=2 'MinNodes=2 of partition train lets no job of one node run' MinNodes=1 -w node1
clear_queue
limits_are MinNodes=1
clear_queue

finish_tests
