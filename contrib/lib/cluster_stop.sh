# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Part of contrib/cluster: finding and ending every process of a cluster.

# cluster_pids: every process of this cluster and of no other:
#  - daemons and what they started, by the mark in their environment;
#  - slurmstepd, which writes its title over its environment, by the files it has open in the folder (which
#    of one in another root are shown with that root in front);
#  - jobs' processes, by their environment, and whatever descends from a slurmstepd;
#  - srun, salloc, sattach and sbatch of this cluster, which would wait for it forever.
# Never by name alone, and never this script or what called it.
cluster_pids() {
  local pid found=() step=() calling
  mapfile -t found < <(
    {
      grep -lszxF -- "SWELL_CLUSTER_DAEMON=$dir" /proc/[0-9]*/environ
      grep -lszxF -- "SLURM_CONF=$conf" /proc/[0-9]*/environ | while read -r pid; do
        if grep -qsz '^SLURM_JOB_ID=' "$pid" ||
          [[ $(readlink "${pid%environ}exe") =~ /(srun|salloc|sattach|sbatch)(-wlm)?$ ]]; then
          printf '%s\n' "$pid"
        fi
      done
    } | tr -dc '0-9\n'
  )
  mapfile -t step < <(step_daemons)
  calling=" $(ancestors) "
  { printf '%s\n' ${found[@]+"${found[@]}"} ${step[@]+"${step[@]}"} && descendants ${step[@]+"${step[@]}"}; } |
    sort -un | while read -r pid; do
    [[ -n $pid && $calling != *" $pid "* ]] && printf '%s\n' "$pid"
  done
}

step_daemons() {
  local exe
  find /proc/[0-9]* -maxdepth 1 -name exe -lname '*/slurmstepd*' 2> /dev/null | while read -r exe; do
    if find "${exe%exe}fd" -lname "*$dir/*" 2> /dev/null | grep . > /dev/null; then
      printf '%s\n' "$exe" | tr -dc '0-9\n'
    fi
  done
}

descendants() {
  (($#)) || return 0
  ps -A -o pid=,ppid= | awk -v roots="$*" '
    { parent[$1] = $2 }
    END {
      split(roots, list, " "); for (i in list) root[list[i]] = 1
      for (p in parent) for (q = parent[p]; q in parent; q = parent[q]) if (q in root) { print p; break }
    }'
}

ancestors() {
  local pid=$BASHPID list=()
  while ((pid > 1)); do
    list+=("$pid")
    pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2> /dev/null)
    [[ -n $pid ]] || break
  done
  printf '%s' "${list[*]}"
}

# starter_alive: a `start` of this cluster still runs.
starter_alive() {
  local start_pid=''
  read_cluster
  [[ -n $start_pid && $start_pid != "$$" ]] && tr '\0' ' ' 2> /dev/null < "/proc/$start_pid/cmdline" | grep 'cluster.* start ' > /dev/null
}

stop_cluster() {
  local pid children=()
  if [[ ! -f $dir/cluster.conf ]]; then
    # Its folder may have been removed by hand, or its start ended before it wrote anything.
    if [[ -n $(cluster_pids) ]]; then end_cluster; else rmdir -- "$dir" 2> /dev/null; fi
    printf 'cluster: no cluster %s in %s\n' "'$name'" "$dir"
    return 0
  fi
  load_cluster
  if starter_alive; then
    # First stopped, so that it can start nothing more while its children are looked up.
    kill -STOP "$start_pid" && mapfile -t children < <(descendants "$start_pid")
    kill -KILL "$start_pid" ${children[@]+"${children[@]}"} 2> /dev/null
  fi
  copy_logs
  if pid=$(daemon_pid slurmctld); then
    # Its plugins write their state and reports (coverage, sanitizers) when it ends in order.
    kill -TERM "$pid" && wait_gone 3000 "$pid"
  fi
  end_cluster
}

copy_logs() {
  [[ -n $keep_logs ]] || return 0
  if ! mkdir -p -- "$keep_logs" || ! cp -r -- "$dir/log/." "$keep_logs/" || ! cp -- "$dir"/etc/*.conf "$keep_logs/"; then
    die "--keep-logs '$keep_logs': cannot copy the logs there; the cluster is left as it is"
  fi
}

wait_gone() {
  local deadline_ms=$(($(now_ms) + $1)) pid=$2
  # Not /proc/PID: where init reaps slowly, a dead process stays there for a while.
  while is_ours "$pid"; do
    (($(now_ms) <= deadline_ms)) || return 1
    sleep 0.02
  done
}

# end_cluster: kills everything, again and again until nothing is found, as a daemon may have started
# one more process meanwhile; then removes the folder.
end_cluster() {
  local pids=() deadline_ms=$(($(now_ms) + 20000))
  while :; do
    mapfile -t pids < <(cluster_pids)
    ((${#pids[@]} > 0)) || break
    (($(now_ms) <= deadline_ms)) || die "cannot end these processes of cluster '$name': ${pids[*]}"
    kill -KILL "${pids[@]}" 2> /dev/null
    sleep 0.02
  done
  rm -rf -- "$dir" || die "cannot remove $dir"
  leave_base
}
