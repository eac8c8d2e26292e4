# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Part of contrib/cluster: starting, finding, awaiting and killing one daemon.

# as_user USER COMMAND...: as that user, where we are root and it is another.
as_user() {
  local user=$1
  shift
  if ((EUID == 0)) && [[ $user != root ]]; then
    setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
  else
    "$@"
  fi
}

# launch DAEMON USER COMMAND...: in the background, in a session of its own. `stop` recognizes it and its
# children by SWELL_CLUSTER_DAEMON in their environment.
launch() {
  local daemon=$1 user=$2 fd pid as=()
  shift 2
  if ((EUID == 0)) && [[ $user != root ]]; then
    as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups)
  fi
  (
    cd "$dir/run" || exit 1
    # The caller's own descriptors (a test's lock, say) must not stay open in a daemon.
    for fd in "/proc/$BASHPID/fd/"*; do
      fd=${fd##*/}
      if ((fd > 2 && fd != 255)); then eval "exec $fd>&-"; fi
    done
    exec env "SWELL_CLUSTER_DAEMON=$dir" "SLURM_CONF=$conf" "MYSQL_UNIX_PORT=$dir/db/sock" \
      setsid ${as[@]+"${as[@]}"} "$@" < /dev/null >> "$dir/log/$daemon.err" 2>&1
  ) &
  pid=$!
  disown "$pid"
  # Until it carries the mark or has ended: before that, daemon_pid would not know it.
  until is_ours "$pid" || [[ ! -e /proc/$pid/exe ]]; do sleep 0.002; done
  printf '%s\n' "$pid" > "$dir/run/$daemon.pid"
}

# daemon_pid DAEMON: prints its pid; false where it does not run. A pid that was given to some other
# process since does not count.
daemon_pid() {
  local pid=''
  { read -r pid < "$dir/run/$1.pid"; } 2> /dev/null
  [[ $pid =~ ^[0-9]+$ ]] && is_ours "$pid" && printf '%s\n' "$pid"
}

# has_ended DAEMON: at two looks, since a process that executes another program has no environment for a moment.
has_ended() { ! daemon_pid "$1" > /dev/null && sleep 0.5 && ! daemon_pid "$1" > /dev/null; }

is_ours() { grep -qszxF -- "SWELL_CLUSTER_DAEMON=$dir" "/proc/$1/environ"; }

launch_daemon() {
  case $1 in
    munged) launch_munged ;;
    mariadbd) launch_mariadbd ;;
    slurmdbd) launch slurmdbd "$slurm_user" slurmdbd -D ;;
    slurmctld) launch slurmctld "$slurm_user" slurmctld -D $(ignore_lost_usage) -f "$conf" ;;
    slurmd.*) launch "$1" "$slurmd_user" slurmd -D -f "$conf" -N "${1#slurmd.}" ;;
  esac
}

# ignore_lost_usage: an option for slurmctld of 26.05 and later, which does not start where it was killed before it had
# saved associations' usage for the first time.
ignore_lost_usage() {
  local said
  [[ -e $dir/state/job_state && ! -e $dir/state/assoc_usage ]] || return 0
  said=$(slurmctld -V)
  [[ ${said##* } < 26 ]] || printf -- '-i'
}

launch_munged() {
  rm -f "$dir/munge/sock" "$dir/munge/sock.lock"
  launch munged "$munge_user" munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/sock" \
    --pid-file="$dir/munge/pid" --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed"
}

# The database has no grant tables: whoever reaches its socket may do all, so the socket lies in a folder
# that only the Slurm user can enter, and it has no port. It survives its own kill -9, not a power cut.
launch_mariadbd() {
  local options
  mapfile -t options < <(mariadbd_options)
  launch mariadbd "$slurm_user" mariadbd "${options[@]}" --socket="$dir/db/sock" --pid-file="$dir/db/pid" \
    --log-error="$dir/log/mariadbd.log" --skip-networking --skip-grant-tables --innodb-lock-wait-timeout=900
}

mariadbd_options() {
  printf -- '%s\n' --no-defaults "--datadir=$dir/db/data" "--tmpdir=$dir/db/tmp" --innodb-buffer-pool-size=64M \
    --innodb-log-file-size=16M --innodb-undo-tablespaces=0 --innodb-flush-log-at-trx-commit=2 \
    --innodb-flush-method=O_DIRECT_NO_FSYNC
}

# answers DAEMON: it does its work.
answers() {
  case $1 in
    munged) as_user "$munge_user" munge -S "$dir/munge/sock" -n > /dev/null 2>&1 ;;
    mariadbd) database 'select 1' > /dev/null 2>&1 ;;
    slurmdbd) listens "$(dbd_port)" ;;
    slurmctld) client scontrol ping 2> /dev/null | grep ' is UP' > /dev/null ;;
    slurmd.*) [[ $(client sinfo -h -N -n "${1#slurmd.}" -o %t 2> /dev/null | head -n 1) =~ ^(idle|mix|alloc|comp|resv)$ ]] ;;
  esac
}

