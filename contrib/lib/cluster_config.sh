# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Part of contrib/cluster: the configuration files of a cluster.

# Slurm can bind its sockets to every address or to that of the host's name. The latter serves us only where
# that is 127.0.0.1: slurmd connects back to the address that srun's message came from. Elsewhere (127.0.1.1,
# or a container's address) the sockets listen on every address, guarded by the cluster's own munge key.
find_address() {
  local named=''
  read -r named _ < <(getent ahostsv4 "$(uname -n)")
  loopback_only=yes
  [[ $named == 127.0.0.1 ]] && return 0
  loopback_only=no
  printf 'cluster: the name of this host, %s, stands for %s, so Slurm listens on all addresses; %s\n' \
    "$(uname -n)" "${named:-no address}" "for loopback alone, make it stand for 127.0.0.1 in /etc/hosts" >&2
}

write_configuration() {
  local host loopback_only
  find_address
  host=$(uname -n)
  host=${host%%.*}
  default_slurm_conf "$host" | with_lines ${conf_lines[@]+"${conf_lines[@]}"} > "$conf"
  if ((gpus_per_node > 0)); then
    gres_conf > "$dir/etc/gres.conf"
    make_gpus
  fi
  # Nothing here uses cgroups, which Slurm must be told from 23.02 on and cannot be told before.
  case $(slurmctld -V) in
    'slurm-wlm 22.'* | 'slurm 22.'*) ;;
    *) printf 'CgroupPlugin=disabled\n' > "$dir/etc/cgroup.conf" ;;
  esac
  if [[ $accounting == yes ]]; then slurmdbd_conf "$host" > "$dir/etc/slurmdbd.conf"; fi
  if [[ -n $plugins ]]; then
    printf 'optional %s/spank_swell.so%s\n' "$plugins" "${topo_dir:+ topo_json=$topo_dir/%n.json}" > "$dir/etc/plugstack.conf"
    default_swell_conf | with_lines ${swell_lines[@]+"${swell_lines[@]}"} > "$dir/etc/swell.conf"
  fi
}

# node_groups: a line "FIRST LAST TYPE" for each GPU type: the nodes are divided among them, the first have the first.
node_groups() {
  local types i count
  IFS=, read -ra types <<< "$gpu_type"
  count=${#types[@]}
  for ((i = 0; i < count; i++)); do
    printf '%s %s %s\n' $((i * nodes / count + 1)) $(((i + 1) * nodes / count)) "${types[i]}"
  done
}

gres_conf() {
  local first last type
  printf 'AutoDetect=off\n'
  while read -r first last type; do
    printf 'NodeName=node[%s-%s] Name=gpu Type=%s File=%s/gpus/gpu[0-%s]\n' "$first" "$last" "$type" "$dir" $((gpus_per_node - 1))
  done < <(node_groups)
}

# Slurm numbers a GPU by the digits that end its file's name, and wants a device: plain files lose
# CUDA_VISIBLE_DEVICES, links to a device do not.
make_gpus() {
  local i
  for ((i = 0; i < gpus_per_node; i++)); do ln -s /dev/null "$dir/gpus/gpu$i"; done
}

# with_lines LINE...: copies standard input, with the lines put in place of those of the same key; a line without
# a value only takes the key out. NodeName and PartitionName may stand many times: there the key is the name too.
with_lines() {
  local default line key
  while IFS= read -r default; do
    for line; do
      key=$(line_key "$line")
      [[ $(line_key "$default") == "$key" ]] && continue 2
    done
    printf '%s\n' "$default"
  done
  for line; do [[ $line == *= ]] || printf '%s\n' "$line"; done
}

line_key() {
  local first=${1%%[[:space:]]*}
  case ${first,,} in
    nodename=* | partitionname=*) printf '%s' "${first,,}" ;;
    *) first=${1%%=*} && printf '%s' "${first,,}" ;;
  esac
}

