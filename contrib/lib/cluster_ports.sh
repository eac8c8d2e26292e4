# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/lib/cluster_common.sh assigns them
#
# Of contrib/cluster: a block of free ports for each cluster.

# Below the range that Linux gives to outgoing connections.
lowest_port=10000 highest_port=32700
srun_ports=400

# A block: slurmctld, slurmdbd, Swell's control port, a slurmd for each node, then srun's.
ports_needed() { printf '%s' $((3 + nodes + srun_ports)); }
ctld_port() { printf '%s' "$first_port"; }
dbd_port() { printf '%s' $((first_port + 1)); }
control_port() { printf '%s' $((first_port + 2)); }
slurmd_ports() { printf '%s-%s' $((first_port + 3)) $((first_port + 2 + nodes)); }
srun_port_range() { printf '%s-%s' $((first_port + 3 + nodes)) $((first_port + 2 + nodes + srun_ports)); }

# choose_ports: sets first_port. The caller holds the base folder's lock, so that two starts cannot
# choose the same block; a block counts as taken while the folder it was noted for is there, and
# wherever any socket of this host uses a port of it.
choose_ports() {
  local taken=() line folder first last count start tries i file=$base/ports kept=()
  if [[ -f $file ]]; then
    while read -r folder first last; do
      [[ -e $folder/cluster.conf && $folder != "$dir" ]] || continue
      kept+=("$folder $first $last")
      taken+=("$first $last")
    done < "$file"
  fi
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
    printf '%s\n' "${kept[@]}" > "$file" || die "cannot write to $base"
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
