#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Processes of another user, without a job, reach for every socket of a live training: its keepers, the sockets of its
# shims, its agent. The job belongs to games, who may have few processes and open files; strangers belong to backup.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run as root'
cluster_up --nodes 2 --gpus-per-node 2 --users games
trap 'strangers_leave; cluster_down; rm -rf "$TMPDIR"' EXIT
# Slurm gives the job the limits that its user has here.
sbatch() { as games bash -c "ulimit -S -u ${processes:-unlimited} -n 1024 && exec sbatch \"\$@\"" sbatch "$@"; }

strangers=()
come() { # WHAT...: a process of backup does it; returns when it has done it once
  local said=$TMPDIR/said.${#strangers[@]}
  python3 "$here/strangers.py" backup "$@" > "$said" &
  strangers+=("$!")
  within 60 grep -q here "$said"
}
strangers_leave() {
  ((${#strangers[@]} == 0)) || { kill "${strangers[@]}" && wait "${strangers[@]}"; } 2> /dev/null
  strangers=()
  rm -f "$TMPDIR"/said.*
}
shims() { # of the job's own GPUs and of lent ones
  local id pid
  for id in "$job" $(companions "$job"); do
    for pid in $(processes_with "SLURM_JOB_ID=$id"); do [[ $(cat "/proc/$pid/comm" 2> /dev/null) == swell-worker ]] && printf '%s\n' "$pid"; done
  done | sort -u
}
ports_of() { python3 "$here/strangers.py" listeners "$@"; } # PID...
# shellcheck disable=SC2046 # words
keepers() { ports_of $(shims); }
most_threads() { for pid in $(shims); do find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l; done | sort -n | tail -n 1; }
most_files() { for pid in $(shims); do find "/proc/$pid/fd" -mindepth 1 | wc -l; done | sort -n | tail -n 1; }
switched_so_often() { (($(grep -c '"event":"switch-committed"' "$out/events") == $1)); }
undisturbed() { # every switch was made live, and none was called off
  ! grep -E 'called off|not all workers|of no use|last checkpoint|could not begin' "$work/$job.out" && handed_over
}

# attacker/06 (a): as many silent connections as would take all processes that the user may have.
silent_ones() {
  local ports
  processes=600 live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && switched_so_often 1 && mapfile -t ports < <(keepers) || return
  printf 'keepers listen on %s\n' "${ports[*]}"
  ((${#ports[@]} == 4)) && come silent 700 "${ports[@]}" || return
  printf 'a shim has %s threads and %s open files\n' "$(most_threads)" "$(most_files)"
  (($(most_threads) < 60 && $(most_files) < 400)) || return
  # (c): lent GPUs go back while they are there, and others are lent.
  as games swell max "$job" 2 && within 60 live_grown 2 && switched_so_often 2 && as games swell max "$job" 4 && within 120 live_grown 4 && switched_so_often 3 || return
  strangers_leave
  as games swell max "$job" 2 && within 60 live_grown 2 && switched_so_often 4 && undisturbed && well_ended
}
check 'silent strangers at its workers neither end a live job nor disturb its switches' silent_ones

# (b): more of them than a worker may have open files, and without end.
endless_ones() {
  local ports how
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 || return
  for how in flood garbage; do
    mapfile -t ports < <(keepers)
    come "$how" 400 "${ports[@]}" && come "$how" 400 "${ports[@]}" || return
    as games swell max "$job" 2 && within 60 live_grown 2 && as games swell max "$job" 4 && within 120 live_grown 4 || return
    strangers_leave
  done
  switched_so_often 5 && undisturbed && well_ended
}
check 'strangers that come without end do not disturb it, with or without garbage' endless_ones

# shellcheck disable=SC2046 # words
ticks_of() { awk '{ sum += $14 + $15 } END { print sum }' $(printf '/proc/%s/stat ' "$@"); }
datagrams() {
  local pids names before
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && mapfile -t pids < <(shims) &&
    mapfile -t names < <(python3 "$here/strangers.py" datagrams "${pids[@]}") || return
  ((${#names[@]} == 4)) && come send "${names[@]}" || return
  before=$(ticks_of "${pids[@]}")
  sleep 3
  printf '%s ticks of %s shims in 3 s\n' $(($(ticks_of "${pids[@]}") - before)) ${#pids[@]}
  (($(ticks_of "${pids[@]}") - before < 15)) && strangers_leave && undisturbed && well_ended
}
check 'datagrams of strangers cost its shims nothing' datagrams

others_reach_none() {
  local pids paths
  live --elastic=mode=live,max=2 --gres=gpu:2 -w node1 && within 120 live_grown 2 && mapfile -t pids < <(shims) &&
    mapfile -t paths < <(python3 "$here/strangers.py" sockets "${pids[@]}") || return
  ((${#paths[@]} == 2)) && python3 "$here/strangers.py" backup reach "${paths[@]}" && ! python3 "$here/strangers.py" games reach "${paths[@]}" && well_ended
}
check "nobody but its user reaches the sockets of a job's programs" others_reach_none

# The workers of a growth come up while strangers flood the agent.
at_the_agent() {
  local port
  live --elastic=mode=live,max=4 --gres=gpu:2 -w node1 && within 120 live_grown 4 && as games swell max "$job" 2 && within 60 live_grown 2 &&
    port=$(ports_of "$(cat "$out/swellrun.pid")") || return
  printf 'the agent listens on %s\n' "$port"
  come flood 100 "$port" && come garbage 100 "$port" || return
  as games swell max "$job" 4 && within 120 live_grown 4 && switched_so_often 3 && strangers_leave && undisturbed && well_ended
}
check 'a job grows while strangers flood its agent' at_the_agent
# From the start of the program to its listening another user's process tries to get the port, as a connection and by number.
cat > "$work/meets.py" << 'EOP'
import os, socket, time
port = os.environ["MASTER_PORT"]
open("port.new", "w").write(port)
os.rename("port.new", "port")
while not os.path.exists("tried"):
    time.sleep(0.05)
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.bind(("", int(port)))
one.listen()
open("listens", "w").close()
EOP
neighbour() {
  local port low high
  job=$(cd "$work" && sbatch --parsable --output="$work/%j.out" --elastic=max=2 --gres=gpu:1 --wrap 'swellrun python3 meets.py') && within 60 test -e port || return
  port=$(cat port)
  read -r low high < /proc/sys/net/ipv4/ip_local_port_range
  printf 'MASTER_PORT is %s, connections are given %s to %s\n' "$port" "$low" "$high"
  ((port < low || port > high)) || return
  python3 "$here/strangers.py" backup take "$port" && : > tried && within 60 test -e listens && within 60 ended "$job" &&
    [[ $(sacct -n -X -j "$job" -o State | tr -d ' ') == COMPLETED ]]
}
check 'no neighbour is given MASTER_PORT before the program listens on it' neighbour
finish_tests