default_slurm_conf() {
  local host=$1 sockets=1 cores=$cpus_per_node first last type
  if ((cpus_per_node % 2 == 0)); then
    sockets=2
    cores=$((cpus_per_node / 2))
  fi
  cat << CONF
ClusterName=$name
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(ctld_port)
SrunPortRange=$(srun_port_range)
SlurmUser=$slurm_user
SlurmdUser=$slurmd_user
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock${credential_s:+,cred_expire=$credential_s}
CredType=cred/munge

StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.lock
SlurmdPidFile=$dir/run/slurmd.%n.lock
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
LogTimeFormat=iso8601_ms
MailProg=/bin/true

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MessageTimeout=20
SlurmdTimeout=60

SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SchedulerParameters=bf_interval=5,sched_interval=10,batch_sched_delay=0
CONF
  [[ $stock == yes ]] || printf 'PreemptMode=CANCEL\nSlurmctldParameters=preempt_send_user_signal\n'
  [[ $loopback_only == no ]] || printf 'CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n'
  if ((gpus_per_node > 0)); then
    printf 'GresTypes=gpu\n'
    if [[ $stock == no ]] && ((cpus_per_node >= gpus_per_node)); then
      printf 'DefCpuPerGPU=%s\n' $((cpus_per_node / gpus_per_node))
    fi
  fi
  if [[ $accounting == yes ]]; then
    cat << CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$(dbd_port)
AccountingStoragePass=$dir/munge/sock
CONF
    [[ $stock == yes ]] || printf 'PreemptType=preempt/qos\nAccountingStorageEnforce=associations,limits,qos\n'
    ((gpus_per_node == 0)) || printf 'AccountingStorageTRES=gres/gpu\n'
  elif [[ $stock == no ]]; then
    printf 'PreemptType=preempt/partition_prio\n'
  fi
  if [[ -n $plugins ]]; then
    cat << CONF
PluginDir=${shadow:+$shadow:}$plugins:$stock_plugins
SchedulerType=$([[ -n $shadow ]] && printf sched/backfill || printf sched/swell)
JobSubmitPlugins=swell
CONF
  fi
  printf '\n'
  while read -r first last type; do
    printf 'NodeName=node[%s-%s] NodeHostname=%s NodeAddr=127.0.0.1 Port=[%s] CPUs=%s' "$first" "$last" "$host" "$(slurmd_ports "$first" "$last")" "$cpus_per_node"
    printf ' Boards=1 SocketsPerBoard=%s CoresPerSocket=%s ThreadsPerCore=1 RealMemory=512000' "$sockets" "$cores"
    if ((gpus_per_node > 0)); then printf ' Gres=gpu:%s:%s' "$type" "$gpus_per_node"; fi
    printf '\n'
  done < <(node_groups)
  cat << CONF
PartitionName=train Nodes=ALL Default=YES PriorityTier=10
CONF
  if [[ $accounting == no && $stock == no ]]; then
    printf 'PartitionName=expansion Nodes=ALL Hidden=YES PriorityTier=1 PreemptMode=CANCEL GraceTime=%s\n' "$grace_s"
  fi
}

slurmdbd_conf() {
  cat << CONF
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
DbdHost=$1
DbdAddr=127.0.0.1
DbdPort=$(dbd_port)
SlurmUser=$slurm_user
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/slurmdbd.lock
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct
CONF
  [[ $loopback_only == no ]] || printf 'CommunicationParameters=NoInAddrAny\n'
}

default_swell_conf() {
  printf 'ControlPort=%s\n' "$(control_port)"
  if [[ $accounting == yes ]]; then
    printf 'ExpansionQOS=expansion\n'
  else
    printf 'ExpansionPartition=expansion\n'
  fi
}

# Every plugin that the configuration names must be there before a daemon looks for it: a missing one,
# or a PluginDir that is not there, ends every daemon and client.
check_plugins() {
  local one given=$plugins
  [[ -n $plugins ]] || return 0
  plugins=$(realpath -m -- "$given")
  [[ -d $plugins ]] || die "--plugins '$given': no such folder; build the plugins first"
  for one in sched_swell job_submit_swell spank_swell; do
    [[ -f $plugins/$one.so ]] || die "--plugins '$given': $one.so is not in it; build the plugins first"
    as_user "$slurm_user" test -r "$plugins/$one.so" ||
      die "--plugins '$given': user $slurm_user cannot read $one.so; chmod a+rx the folders above it"
  done
  for stock_plugins in "$(dirname "$(command -v slurmctld)")"/../lib*/{*/,}slurm{-wlm,} ''; do
    [[ -f $stock_plugins/auth_munge.so ]] && break
  done
  [[ -n $stock_plugins ]] || die "Slurm's own plugins (auth_munge.so) are in no known folder: run contrib/setup"
  check_libraries
  stock_plugins=$(realpath "$stock_plugins")
  # Swell's scheduler under the name of Slurm's, as sites load it; under its own where the caller gives a PluginDir.
  for one in ${conf_lines[@]+"${conf_lines[@]}"}; do [[ $(line_key "$one") != plugindir ]] || return 0; done
  for shadow in "$plugins"/../lib*/{*/,}swell/shadow ''; do
    [[ -f $shadow/sched_backfill.so ]] && break
  done
  [[ -z $shadow ]] || shadow=$(realpath "$shadow")
}

# check_libraries: names the first library of the plugins that is missing here, e.g. in a root; slurmctld would say less.
check_libraries() {
  local missing
  missing=$(ldd "$plugins"/{sched,job_submit,spank}_swell.so 2> /dev/null |
    awk '/^[^ \t]/ { sub(/:$/, ""); sub(/.*\//, ""); file = $0 } /=> not found/ { print file " needs " $1; exit }')
  [[ -n $missing ]] || return 0
  [[ -z ${SWELL_ROOT_VERSION:-} ]] || die "--plugins '$plugins': $missing, which the root of Slurm $SWELL_ROOT_VERSION has not:" \
    'let contrib/setup --build list the package that it is built with, and the root is made anew'
  die "--plugins '$plugins': $missing, which is not installed: run contrib/setup"
}
