#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sites that are set up otherwise: records that users may not see (PrivateData). The jobs are those of an ordinary user.
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

finish_tests
