# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Part of contrib/cluster: a block of free ports for each cluster.

# Below the range that Linux gives to outgoing connections.
lowest_port=10000 highest_port=32700
srun_ports=400

# A block: slurmctld, slurmdbd, Swell's control port, a slurmd for each node, then srun's.
ports_needed() { printf '%s' $((3 + nodes + srun_ports)); }
ctld_port() { printf '%s' "$first_port"; }
dbd_port() { printf '%s' $((first_port + 1)); }
control_port() { printf '%s' $((first_port + 2)); }
slurmd_ports() { printf '%s-%s' $((first_port + 2 + $1)) $((first_port + 2 + $2)); } # FIRST LAST: of these nodes
srun_port_range() { printf '%s-%s' $((first_port + 3 + nodes)) $((first_port + 2 + nodes + srun_ports)); }

# lock_base: makes the base folder, and holds its lock in the descriptor $lock.
lock_base() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    mkdir -p -- "$base" || die "cannot make the folder $base"
    [[ -O $base && ! -L $base ]] || die "$base belongs to another user: set TMPDIR to a folder of your own"
    { exec {lock}> "$base/lock"; } 2> /dev/null || continue
    flock -w 20 "$lock" || die "another start holds $base/lock"
    # The last stop removes the file: the locked file must be the one that lies there now.
    [[ $base/lock -ef /proc/self/fd/$lock ]] && return 0
    exec {lock}>&-
  done
  die "cannot write to $base"
}

# leave_base: removes the base folder, if no cluster is left in it.
leave_base() {
  [[ -O $base && ! -L $base ]] || return 0
  lock_base
  if [[ -z $(live_blocks) && -z $(find "$base" -mindepth 1 ! -name lock ! -name ports -print -quit) ]]; then
    rm -f -- "$base/ports" "$base/lock" && rmdir -- "$base"
  fi
  exec {lock}>&-
}

# live_blocks: the noted blocks, "folder first last", of clusters other than this one that are there.
live_blocks() {
  local folder first last
  [[ -f $base/ports ]] || return 0
  while read -r folder first last; do
    [[ -e $folder/cluster.conf && $folder != "$dir" ]] && printf '%s\n' "$folder $first $last"
  done < "$base/ports"
}

# choose_ports: sets first_port. The caller holds the base folder's lock, so that two starts cannot
# choose the same block; a block counts as taken while the folder it was noted for is there, and
# wherever any socket of this host uses a port of it.
choose_ports() {
  local taken=() line first last count start tries i kept=()
  mapfile -t kept < <(live_blocks)
  for line in ${kept[@]+"${kept[@]}"}; do taken+=("${line#* }"); done
  while read -r line; do taken+=("$line $line"); done < <(ports_in_use)

  count=$(ports_needed)
  for ((tries = 0; tries < 200; tries++)); do
    # A random place keeps out of the way of other users' clusters, which the lock does not cover.
    start=$((lowest_port + SRANDOM % (highest_port - lowest_port - count)))
    for ((i = 0; i < ${#taken[@]}; i++)); do
      read -r first last <<< "${taken[i]}"
      ((first <= start + count - 1 && last >= start)) && continue 2
    done
    first_port=$start
    kept+=("$dir $start $((start + count - 1))")
    printf '%s\n' "${kept[@]}" > "$base/ports" || die "cannot write to $base"
    return 0
  done
  die "no $count free ports in a row between $lowest_port and $highest_port: stop another cluster first"
}

# Local ports in our range of every TCP socket, whatever its state.
ports_in_use() {
  local address rest port
  cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | while read -r _ address rest; do
    [[ $address == *:* ]] || continue
    port=$((16#${address##*:}))
    ((port >= lowest_port && port <= highest_port)) && printf '%s\n' "$port"
  done | sort -un
}
