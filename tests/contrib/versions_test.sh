#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Builds for each version of Slurm, and the roots that the other versions run in.
#   SWELL_STAGES=DIR   what contrib/plugins-all was given as --dir; without it only the headers and roots are looked at
#   SWELL_STAGE=DIR    of a build: `make plugins-all` is tried in its build folder
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
# Made on this host, run in a root: each library must be there under the same name.
root_has_its_libraries() { # VERSION STAGE
  local missing
  # shellcheck disable=SC2016
  missing=$(SWELL_STAGE=$2 "$top/contrib/slurm-version" run "$1" bash -c 'find "$1"/bin "$1"/lib "$1"/plugins -type f -executable |
    xargs ldd 2> /dev/null | tee /dev/stderr | grep -E "not found" | sort -u' _ "$2" 2> "$TMPDIR/ldd")
  printf '%s lines of ldd; not in the root:\n%s\n' "$(wc -l < "$TMPDIR/ldd")" "$missing"
  (($(grep -c '=> /' "$TMPDIR/ldd") > 50)) && [[ -z $missing ]]
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
  [[ ! -x $SWELL_STAGES-$version/stage/bin/swell || $version == "$("$top/contrib/slurm-version" native)" ]] ||
    ! "$top/contrib/slurm-version" root "$version" > /dev/null 2> "$TMPDIR/why" ||
    check "the root of Slurm $version has each library that Swell for it needs" root_has_its_libraries "$version" "$SWELL_STAGES-$version/stage"
done < <("$top/contrib/slurm-version" list)

# ---- make plugins-all

of_make() { # VERSION WORDS: what it says, where nothing can be fetched
  ! env SWELL_CACHE="$TMPDIR/none" SWELL_DEBIAN_MIRROR=http://127.0.0.1:9/debian make -C "$SWELL_STAGE/.." plugins-all VERSIONS="$1" > "$TMPDIR/said" 2>&1 || return
  cat "$TMPDIR/said"
  grep -qx "$2" "$TMPDIR/said"
}
hands_on() {
  of_make 9.99 "slurm-version: unknown version '9.99': Swell supports 22.05, 24.11, 26.05" && of_make "$foreign" "slurm $foreign: SKIPPED, see above" &&
    make -C "$SWELL_STAGE/.." -n plugins-all | grep 'contrib/plugins-all *$'
}
native=$("$top/contrib/slurm-version" native)
foreign=$("$top/contrib/slurm-version" list | awk -v native="$native" '$1 != native { print $1; exit }')
[[ ! -f ${SWELL_STAGE:-}/../Makefile ]] || check 'make plugins-all hands on to contrib/plugins-all, which says what it cannot build' hands_on

# ---- mounts of a root: the first version that this host has none of

# Each root that is entered shows the cluster's folder by a mount of its own, as that is not below /tmp. Mounts that
# are left are seen in the namespace that has them.
no_mounts() {
  local left
  left=$(grep -ls -- "$TMPDIR" /proc/[0-9]*/mountinfo)
  [[ -z $left ]] || { printf '%s\n' "$left" && return 1; }
}
start() { "$top/contrib/cluster" start --slurm "$foreign" --nodes 1 --gpus-per-node 0 --no-accounting "$@"; }
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
# Plugins that need a library which no package has.
named_before_it_starts() {
  local plugins=$TMPDIR/plugins one
  mkdir "$plugins" && printf 'int missing(void) { return 0; }\n' > "$TMPDIR/missing.c" &&
    cc -shared -fPIC -o "$TMPDIR/libnowhere.so" "$TMPDIR/missing.c" || return
  for one in sched job_submit spank; do
    cc -shared -fPIC -Wl,--no-as-needed -o "$plugins/${one}_swell.so" "$TMPDIR/missing.c" -L"$TMPDIR" -lnowhere || return
  done
  ! start --plugins "$plugins" > "$TMPDIR/said" 2>&1 && cat "$TMPDIR/said" &&
    grep -qE "^cluster: --plugins .*: sched_swell.so needs libnowhere.so, which the root of Slurm $foreign has not: let contrib/setup " "$TMPDIR/said" &&
    [[ $(wc -l < "$TMPDIR/said") == 1 && ! -e $TMPDIR/swell-cluster-$UID/default ]]
}
# No mirror is there: nothing is left half made, and a suite says why it does not run.
clear_skip() {
  local nowhere=(env SWELL_CACHE="$TMPDIR/empty" SWELL_DEBIAN_MIRROR=http://127.0.0.1:9/debian)
  "${nowhere[@]}" "$top/contrib/slurm-version" root "$foreign" > "$TMPDIR/said" 2>&1
  [[ $? == 77 ]] && cat "$TMPDIR/said" && grep -q "^slurm-version: Slurm $foreign cannot be had here: debootstrap .* from http://127.0.0.1:9/debian failed" "$TMPDIR/said" || return
  [[ -z $(find "$TMPDIR/empty" -mindepth 1 -type d) ]] || { ls "$TMPDIR/empty" && return 1; }
  "${nowhere[@]}" SWELL_SLURM="$foreign" SWELL_STAGE=/usr "$top/tests/slurm/grow_test.sh" > "$TMPDIR/said" 2>&1
  [[ $? == 77 ]] && cat "$TMPDIR/said" && grep -q "^1..0 # SKIP slurm-version: Slurm $foreign cannot be had here: " "$TMPDIR/said" && ! grep -q '^ok' "$TMPDIR/said"
}
if root=$("$top/contrib/slurm-version" root "$foreign" 2> "$TMPDIR/why"); then
  check "no mount of a root is left after stop" gone_after_stop
  check 'no mount is left after every daemon was killed' gone_after_a_crash
  check 'no mount is left after a start that was stopped half way' gone_after_an_interrupted_start
  check 'libraries of plugins that a root lacks are named before a cluster starts' named_before_it_starts
  check 'a root that cannot be made is a skip that says why' clear_skip
  check 'nothing works on a root any more whose maker was killed' gone_with_its_maker
else
  unavailable+=("$(tail -n 1 "$TMPDIR/why")")
fi
((${#unavailable[@]} == 0)) || printf '# left out: %s\n' "${unavailable[@]}"
((count > 0)) || { printf '1..0 # SKIP %s\n' "${unavailable[0]}"; exit 77; }
finish_tests
