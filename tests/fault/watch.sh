# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# For tests/fault/soak: looks at the cluster every second, beside the faults.

# A second after a fault parent and companion may not name each other yet; so long it may take: after its start slurmctld refuses changes of jobs
# that accounting has no number of yet, for 30 s and more under load.
settling_s=60

# watch FOLDER: until FOLDER/stop exists. FOLDER/looks has a line a look, FOLDER/broken each broken invariant, FOLDER/memory
# lines "SECONDS NAME PID KIB FILES". FOLDER/forgotten has ids of jobs that slurmctld lost or gave a second time: Slurm may start these without GPUs.
watch() {
  local folder=$1 jobs problems problem pid file
  local -A since=()
  while [[ ! -e $folder/stop ]]; do
    if jobs=$(timeout 20 scontrol -o -d show job 2> /dev/null) && [[ -n $jobs ]]; then
      problems=$(awk -f "$here/invariants.awk" <<< "$jobs")
      printf '%s\n' "$SECONDS" >> "$folder/looks"
      for problem in "${!since[@]}"; do
        [[ $'\n'$problems$'\n' == *$'\n'"$problem"$'\n'* ]] || unset "since[$problem]"
      done
      while IFS= read -r problem; do
        [[ -n $problem ]] && ! is_slurms "$problem" || continue
        : "${since[$problem]:=$SECONDS}"
        if is_hard "$problem" || ((SECONDS - ${since[$problem]} > settling_s)); then
          printf '+%s s: %s\n' "$SECONDS" "$problem" >> "$folder/broken"
          unset "since[$problem]"
        fi
      done <<< "$problems"
    else
      since=() # slurmctld is away; what it shows afterwards has its own time to settle
    fi
    pid=$("$cluster" pid slurmctld 2> /dev/null) && sample slurmctld "$pid"
    for file in "$work"/jobs/*/swellrun.pid; do # no program is started for jobs that are over: there may be thousands
      [[ -e $file ]] && read -r pid < "$file" && is_swellrun "$pid" && sample swellrun "$pid"
    done
    sleep 1
  done
}

is_slurms() {
  [[ $1 =~ ^job\ ([0-9]+)\ holds\ 0\ GPUs ]] && grep -qx "${BASH_REMATCH[1]}" "$folder/forgotten" 2> /dev/null
}
is_hard() { [[ $1 == 'GPU '* || $1 == *'its basic demand is'* ]]; }

is_swellrun() { # PID
  local name
  [[ -e /proc/$1/comm ]] && read -r name 2> /dev/null < "/proc/$1/comm" && [[ $name == swellrun ]]
}

sample() { # NAME PID
  local kib files started
  kib=$(awk '/^RssAnon/ { print $2 }' "/proc/$2/status" 2> /dev/null)
  files=$(find "/proc/$2/fd" -mindepth 1 2> /dev/null | wc -l)
  started=$(awk '{ print $22 }' "/proc/$2/stat" 2> /dev/null) # pids come again
  [[ -n $kib ]] && printf '%s %s %s.%s %s %s\n' "$SECONDS" "$1" "$2" "$started" "$kib" "$files" >> "$folder/memory"
}
