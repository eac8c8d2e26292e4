#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Two slurmctlds, one of them the backup on another host (of its own name and address): whichever controls, jobs grow and shrink.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $(id -u) == 0 ]] || skip 'a host name of its own takes root'
unshare --uts --mount true 2> /dev/null || skip 'no namespaces can be made here'
agent_timeout=15 cluster_up --nodes 1 --gpus-per-node 4 --conf "SlurmctldHost=$(hostname -s)(127.0.0.1)" --conf 'SlurmctldHost=backup(127.0.0.2)' \
  --conf CommunicationParameters=NoCtldInAddrAny --conf SlurmctldTimeout=10

etc=$(dirname "$SLURM_CONF")
logs=$(dirname "$etc")/log
backup=''
# Its own file only since both are on this host: pid and log of its own.
start_backup() {
  sed -e 's/^SlurmctldPidFile=.*/&.backup/' -e 's/^SlurmctldLogFile=.*/&.backup/' "$SLURM_CONF" > "$etc/backup.conf" || return
  printf '127.0.0.1 localhost %s\n127.0.0.2 backup\n' "$(hostname -s)" > "$TMPDIR/hosts"
  local user
  user=$(sed -n 's/^SlurmUser=//p' "$SLURM_CONF")
  SWELL_CLUSTER_DAEMON=$(dirname "$etc") SLURM_CONF=$etc/backup.conf unshare --uts --mount \
    bash -c 'hostname backup && mount --bind "$1" /etc/hosts && shift && exec "$@"' - "$TMPDIR/hosts" \
    setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups slurmctld -D -f "$etc/backup.conf" > "$TMPDIR/backup.err" 2>&1 < /dev/null &
  backup=$!
  within 30 grep -q 'slurmctld running in background mode' "$logs/slurmctld.log.backup"
}
said_by_backup() { grep -E -- "$1" "$logs/slurmctld.log.backup"; }
# More often than this many times before: of its log that is written on.
said_again() { (($(said_by_backup "$2" | wc -l) > $1)); }
listens_at() { # ADDRESS: the controller, for agents
  ss -Hltn "src $1" | grep ":$(sed -n 's/^ControlPort=//p' "$etc/swell.conf") "
}

trains_on_four() {
  submit --elastic=max=4,grace=10 --gres=gpu:1 && within 30 grown "$job" 4
}
# Lent GPUs are taken back for another job, and lent again.
goes_and_comes() {
  rigid --gres=gpu:3 && within 60 in_state "$rigid_job" RUNNING && in_state "$job" RUNNING && goes_on "$job" &&
    scancel "$rigid_job" && within 60 grown "$job" 4 && settled
}
takes_over() {
  trains_on_four && scontrol takeover && within 30 listens_at 127.0.0.2 && ! listens_at 127.0.0.1 &&
    within 60 said_by_backup "swell: job $job: its agent" && within 20 is_lent "$job" 3 && goes_and_comes
}
is_silent_at() { ! listens_at "$1"; }
gives_back() {
  local before
  before=$(said_by_backup 'running in background mode' | wc -l)
  trains_on_four && "$cluster" restart-ctld && within 30 said_again "$before" 'running in background mode' &&
    within 30 listens_at 127.0.0.1 && within 20 is_silent_at 127.0.0.2 && within 20 is_lent "$job" 3 && goes_and_comes
}
# slurmctld saves its state every 5 s, where it has changed, and forgets with its death what came later.
is_saved() { [[ $(dirname "$etc")/state/job_state -nt $TMPDIR/mark ]]; }
dies() {
  trains_on_four && touch "$TMPDIR/mark" && scontrol update job="$job" comment=changed && within 30 is_saved && "$cluster" kill-ctld -KILL && within 60 listens_at 127.0.0.2 && within 20 is_lent "$job" 3 && goes_and_comes
}
# A crash of slurmctld as it ends would otherwise be seen by nobody: the clusters of tests are killed. Slurm 22.05 joins the
# scheduling thread of its first time as the controller once more; where another of its threads has got that one's memory, it
# waits for ever, with Swell or without. Swell's part has ended when its controller listens no more.
ends_well() {
  local status=0
  said_again 1 'Running as primary controller' || { echo 'it has not controlled twice'; return 1; }
  kill -TERM "$backup" && within 60 is_silent_at 127.0.0.2 || return
  if ! within 60 has_ended "$backup"; then
    echo '# slurmctld waits for a thread of its own that ended long ago'
    kill -KILL "$backup" && "$cluster" restart-ctld
    return
  fi
  wait "$backup" || status=$?
  "$cluster" restart-ctld || return # what comes next asks a slurmctld
  ((status == 0)) || { printf 'its exit status: %s\n' "$status"; return 1; }
}
has_ended() { [[ $(ps -o stat= -p "$1") =~ ^(Z.*)?$ ]]; }

check 'a backup waits' start_backup
check 'the backup takes over: what is lent stays, is taken back and lent again' takes_over
check 'under the backup a job starts large' trains_on_four
check 'the primary comes back, and so does its controller' gives_back
check 'the primary is killed: the backup goes on with what is lent' dies
check 'the backup, which has controlled twice, ends with status 0' ends_well

finish_tests
