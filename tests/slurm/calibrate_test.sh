#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell topo calibrate: against other programs that measure, on this host; and in an allocation.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
topo=$TMPDIR/topo
mkdir -m 755 "$topo"
for n in {1..4}; do printf '{"v":1,"leaf":"leaf%s"}\n' $(((n + 1) / 2)) > "$topo/node$n.json"; done

cluster_up --nodes 4 --gpus-per-node 2 --no-accounting --topo-dir "$topo"
# Whether it is within a fifth of others is the bench's question, on a quiet machine; a wrong unit or count is seen on any.
"$top/tests/bench/calibrate" --pairs 5 > "$work/compared"
is_near() { # METHOD
  cat "$work/compared"
  python3 - "$work/compared" "$1" << 'PY'
import json, sys
assert 0.5 < json.loads(open(sys.argv[1]).readlines()[-1])[sys.argv[2] + "_ratio"] < 2
PY
}
compare() { # METHOD PROGRAM
  local why name="$1 measures what $2 does"
  why=$(sed -n "s/^$1: not compared: //p" "$work/compared")
  if [[ -n $why ]]; then
    count=$((count + 1))
    printf 'ok %s - %s # SKIP %s\n' "$count" "$name" "$why"
  else
    check "$name" is_near "$1"
  fi
}
compare tcp iperf3
compare ucx ucx_perftest
in_an_allocation() {
  within 20 four_published || return
  salloc -N4 --quiet swell topo calibrate --method tcp --pairs 2 --seconds 0.02 -o "$work/cal.json" || return
  python3 - "$work/cal.json" << 'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert [c["distance"] for c in d["classes"]] == [0, 1, 2], d
assert all(c["pairs"] == 2 and c["gbytes_per_s"] > 0 and c["latency_us"] > 0 and len(c["sizes"]) == 8 for c in d["classes"]), d
assert len(d["pairs"]) == 4 and d["date"].endswith("Z"), d
PY
}
four_published() { (($(scontrol -o show node | grep -c '"swell":{"v":1,"leaf"') == 4)); }
check 'in an allocation: pairs of every class, steps on their nodes, one file' in_an_allocation
met_by_strangers() {
  python3 "$here/strangers.py" games meet swell > met &
  local strangers=$! result
  within 20 grep -q here met && timeout 120 salloc -N2 --quiet swell topo calibrate --method tcp --pairs 1 --seconds 0.05 -o "$work/met.json"
  result=$?
  kill "$strangers"
  cat met
  grep -q '^met ' met && ((result == 0)) && [[ $(jq '.classes | length' "$work/met.json") == 2 ]]
}
[[ $(id -u) != 0 ]] || check 'strangers that meet its steps change no measurement' met_by_strangers
is_used() {
  swell topo --cluster --calibration "$work/cal.json" > shown
  cat shown
  grep -qE '^same switch .* measured +description$' shown && grep -q '^calibrated 20' shown
}
check 'the file is what swell topo --cluster reads' is_used
with_gpus() { salloc -N2 --gpus-per-node=2 --quiet swell topo calibrate --method tcp --pairs 1 --seconds 0.005 -o "$work/gpus.json"; }
check 'in an allocation with GPUs too' with_gpus
outside() { [[ $(swell topo calibrate 2>&1) == 'swell: this is not an allocation of Slurm: run it in one, '* ]]; }
check 'outside an allocation that is said' outside

finish_tests
