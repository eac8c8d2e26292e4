#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/bench/fidelity computes its figures from a run that is written down here: no cluster is needed.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
command -v jq > /dev/null || { printf '1..0 # SKIP no jq here: run contrib/setup\n'; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

# Real seconds, ten times as short: two jobs of 32 GPUs that wait 1 and 3 s and run for 22, 21 and 20 s, one beside the other.
printf '1,32,1,0,1,23\n2,32,1,18,21,43\n' > stock.csv
printf '1,32,1,0,1,22\n2,32,1,18,21,42\n' > fewest-first.csv
printf '1,32,1,0,1,21\n2,32,1,18,21,41\n' > swell.csv
# Adds a companion with 16 GPUs from 10 to 31 s.
printf '%s\n' '{"time": 10, "event": "companion-started", "job": 1, "companion": {"id": 9, "gpus": 16}}' \
  '{"time": 31, "event": "companion-ended", "job": 1, "companion": {"id": 9, "gpus": 16}}' | tee swell.events > fewest-first.events
simulated() { # MEAN-WAIT of fifo
  jq -n --argjson wait "$1" '{policies: {fifo: {avg_jct_s: 240, avg_queue_s: $wait, gpu_utilization: 0.5},
    "fewest-first": {avg_jct_s: 230, avg_queue_s: 18, gpu_utilization: 0.6}, swell: {avg_jct_s: 200, avg_queue_s: 20, gpu_utilization: 0.7}}}' > simulated.json
}
compared() { "$top/tests/bench/fidelity" --recorded --scale 10 --out "$work" > said && cat said && tail -n 1 said > last && jq -e . last; }
says() { jq -e "$1" last > /dev/null || { printf 'not so: %s\n' "$1"; return 1; }; }

# On the real clusters jobs wait 20 s on average, of 220 to 240 s to the end.
of_the_wait() {
  simulated 15 && compared && says '.queue_error == 0.25' && says '.avg_jct_error == 0.1' && says '.same_order == true'
}
check 'the error of the wait is part of the wait on the real cluster, not of the time to the end' of_the_wait
held() {
  says '.gpu_utilization.fifo == {"simulated": 0.5, "real": 0.512}' && says '.gpu_utilization.swell == {"simulated": 0.7, "real": 0.616}' &&
    says '.gpu_utilization | keys == ["fewest-first", "fifo", "swell"]' && grep -q '^fifo .*GPUs held 50.0 % and 51.2 %' said
}
check 'GPU utilization is there of both, for each policy' held

nobody_waited() {
  for arm in stock fewest-first swell; do printf '1,32,1,0,0,20\n' > "$arm.csv"; done
  simulated 15 && compared && says '.queue_error == null'
}
check 'where nobody waited on the real cluster there is no such part' nobody_waited
finish_tests
