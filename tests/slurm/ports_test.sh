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
