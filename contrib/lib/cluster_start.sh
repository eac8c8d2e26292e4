# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Part of contrib/cluster: the start of a whole cluster.

start_cluster() {
  local deadline_ms begun_ms why='' claimed=no lock='' errors
  begun_ms=$(now_ms)
  deadline_ms=$((begun_ms + timeout_s * 1000))
  slurmds=${slurmds:-$nodes}
  ((slurmds <= nodes)) || die "--slurmd '$slurmds': the cluster has only $nodes nodes"
  (($(node_groups | wc -l) <= nodes)) || die "--gpu-type '$gpu_type': more types than the $nodes nodes; give one for each node at most"
  check_programs
  check_plugins
  # A trap runs under the redirections of the command that it interrupts.
  exec {errors}>&2
  trap 'fail "" interrupted' INT TERM HUP
  claim_folder

  make_folders
  make_wrappers || fail '' "cannot write to $dir/bin"
  write_configuration || fail '' "cannot write the configuration into $dir/etc"
  launch_daemon munged
  if [[ $accounting == yes ]]; then
    make_database > "$dir/log/database.err" 2>&1 || fail database "cannot make the database"
    launch_daemon mariadbd
    await mariadbd || fail mariadbd "$why"
    await munged || fail munged "$why"
    launch_daemon slurmdbd
    await slurmdbd || fail slurmdbd "$why"
    make_accounts > "$dir/log/accounts.err" 2>&1 || fail accounts "cannot make the accounts"
  else
    await munged || fail munged "$why"
  fi
  launch_daemon slurmctld
  launch_slurmds
  await slurmctld || fail slurmctld "$why"
  await_nodes

  trap - INT TERM HUP
  start_pid=''
  save_cluster
  printf 'cluster %s: %s nodes (%s slurmd), %s GPUs a node, %s; %s ms\n' "$name" "$nodes" "$slurmds" \
    "$gpus_per_node" "$([[ -n $plugins ]] && printf swell || printf 'stock Slurm')" $(($(now_ms) - begun_ms))
  # shellcheck disable=SC2016
  printf 'use it: eval "$(contrib/cluster env %s)"\n' "--dir $dir"
}

