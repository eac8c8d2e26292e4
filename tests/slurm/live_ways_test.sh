#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mode=live with --switch-network: what state goes through between nodes.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
cluster_up --nodes 2 --gpus-per-node 2

# One of its own on node1; three are lent, of which the two of node2 get their state from there.
grown_over() { # HOW
  export SWELL_SWITCH_NETWORK=$1 PLANS='2=2,1,1,0 4=1,2,2,1'
  live --elastic=mode=live,sizes=2/4,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && event switch-committed
  local result=$?
  unset SWELL_SWITCH_NETWORK PLANS
  return $result
}
committed() { grep '"event":"switch-committed"' "$out/events"; }
by_ucx() { grown_over ucx && committed | grep -E '"ucx [a-z]+[^"]*":[1-9]' && ! committed | grep '"tcp":' && well_ended; }
by_tcp() { grown_over tcp && committed | grep '"tcp":[1-9]' && ! committed | grep '"ucx' && well_ended; }
# All nodes are of this machine: without UCX_TLS it would find its memory.
without_such_device() {
  export UCX_TLS=tcp
  grown_over ucx:no_such_card
  local result=$?
  unset UCX_TLS
  ((result == 0)) && committed | grep '"tcp":[1-9]' && well_ended &&
    [[ $(grep -c 'state comes by TCP, not UCX: UCX .*no_such_card' "$work/$job.out") == 1 ]]
}
if ldconfig -p | grep -q 'libucp\.so\.0'; then
  check 'state goes between nodes by UCX where that is asked for' by_ucx
  check 'where UCX has no such device it goes by TCP, and one line says why' without_such_device
fi
check 'or by TCP alone' by_tcp
finish_tests
