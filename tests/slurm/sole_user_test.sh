#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Nodes that Slurm gives to one user or MCS label at a time, or whole. For a pending job Slurm leaves out the nodes of others before it
# considers preemption: the controller alone takes back what is lent there.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run it as root'
cluster_up --nodes 2 --gpus-per-node 4 --users games --conf MCSPlugin=mcs/user --conf MCSParameters=ondemand,ondemandselect

# Two jobs of root have 1 GPU each on node1. Each is lent 1 GPU there and 2 on node2. Before the later jobs, none is lent anything.
all_are_lent() {
  lends_nothing && submit --elastic=max=4,grace=5 --gres=gpu:1 -w node1 && first=$job && submit --elastic=max=4,grace=5 --gres=gpu:1 -w node1 &&
    within 20 in_state "$first" RUNNING && within 20 in_state "$job" RUNNING && swell drain --undo && within 60 is_lent "$first" 3 && within 60 is_lent "$job" 3 &&
    within 30 word_is "$first" state ACTIVE && within 30 word_is "$job" state ACTIVE && on_node2 root 2 || { swell why "$job"; return 1; }
}
on_node2() { (($(squeue --all -h -w node2 -t RUNNING,COMPLETING -u "$1" -o %i | wc -l) == $2)); } # USER JOBS
of_games() {
  rigid_job=$(setpriv --reuid=games --regid="$(id -g games)" --clear-groups -- sbatch --parsable --output=/dev/null "$@" --wrap 'sleep 36000')
}
# has_node2 OPTION...: a job of another user with these options starts on node2; the trainings go on without it.
has_node2() {
  all_are_lent && of_games "$@" && within 20 in_state "$rigid_job" RUNNING || { squeue --all -o '%i %u %T %N %b %r %h' && swell why "$job"; return 1; }
  [[ $(squeue -h -j "$rigid_job" -o %N) == node2 ]] && on_node2 root 0 && goes_on "$first" && goes_on "$job" && settled
}
partition() { scontrol update partitionname=train ExclusiveUser=no OverSubscribe=NO && scontrol update partitionname=other ExclusiveUser=no OverSubscribe=NO && scontrol update partitionname="$1" "$2"; }

scontrol create partition=other nodes=ALL prioritytier=10
check 'a job with --exclusive=user gets a node on which nothing is lent to others' has_node2 --gres=gpu:1 --exclusive=user
check 'so does one with --exclusive=mcs' has_node2 --gres=gpu:1 --exclusive=mcs
check 'and one with --exclusive' has_node2 --gres=gpu:1 --exclusive

in_its_partition() { partition train ExclusiveUser=yes && has_node2 --gres=gpu:1; }
check 'in a partition with ExclusiveUser, a job of another user gets a node' in_its_partition
told() { swell doctor > doctor.txt 2>&1; cat doctor.txt && grep -F 'partition train (ExclusiveUser): a node has jobs of one user or label at a time' doctor.txt; }
check 'swell doctor says that Slurm preempts nothing there' told
check 'so does one in another partition with this node' has_node2 --gres=gpu:1 -p other
in_the_other() { partition other ExclusiveUser=yes && has_node2 --gres=gpu:1 -p other; }
check 'and one in a partition with ExclusiveUser, where the lent GPUs are of another partition' in_the_other
whole() { partition other OverSubscribe=EXCLUSIVE && has_node2 --gres=gpu:1 -p other; }
check 'and one in a partition with OverSubscribe=EXCLUSIVE' whole

refusals() { grep -c '"grant-refused"' "$events"; }
why_is_said() { swell why "$job" | grep 'idle GPUs on node2 cannot be lent to it: jobs of others run there'; }
lent_elsewhere() {
  local before
  before=$(refusals)
  partition train ExclusiveUser=yes && of_games --gres=gpu:1 -w node2 && within 20 in_state "$rigid_job" RUNNING && submit --elastic=max=8,grace=5 --gres=gpu:2 -w node1 &&
    within 60 is_lent "$job" 2 && within 30 why_is_said && [[ $(refusals) == "$before" ]] && on_node2 root 0 || return
  scancel "$rigid_job" && within 60 is_lent "$job" 6
}
check 'nothing is offered on a node that another user has for himself, and swell why says so' lent_elsewhere

of_all_labels() {
  partition train ExclusiveUser=no && clear_queue && sed -i 's/^MCSParameters=.*/MCSParameters=enforced,select/' "$SLURM_CONF" && "$cluster" restart-ctld && has_node2 --gres=gpu:1
}
check 'where all nodes are of one MCS label at a time, a job of another label gets one' of_all_labels

finish_tests