# At 127.0.0.1 or at all addresses: a backup of slurmctld that a test runs has another.
listens() { grep -qsiE "^ *[0-9]+: (0100007F|0{8}|0{32}):$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; }

database() { as_user "$slurm_user" mariadb --no-defaults --socket="$dir/db/sock" -e "$1"; }

# await DAEMON: until it answers; false where it ended or the deadline passed, with the reason in why.
await() {
  until answers "$1"; do
    if has_ended "$1"; then
      why="$1 ended by itself"
      return 1
    fi
    if (($(now_ms) > deadline_ms)); then
      why="$1 did not answer in time (--timeout)"
      return 1
    fi
    sleep 0.03
  done
}

# explain DAEMON: the end of what it wrote.
explain() {
  local file
  for file in "$dir/log/$1.err" "$dir/log/$1.log"; do
    [[ -s $file ]] || continue
    printf -- '--- the end of %s\n' "${file##*/}"
    tail -n 15 -- "$file"
    # Slurm's daemons write the same to both.
    [[ $1 != slurm* ]] || break
  done >&2
}

# run_daemon DAEMON: starts one again, in a cluster that has been started.
run_daemon() {
  local deadline_ms pid why=''
  if pid=$(daemon_pid "$1"); then die "$1 of cluster '$name' is running (pid $pid): kill it first"; fi
  deadline_ms=$(($(now_ms) + timeout_s * 1000))
  # A child of a slurmctld that was killed (slurmscriptd) may hold its socket for a moment more.
  if [[ $1 == slurmctld ]]; then
    while listens "$(ctld_port)"; do
      (($(now_ms) <= deadline_ms)) || die "port $(ctld_port), slurmctld's, is still in use"
      sleep 0.02
    done
  fi
  launch_daemon "$1"
  await "$1" || {
    explain "$1"
    die "$why"
  }
}

# stop_between_saves PID: slurmctld is stopped where it replaces none of its state files. Killed between the old one's end and
# the new one's name, 26.05 does not start again without -i ("fatal: No Assoc usage file").
stop_between_saves() {
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    kill -s STOP "$1" || return
    [[ -n $(find "$dir/state" -maxdepth 1 -name '*.new' ! -name 'swell*' -print -quit) ]] || return
    kill -s CONT "$1"
    sleep 0.01
  done
}

kill_daemon() {
  local pid deadline_ms
  pid=$(daemon_pid "$1") || die "$1 of cluster '$name' is not running"
  [[ $1 != slurmctld || ! $2 =~ ^(9|(SIG)?KILL)$ ]] || stop_between_saves "$pid"
  kill -s "$2" "$pid" || die "cannot signal $1 (pid $pid)"
  deadline_ms=$(($(now_ms) + 30000))
  while is_ours "$pid"; do
    (($(now_ms) <= deadline_ms)) || die "$1 (pid $pid) still runs 30 s after signal $2: try -9"
    sleep 0.02
  done
}
