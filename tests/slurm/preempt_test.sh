#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Which companions Slurm itself preempts, with the shadow of select/cons_tres: those that Swell would take back.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name select_cons_tres.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/select_cons_tres.so ]] || skip 'no select_cons_tres.so of Slurm was found'
cluster_up --nodes 5 --gpus-per-node 2 --no-accounting --conf SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,preempt_youngest_first \
  --conf "PluginDir=$SWELL_STAGE/lib/swell/select:$SWELL_STAGE/plugins:$stock"

preempted() { # JOB: how many of its companions Slurm has preempted
  grep -c "\"event\":\"companion-preempted\".*\"job\":$1[,}]" "$events"
}

# The job with more loses less by a companion. The other's is the youngest, which Slurm would take first. Whoever is
# quicker, Slurm or the controller, takes the same; rounds until it was Slurm.
smallest_loss_first() {
  submit --elastic=max=6,grace=20 --gres=gpu:2 -w node1 --exclude=node2 && local large=$job && within 30 grown "$large" 6 || return
  submit --elastic=max=4,grace=20 --gres=gpu:2 -w node2 && local small=$job && within 30 grown "$small" 4 && settled || return
  local round
  for round in 1 2 3 4 5 6; do
    # Slurm tries to place an interactive job at once, often before the controller hears of it.
    timeout 240 salloc --no-shell --gres=gpu:2 --job-name=interactive && settled && within 30 grown "$large" 4 || return
    printf 'round %s: preempted: %s of %s, %s of %s\n' "$round" "$(preempted "$large")" "$large" "$(preempted "$small")" "$small"
    is_lent "$small" 2 && [[ $(preempted "$small") == 0 ]] || return
    (($(preempted "$large") > 0)) && return
    scancel --name=interactive && within 30 grown "$large" 6 && settled || return
  done
  printf 'Slurm preempted nothing\n'
  return 1
}
check 'Slurm preempts the companion that is missed least, not the youngest' smallest_loss_first

finish_tests
