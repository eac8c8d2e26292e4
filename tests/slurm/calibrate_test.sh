#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell topo calibrate: against other programs that measure, on this host in the same run; and in an allocation.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
topo=$TMPDIR/topo
mkdir -m 755 "$topo"
for n in {1..4}; do printf '{"v":1,"leaf":"leaf%s"}\n' $(((n + 1) / 2)) > "$topo/node$n.json"; done

rate() { # FILE: bytes a second of 2 MiB messages
  python3 -c 'import json, sys; print(next(s["gbytes_per_s"] for c in json.load(open(sys.argv[1]))["classes"] for s in c["sizes"] if s["bytes"] == 2097152) * 1e9)' "$1"
}
ours() { swell topo calibrate --local --pairs 1 --seconds 1 --sizes 2097152 --method "$1" -o "$work/$1.json" > /dev/null && rate "$work/$1.json"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
iperf() {
  local port server
  port=$(free_port)
  iperf3 -s -1 -B 127.0.0.1 -p "$port" > /dev/null 2>&1 &
  server=$!
  sleep 0.5 # as below: it does not say when it listens
  iperf3 -c 127.0.0.1 -p "$port" -t 1 -l 1M -J > "$work/iperf.json"
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
  python3 -c 'import json; print(json.load(open("'"$work"'/iperf.json"))["end"]["sum_received"]["bits_per_second"] / 8)'
}
perftest() {
  local port server
  port=$(free_port)
  ucx_perftest -p "$port" -t tag_bw -s 2097152 -n 2000 -O 16 > /dev/null 2>&1 &
  server=$!
  sleep 0.5 # it does not say when it listens
  ucx_perftest 127.0.0.1 -p "$port" -t tag_bw -s 2097152 -n 2000 -O 16 2> /dev/null | awk '/^Final:/ { print $(NF - 2) * 1048576 }'
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
}
# Others use this host's cores too: of some rounds in turn the best of each counts, and where the host has less than a
# core for each process, programs that wait by turning measure each other's waiting: then nothing is said.
busy() { awk -v cores="$(nproc)" '{ exit !($1 > cores) }' /proc/loadavg; }
agrees() { # METHOD TOOL
  local round best
  best='0 0'
  for round in {1..8}; do
    best=$(printf '%s %s %s\n' "$best" "$(ours "$1")" "$($2)" | awk '{ a = $3 > $1 ? $3 : $1; b = $4 > $2 ? $4 : $2; print a, b }')
    printf 'round %s: best so far, ours and %s: %s\n' "$round" "$2" "$best"
    awk '{ exit !($1 > 0 && $2 > 0 && $1 < 1.2 * $2 && $2 < 1.2 * $1) }' <<< "$best" && return 0
  done
  return 1
}
compare() { # METHOD TOOL PROGRAM
  local why=''
  command -v "$3" > /dev/null || why="$3 is not installed"
  [[ $1 != ucx ]] || swell topo calibrate --local --pairs 1 --seconds 0.01 --sizes 8 --method ucx -o "$work/x.json" > /dev/null 2>&1 ||
    why='this swell was built without UCX'
  if [[ -z $why ]]; then
    agrees "$1" "$2" > "$work/agreed" 2>&1
    local good=$?
    ((good == 0)) || ! busy || why="this host is busy: $(tail -n 1 "$work/agreed")"
  fi
  if [[ -n $why ]]; then
    count=$((count + 1))
    printf 'ok %s - %s within 20 %% of %s # SKIP %s\n' "$count" "$1" "$3" "$why"
  else
    check "$1 is within 20 % of $3: $(tail -n 1 "$work/agreed")" shown_as "$good"
  fi
}
shown_as() { cat "$work/agreed" && return "$1"; }

cluster_up --nodes 4 --gpus-per-node 0 --no-accounting --topo-dir "$topo"
compare tcp iperf iperf3
compare ucx perftest ucx_perftest
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
is_used() {
  swell topo --cluster --calibration "$work/cal.json" > shown
  cat shown
  grep -qE '^same switch .* measured +description$' shown && grep -q '^calibrated 20' shown
}
check 'the file is what swell topo --cluster reads' is_used
outside() { [[ $(swell topo calibrate 2>&1) == 'swell: this is no allocation of Slurm: run it in one, '* ]]; }
check 'outside an allocation that is said' outside

finish_tests
