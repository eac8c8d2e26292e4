#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What is built for each version of Slurm, and the roots that the others run in.
#   SWELL_STAGES=DIR   what contrib/plugins-all was given as --dir; without it only the headers and roots are looked at
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
: "${SWELL_STAGES:=}"
TMPDIR=$(mktemp -d /var/tmp/swell-test-XXXXXX) || exit 1
export TMPDIR
chmod 755 "$TMPDIR"
trap '"$top/contrib/cluster" stop > /dev/null 2>&1; rm -rf "$TMPDIR"' EXIT
trap 'exit 1' INT TERM HUP

members_of() { # HEADER: of the submission's struct
  awk '/^typedef struct job_descriptor \{/ { on = 1; next } on && /^}/ { exit } on' "$1" | tr '\n' ' ' |
    sed 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/||g' | tr ';' '\n' | sed -n 's/.*[[:space:]*]\([a-z_0-9]\+\)\(\[[^]]*\]\)\?[[:space:]]*$/\1/p' | sort
}
# A member that nobody looked at is a way to ask for more than a grant.
every_member_is_judged() { # PREFIX
  local unknown
  members_of "$1/include/slurm/slurm.h" > "$TMPDIR/members"
  unknown=$(comm -23 "$TMPDIR/members" <(sed -n 's/.*MEMBER(\([a-z_0-9]*\),.*/\1/p' "$top/src/plugins/job_submit/companion_fields.cc" | sort))
  printf '%s members; not in companion_fields.cc: %s\n' "$(wc -l < "$TMPDIR/members")" "$unknown"
  (($(wc -l < "$TMPDIR/members") > 100)) && [[ -z $unknown ]]
}
needs_its_libslurm() { # PREFIX STAGE
  local wanted needed
  wanted=$(readelf -d "$(find -L "$1"/lib -maxdepth 2 -name libslurm.so | head -n 1)" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  needed=$(readelf -d "$2/bin/swell" | sed -n 's/.*NEEDED.*\[\(libslurm\..*\)\]/\1/p')
  printf 'libslurm is %s, swell needs %s\n' "$wanted" "$needed"
  [[ -n $wanted && $needed == "$wanted" ]]
}
unavailable=()
while read -r version _; do
  prefix=$("$top/contrib/slurm-version" headers "$version" 2> "$TMPDIR/why") || {
    unavailable+=("$(tail -n 1 "$TMPDIR/why")")
    continue
  }
  check "every member of a submission to Slurm $version is judged in a companion" every_member_is_judged "$prefix"
  [[ ! -x $SWELL_STAGES-$version/stage/bin/swell ]] ||
    check "swell for Slurm $version is linked with its libslurm" needs_its_libslurm "$prefix" "$SWELL_STAGES-$version/stage"
done < <("$top/contrib/slurm-version" list)

# ---- mounts of a root: the first version that this host has none of

# Each root that is entered shows the cluster's folder by a mount of its own, as that is not below /tmp. What is left of
# one is seen in the namespace that has it.
no_mounts() {
  local left
  left=$(grep -ls -- "$TMPDIR" /proc/[0-9]*/mountinfo)
  [[ -z $left ]] || { printf '%s\n' "$left" && return 1; }
}
start() { "$top/contrib/cluster" start --slurm "$foreign" --nodes 1 --gpus-per-node 0 --no-accounting; }
gone_after_stop() {
  start && ! no_mounts > /dev/null && "$top/contrib/cluster" stop && no_mounts
}
gone_after_a_crash() {
  local daemon
  start || return
  for daemon in slurmctld slurmd.node1 munged; do "$top/contrib/cluster" kill "$daemon" -9 || return; done
  no_mounts && "$top/contrib/cluster" stop && no_mounts
}
gone_after_an_interrupted_start() {
  start > /dev/null 2>&1 &
  until [[ -e $TMPDIR/swell-cluster-$UID/default/run/slurmctld.pid ]] || ! kill -0 $! 2> /dev/null; do sleep 0.05; done
  "$top/contrib/cluster" stop && no_mounts
}
nothing_makes_it() { # FOLDER: no process has it in its arguments or mounts
  local left
  left=$(grep -ls -- "[/]${1#/}" /proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo) # which does not match itself
  [[ -z $left ]] || { printf '%s\n' "$left" && return 1; }
}
gone_with_its_maker() {
  local maker making=$TMPDIR/cache/making-stock-$foreign deadline=$((SECONDS + 20))
  SWELL_CACHE=$TMPDIR/cache "$top/contrib/slurm-version" stock "$foreign" > /dev/null 2> "$TMPDIR/why" &
  maker=$!
  until [[ -e $making/debootstrap ]] || ! kill -0 "$maker" 2> /dev/null; do sleep 0.05; done
  kill -9 "$maker" || { cat "$TMPDIR/why"; return 1; }
  wait "$maker" 2> /dev/null
  until nothing_makes_it "$making" > "$TMPDIR/left"; do
    ((SECONDS < deadline)) || { cat "$TMPDIR/left"; return 1; }
    sleep 0.05
  done
}
native=$("$top/contrib/slurm-version" native)
foreign=$("$top/contrib/slurm-version" list | awk -v native="$native" '$1 != native { print $1; exit }')
if root=$("$top/contrib/slurm-version" root "$foreign" 2> "$TMPDIR/why"); then
  check "no mount of a root is left after stop" gone_after_stop
  check 'nor after every daemon was killed' gone_after_a_crash
  check 'nor after a start that was stopped half way' gone_after_an_interrupted_start
  check 'nothing works on a root any more whose maker was killed' gone_with_its_maker
else
  unavailable+=("$(tail -n 1 "$TMPDIR/why")")
fi
((${#unavailable[@]} == 0)) || printf '# left out: %s\n' "${unavailable[@]}"
((count > 0)) || { printf '1..0 # SKIP %s\n' "${unavailable[0]}"; exit 77; }
finish_tests
