# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034  # the other parts of contrib/cluster use these variables
#
# Part of contrib/cluster: the options' defaults, a cluster's location, and the facts that are remembered about it.

# A job of another cluster may call this script: nothing of that job's Slurm settings may reach ours.
unset -v "${!SLURM@}" "${!SBATCH@}" "${!SALLOC@}" "${!SRUN@}"
PATH=$PATH:/usr/sbin:/sbin
umask 022

name=default dir='' nodes=4 gpus_per_node=8 gpu_type=h100 cpus_per_node=64 slurmds='' accounting=yes
grace_s=30 credential_s='' stock=no slurm='' plugins='' shadow='' topo_dir='' timeout_s=240 keep_logs='' follow=no signal=TERM
users=() conf_lines=() swell_lines=() operands=()

die() {
  printf 'cluster: %s\n' "$*" >&2
  exit 1
}

base=${TMPDIR:-/tmp}/swell-cluster-$UID

# locate_cluster: sets dir to an absolute path without links, so that one folder has one spelling.
locate_cluster() {
  dir=$(realpath -m -- "${dir:-$base/$name}")
  [[ $dir =~ ^/[A-Za-z0-9_./+-]+$ ]] ||
    die "--dir '$dir': Slurm's files take only letters, digits and _ . / + - in a path"
  # Slurm and munge put Unix sockets below the folder, and a socket's path has 107 characters.
  ((${#dir} <= 70)) || die "--dir '$dir': at most 70 characters, for the sockets in it; give a shorter one"
  conf=$dir/etc/slurm.conf
}

# The users that the daemons run as.
if ((EUID == 0)); then
  slurm_user=slurm munge_user=munge slurmd_user=root
  id -u munge > /dev/null 2>&1 || munge_user=slurm
else
  slurm_user=$(id -un) || die "user id $UID has no name: Slurm needs one; add it to the system's users"
  munge_user=$slurm_user slurmd_user=$slurm_user
fi

# Values that later commands need, as Key=Value; read, never sourced.
remembered=(name slurm nodes slurmds accounting plugins first_port start_pid)

save_cluster() {
  local key text=''
  for key in "${remembered[@]}"; do text+="$key=${!key}"$'\n'; done
  printf '%s' "$text" > "$dir/cluster.conf" || die "cannot write to $dir"
}

read_cluster() {
  local key value
  while IFS='=' read -r key value; do
    [[ " ${remembered[*]} " == *" $key "* ]] && printf -v "$key" '%s' "$value"
  done < "$dir/cluster.conf"
}

load_cluster() {
  [[ -f $dir/cluster.conf ]] || die "no cluster '$name' in $dir: start it with contrib/cluster start"
  [[ -O $dir || $EUID -eq 0 ]] || die "$dir belongs to another user"
  read_cluster
}

daemon_names() {
  local names=(munged) i
  [[ $accounting == yes ]] && names+=(mariadbd slurmdbd)
  names+=(slurmctld)
  for ((i = 1; i <= nodes; i++)); do names+=("slurmd.node$i"); done
  printf '%s' "${names[*]}"
}

# client COMMAND...: a Slurm client of this cluster.
client() { SWELL_CLUSTER_DAEMON=$dir SLURM_CONF=$conf timeout --foreground 20 "$@"; }

now_ms() {
  local now=${EPOCHREALTIME/[.,]/}
  printf '%s' "${now%???}"
}

# needs_its_root: false where the cluster has the Slurm of this host, or this is its root already.
needs_its_root() {
  [[ -n $slurm && $slurm != "${SWELL_ROOT_VERSION:-}" ]] || return 1
  [[ -n ${SWELL_ROOT_VERSION:-} || $("$top/contrib/slurm-version" native) != "$slurm" ]]
}

# enter_its_root ARGUMENTS...: this script once more, in a Debian root with the cluster's Slurm. The root's mounts are
# those of the processes in it, and gone with the last of them.
enter_its_root() {
  local binds one
  mkdir -p -- "$(dirname -- "$dir")" || die "cannot make the folder $(dirname -- "$dir")"
  binds=$(dirname -- "$dir")
  for one in "${plugins:+$(dirname -- "$(realpath -m -- "$plugins")")}" "$topo_dir" "$keep_logs"; do
    [[ -z $one ]] || binds+=:$one
  done
  export SWELL_BIND=$binds${SWELL_BIND:+:$SWELL_BIND}
  exec "$top/contrib/slurm-version" run "$slurm" "$top/contrib/cluster" "$@"
}

# make_wrappers: clients of a Slurm that is in a root, for shells outside of it.
make_wrappers() {
  local one folder stage=''
  [[ -n ${SWELL_ROOT_VERSION:-} ]] || return 0
  slurm=$SWELL_ROOT_VERSION
  mkdir "$dir/bin" || return
  folder=$(dirname -- "$dir")
  if [[ -n $plugins ]]; then
    stage=$(dirname -- "$plugins")
    folder+=:$stage
  fi
  for one in /usr/bin/{sacct,sacctmgr,salloc,sattach,sbatch,scancel,scontrol,sdiag,sinfo,sprio,squeue,sreport,srun,sstat} \
    ${stage:+"$stage"/bin/*}; do
    # Its jobs, in the root, get this shell's PATH.
    cat > "$dir/bin/${one##*/}" << WRAPPER || return
#!/bin/sh
[ -z "\$SWELL_ROOT_VERSION" ] || exec $one "\$@"
SWELL_BIND=$folder exec $top/contrib/slurm-version run $slurm $one "\$@"
WRAPPER
    chmod 755 "$dir/bin/${one##*/}" || return
  done
}

print_env() {
  [[ ! -d $dir/bin || -n ${SWELL_ROOT_VERSION:-} ]] || printf "export PATH='%s':\"\$PATH\"\n" "$dir/bin"
  printf "export SLURM_CONF='%s'\n" "$conf"
  printf "export SWELL_CLUSTER_DIR='%s'\n" "$dir"
  printf "export SWELL_CLUSTER_NAME='%s'\n" "$name"
}

print_status() {
  local one pid missing=0
  printf 'cluster %s in %s\n' "$name" "$dir"
  for one in $(daemon_names); do
    if pid=$(daemon_pid "$one"); then
      printf '  %-16s %s\n' "$one" "$pid"
    elif [[ $one == slurmd.node* ]] && ((${one#slurmd.node} > slurmds)); then
      continue
    else
      printf '  %-16s not running\n' "$one"
      missing=1
    fi
  done
  if daemon_pid slurmctld > /dev/null; then client sinfo || missing=1; fi
  return $missing
}

print_logs() {
  local one=${operands[0]:-} file files=() lines=10
  if [[ -n $one ]]; then
    operand daemon
    files=("$dir/log/$one.log")
    lines=+1
  else
    for file in "$dir"/log/*.log; do [[ -s $file ]] && files+=("$file"); done
  fi
  if [[ $follow == yes ]]; then exec tail -n "$lines" -f "${files[@]}"; fi
  tail -n "$lines" "${files[@]}"
  # Output of a daemon besides its log, such as its last words in a crash.
  for file in "${files[@]}"; do
    file=${file%.log}.err
    if [[ -s $file ]] && grep -qvE '^(slurm[a-z]*|munged): ' "$file"; then
      printf '==> %s <==\n' "${file##*/}"
      grep -vE '^(slurm[a-z]*|munged): ' "$file" | tail -n "$lines"
    fi
  done
}