check_programs() {
  local one missing=() programs=(munged munge slurmctld slurmd scontrol sinfo setsid setpriv flock)
  [[ $accounting == yes ]] && programs+=(slurmdbd sacctmgr mariadbd mariadb)
  for one in "${programs[@]}"; do
    command -v "$one" > /dev/null || missing+=("$one")
  done
  ((${#missing[@]} == 0)) || die "not installed: ${missing[*]}; run contrib/setup"
  id -u "$slurm_user" > /dev/null 2>&1 || die "no system user '$slurm_user': run contrib/setup"
}

# claim_folder: under the base folder's lock, makes sure that nobody has this cluster, makes the folder
# and notes its ports. From here on `stop` can find everything.
claim_folder() {
  mkdir -p -- "$(dirname "$dir")" || die "cannot make the folder $dir"
  # Its name is known beforehand and /tmp is everybody's: whoever owns it can replace what is in it.
  [[ $(dirname "$dir") != "$base" || -O $base ]] || die "$base belongs to another user: remove it, or name another with --dir"
  lock_base
  if [[ -e $dir ]]; then
    if [[ -f $dir/cluster.conf ]]; then
      if starter_alive || [[ -n $(cluster_pids) ]]; then
        die "cluster '$name' runs already in $dir: use it, stop it, or give another --name"
      fi
      rm -rf -- "$dir"
    elif [[ -n $(ls -A -- "$dir" 2>&1) ]]; then
      die "--dir '$dir': the folder is not empty; name one that is not there yet"
    fi
  fi
  claimed=yes
  mkdir -p -- "$dir" || die "cannot make the folder $dir"
  as_user "$slurm_user" test -x "$dir" ||
    fail '' "user $slurm_user cannot enter $dir; chmod a+x the folders above it, or name another with --dir"
  choose_ports
  # shellcheck disable=SC2034  # save_cluster writes it
  start_pid=$$
  save_cluster
  exec {lock}>&-
  lock=''
}

make_folders() {
  local one
  if ! mkdir "$dir"/{etc,log,run,state,spool,gpus,munge,db,db/data,db/tmp} || ! chmod 700 "$dir/db" ||
    ! (umask 077 && head -c 1024 /dev/urandom > "$dir/munge/key") || ! chmod 400 "$dir/munge/key"; then
    fail '' "cannot make folders in $dir"
  fi
  for one in $(daemon_names); do
    : > "$dir/log/$one.log"
    if [[ $one == slurmd.* ]]; then mkdir "$dir/spool/${one#slurmd.}"; fi
  done
  : > "$dir/etc/slurmdbd.conf" && chmod 600 "$dir/etc/slurmdbd.conf"
  ((EUID == 0)) || return 0
  if ! chown -R "$slurm_user:" "$dir"/{etc,log,run,state,db} ||
    ! chown -R "$munge_user:" "$dir/munge" "$dir/log/munged.log"; then
    fail '' "cannot give the folders in $dir to user $slurm_user"
  fi
}

# The server's tables for stored procedures and the like, which slurmdbd needs, and nothing else that
# mariadb-install-db would make. By a server that ends in order: one that is killed soon after it made its
# files leaves them unusable. And slurmdbd's own database: where it is not there, slurmdbd of 24.11 connects twice
# by one handle, which MariaDB's client since 11.8.9 leaves with room for no column ("Number of columns in result (=1)").
make_database() {
  local tables='' options
  for tables in /usr/share/{mysql,mariadb}/{mysql,mariadb}_system_tables.sql; do
    [[ -f $tables ]] && break
  done
  mapfile -t options < <(mariadbd_options)
  {
    printf 'create database slurm_acct;\ncreate database mysql;\nuse mysql;\n'
    cat -- "$tables"
  } | SWELL_CLUSTER_DAEMON=$dir as_user "$slurm_user" mariadbd "${options[@]}" --bootstrap
}

make_accounts() {
  local list user caller
  caller=$(id -un)
  list=$caller,root,nobody
  [[ -n ${SUDO_USER:-} ]] && users+=("$SUDO_USER")
  for user in ${users[@]+"${users[@]}"}; do list+=,$user; done
  # One sacctmgr for all lines, not one for each: every message to slurmdbd takes 40 ms (the kernel's
  # delayed acknowledgement), and a new connection takes several.
  if [[ $stock == yes ]]; then
    printf '%s\n' "add cluster $name" "add account research cluster=$name" "add user $list DefaultAccount=research cluster=$name" quit
  else
    # A job that gets into the expansion QOS past job_submit gains nothing: charged as any other, of the lowest
    # priority, ended for basic demand; limits of users go onto associations or a partition's QOS. See swell-admin(7).
    cat << LINES
add qos expansion set GraceTime=$grace_s Priority=1 PreemptMode=cancel UsageFactor=1
add cluster $name set QOS=normal,expansion DefaultQOS=normal
add account research cluster=$name
add user $list DefaultAccount=research cluster=$name
modify qos normal set Preempt=expansion Priority=100
quit
LINES
  fi | client sacctmgr -i
}

launch_slurmds() {
  local i
  for ((i = 1; i <= slurmds; i++)); do launch_daemon "slurmd.node$i"; done
}

await_nodes() {
  local i idle
  ((slurmds > 0)) || return 0
  while :; do
    idle=$(client sinfo -a -h -N -t idle -o '%N %t' 2> /dev/null | sort -u | grep -c ' idle$')
    ((idle >= slurmds)) && return 0
    for ((i = 1; i <= slurmds; i++)); do
      ! has_ended "slurmd.node$i" || fail "slurmd.node$i" "slurmd.node$i ended by itself"
    done
    ! has_ended slurmctld || fail slurmctld 'slurmctld ended by itself'
    (($(now_ms) <= deadline_ms)) || fail slurmctld "only $idle of $slurmds nodes became idle in time (--timeout)"
    sleep 0.03
  done
}

# fail DAEMON REASON: ends a start that cannot succeed, and leaves nothing of it.
fail() {
  trap '' INT TERM HUP
  exec 2>&"$errors"
  [[ -z $1 ]] || explain "$1"
  if [[ $claimed == yes ]]; then
    [[ -z $lock ]] || exec {lock}>&-
    end_cluster
  fi
  die "cluster '$name' did not start: $2"
}
