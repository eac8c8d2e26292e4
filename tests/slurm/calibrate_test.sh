#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell topo calibrate: against other programs that measure, on this host in the same run; and in an allocation.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
topo=$TMPDIR/topo
mkdir -m 755 "$topo"
for n in {1..4}; do printf '{"v":1,"leaf":"leaf%s"}\n' $(((n + 1) / 2)) > "$topo/node$n.json"; done

# The same for both who measure: messages of one size (the largest that iperf3 takes, and a usual one of ours), and each
# end on a core of its own. Where both ends may share one, or
# the one that waits may lend its core to a neighbour, the same program measures twice as much from run to run.
declare -A bytes=([tcp]=1048576 [ucx]=2097152)
end_on() { # CORE COMMAND...
  local core=$1
  shift
  if (($(nproc) > 1)) && command -v taskset > /dev/null; then taskset -c "$core" "$@"; else "$@"; fi
}
ours() { # METHOD: bytes a second
  local options=(topo calibrate --method "$1" --seconds 1 --sizes "${bytes[$1]}") server
  : > "$work/port"
  end_on 0 swell "${options[@]}" --serve 127.0.0.1 > "$work/port" &
  server=$!
  within 10 test -s "$work/port" || return
  end_on 1 swell "${options[@]}" --connect "127.0.0.1:$(sed -n 's/^port //p' "$work/port")" > "$work/ours.json" || return
  wait "$server"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["classes"][0]["gbytes_per_s"] * 1e9)' "$work/ours.json"
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
iperf() {
  local port server
  port=$(free_port)
  end_on 0 iperf3 -s -1 -B 127.0.0.1 -p "$port" > /dev/null 2>&1 &
  server=$!
  sleep 0.5 # as below: it does not say when it listens
  end_on 1 timeout 20 iperf3 -c 127.0.0.1 -p "$port" -t 1 -l "${bytes[tcp]}" -J > "$work/iperf.json"
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
  python3 -c 'import json; print(json.load(open("'"$work"'/iperf.json"))["end"]["sum_received"]["bits_per_second"] / 8)'
}
perftest() {
  local port server
  port=$(free_port)
  end_on 0 ucx_perftest -p "$port" -t tag_bw -s "${bytes[ucx]}" -n 2000 -w 100 -O 16 > /dev/null 2>&1 &
  server=$!
  sleep 0.5 # it does not say when it listens
  end_on 1 timeout 60 ucx_perftest 127.0.0.1 -p "$port" -t tag_bw -s "${bytes[ucx]}" -n 2000 -w 100 -O 16 2> /dev/null | awk '/^Final:/ { print $(NF - 2) * 1048576 }'
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
}
median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2) }'; }
# Others use this host's cores too, and from one second to the next: so both measure by turns, and the median of
# the ratios of neighbours counts.
agrees() { # METHOD TOOL
  local pair own other ratio
  : > "$work/ratios"
  for pair in {1..30}; do
    if ((pair % 2)); then own=$(ours "$1") other=$($2); else other=$($2) own=$(ours "$1"); fi
    awk -v a="$own" -v b="$other" 'BEGIN { if (!(a > 0 && b > 0)) exit 1; print a / b }' >> "$work/ratios" || return
    ratio=$(median < "$work/ratios")
    printf 'pair %s: ours %s, %s %s bytes a second; median ratio %s\n' "$pair" "$own" "$2" "$other" "$ratio"
    ((pair >= 5)) && awk -v r="$ratio" 'BEGIN { exit !(r < 1.2 && r > 1 / 1.2) }' && return 0
  done
  return 1
}
compare() { # METHOD TOOL PROGRAM
  local why=''
  command -v "$3" > /dev/null || why="$3 is not installed"
  [[ $1 != ucx ]] || swell topo calibrate --local --pairs 1 --seconds 0.01 --sizes 8 --method ucx -o "$work/x.json" > /dev/null 2>&1 ||
    why='this swell was built without UCX'
  # That of Debian 13 wants to be started by mpirun ("should be run with exactly 2 processes").
  [[ -n $why || -n $($2) || -n $($2) ]] || why="$3 of this system measures nothing between two processes"
  if [[ -z $why ]]; then
    agrees "$1" "$2" > "$work/agreed" 2>&1
    local good=$?
  fi
  if [[ -n $why ]]; then
    count=$((count + 1))
    printf 'ok %s - %s within 20 %% of %s # SKIP %s\n' "$count" "$1" "$3" "$why"
  else
    check "$1 is within 20 % of $3: $(tail -n 1 "$work/agreed")" shown_as "$good"
  fi
}
shown_as() { cat "$work/agreed" && return "$1"; }

cluster_up --nodes 4 --gpus-per-node 2 --no-accounting --topo-dir "$topo"
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
with_gpus() { salloc -N2 --gpus-per-node=2 --quiet swell topo calibrate --method tcp --pairs 1 --seconds 0.005 -o "$work/gpus.json"; }
check 'in an allocation with GPUs too' with_gpus
outside() { [[ $(swell topo calibrate 2>&1) == 'swell: this is no allocation of Slurm: run it in one, '* ]]; }
check 'outside an allocation that is said' outside

finish_tests
