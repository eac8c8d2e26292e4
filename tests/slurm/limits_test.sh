#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# MaxLentByAccount and MaxLentByQOS of swell.conf, over the jobs of one account on a real cluster.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
after_check() { :; } # the jobs live over several behaviours
cluster_up --nodes 3 --gpus-per-node 4 --swell-conf 'MaxLentByAccount=nobody_else:9,*:5'
conf=${SLURM_CONF%/*}/swell.conf

lent_in_all() { # GPUS: to both jobs
  local -a each
  mapfile -t each < <(lent "$first" && lent "$second")
  ((each[0] + each[1] == $1))
}
together() {
  submit --elastic=max=10,grace=10 --gres=gpu:2 && first=$job && within 60 is_lent "$first" 5 || return
  submit --elastic=max=10,grace=10 --gres=gpu:2 && second=$job && within 60 limit_is_said "$second" && within 60 lent_in_all 5
}
limit_is_said() { swell why "$1" | grep -E "account [a-z_0-9]+ may have 5 lent GPUs, and has 5"; }
check 'the jobs of an account are lent no more than its limit together, and swell why says so' together

given_to_the_other() {
  swell max "$first" 2 && within 60 is_lent "$first" 0 && within 90 is_lent "$second" 5 && goes_on "$first" && goes_on "$second"
}
check 'what one of them gives back goes to the other' given_to_the_other

lowered() {
  sed -i '/^MaxLentByAccount=/d' "$conf" && printf 'MaxLentByQOS=*:1\n' >> "$conf" && "$cluster" restart-ctld && within 90 at_most_1 &&
    goes_on "$first" && goes_on "$second"
}
at_most_1() { lent_in_all 0 || lent_in_all 1; }
check 'what is beyond a limit that was lowered is reclaimed, and both jobs go on' lowered

finish_tests
