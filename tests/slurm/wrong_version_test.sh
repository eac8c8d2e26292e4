#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Plugins of one Slurm in another: Slurm does not load them, and a sentence of Swell says what to install.
#   SWELL_FOREIGN_STAGE=PREFIX   Swell built for another Slurm (contrib/plugins-all)
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
foreign=${SWELL_FOREIGN_STAGE:-}
[[ -n $foreign && -f $foreign/plugins/sched_swell.so ]] ||
  skip 'SWELL_FOREIGN_STAGE names no Swell built for another Slurm: run contrib/plugins-all'

refused() {
  ! "$cluster" start --nodes 1 --gpus-per-node 1 --no-accounting --plugins "$foreign/plugins" > said 2>&1 || return
  cat said
  grep -q 'swell: .* is built for Slurm [0-9.]* and cannot be loaded by Slurm [0-9.]*: install Swell built for that one: ' said &&
    grep -q "package swell-slurm-plugins whose version has +slurm$(slurmctld -V | cut -d' ' -f2) (contrib/packaging --slurm " said &&
    grep -qi 'incompatible slurm plugin' said
}
cd "$work" || exit 1
check 'plugins of another Slurm are refused with what to install' refused

finish_tests
