#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A site that says which ports Slurm uses: slurmctld has several, and srun few, which a firewall leaves open.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 3 --gpus-per-node 4 --conf SlurmctldParameters=preempt_send_user_signal

# Within the cluster's own block of ports: four for slurmctld, and 40 for the sruns of all jobs.
read -r first last < <(sed -n 's/^SrunPortRange=\([0-9]*\)-\([0-9]*\)$/\1 \2/p' "$SLURM_CONF")
restarted_with_ranges() {
  sed -i "s/^SlurmctldPort=.*/SlurmctldPort=$first-$((first + 3))/; s/^SrunPortRange=.*/SrunPortRange=$((first + 4))-$((first + 43))/" "$SLURM_CONF" &&
    for one in node1 node2 node3; do "$cluster" kill-slurmd "$one"; done && "$cluster" restart-ctld &&
    for one in node1 node2 node3; do "$cluster" start-slurmd "$one" || return; done &&
    [[ $(scontrol show config | sed -n 's/^SlurmctldPort *= //p') == "$first-$((first + 3))" ]] && within 60 all_idle
}
all_idle() { [[ $(sinfo -h -t idle -o %D) == 3 ]]; }
check 'slurmctld and the nodes run with ranges of ports' restarted_with_ranges

# The ports at which the processes of swellrun listen.
listening() {
  local inodes state address inode
  inodes=" $(find "/proc/$1/fd" -lname 'socket:*' -printf '%l ' 2> /dev/null | tr -dc '0-9 ')"
  while read -r _ address _ state _ _ _ _ _ inode _; do
    [[ $state != 0A || $inodes != *" $inode "* ]] || printf '%s\n' $((16#${address##*:}))
  done < <(cat /proc/net/tcp /proc/net/tcp6 2> /dev/null)
}
within_range() {
  local port ports
  ports=$(listening "$(cat "$work/$job/swellrun.pid")")
  [[ -n $ports ]] || return
  for port in $ports; do ((first + 4 <= port && port <= first + 43)) || { echo "it listens at $port"; return 1; }; done
}
grows_and_returns() {
  submit --elastic=max=12,grace=5 --gres=gpu:4 && within 40 grown "$job" 12 && settled && within_range &&
    rigid --gres=gpu:4 && within 30 in_state "$rigid_job" RUNNING && within 30 grown "$job" 8 && scancel "$rigid_job" && within 40 grown "$job" 12 &&
    swell jobs "$job" && swell why "$job" && swell top --once && swell history "$job" | grep companion || return
  swell pause "$job" && swell resume "$job" && touch "$work/$job/finish" && within 20 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]]
}
check 'jobs grow and give back, tools work, and swellrun listens where srun may' grows_and_returns

sound() { swell doctor && swell doctor | grep "slurmctld: cluster .* answers"; }
check 'doctor finds slurmctld, and no faults' sound

# A port at which the first connections end before they are answered, as those of a server under a flood may.
loses_connections() { # N COMMAND...: through such a port
  local lost=$1 port result
  shift
  rm -f "$work/lossy"
  python3 - "$lost" "$(sed -n 's/^ControlPort=//p' "$(dirname "$SLURM_CONF")/swell.conf")" "$work/lossy" << 'EOF' &
import os, socket, sys, threading
lost, to, told = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
door = socket.create_server(("0.0.0.0", 0))
with open(told + ".new", "w") as file: file.write(str(door.getsockname()[1]))
os.rename(told + ".new", told)
def hand_on(source, target):
    try:
        while data := source.recv(65536): target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError: pass
while True:
    one, _ = door.accept()
    if lost > 0:
        lost -= 1
        one.close()
        continue
    other = socket.create_connection(("127.0.0.1", to))
    for ends in ((one, other), (other, one)): threading.Thread(target=hand_on, args=ends, daemon=True).start()
EOF
  local proxy=$!
  within 10 test -s "$work/lossy" && port=$(cat "$work/lossy") && SWELL_CONTROL_PORT=$port "$@"
  result=$?
  kill "$proxy"
  wait "$proxy" 2> /dev/null
  return "$result"
}
asks_again() {
  loses_connections 2 swell top --once > "$work/said" && ! grep 'does not answer' "$work/said" || return
  ! loses_connections 3 swell why 1 > "$work/said" 2>&1 && cat "$work/said" && grep -F "Swell's controller does not run, or cannot be reached" "$work/said"
}
check 'tools ask again where a connection ends without an answer, and give up after the third' asks_again

# Other programs have a part of the range.
some_are_taken() {
  python3 - $((first + 4)) $((first + 43)) "$work/hold" <<'EOF' &
import os, socket, sys, time
held = []
for port in range(int(sys.argv[1]), int(sys.argv[2]) + 1, 1):
    if port % 4: continue
    try:
        one = socket.socket(); one.bind(("0.0.0.0", port)); one.listen(); held.append(one)
    except OSError:
        pass
open(sys.argv[3], "w").write(str(len(held)))
while os.path.exists(sys.argv[3]): time.sleep(0.1)
EOF
  within 20 test -s "$work/hold" && submit --elastic=max=8,grace=5 --gres=gpu:4 && within 40 grown "$job" 8 && within_range
  local result=$?
  rm -f "$work/hold"
  wait
  return $result
}
check 'so it does where other programs have some of them' some_are_taken

finish_tests
