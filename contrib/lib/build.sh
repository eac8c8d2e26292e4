# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions shared by contrib/check, contrib/quickstart and the benchmarks: they build Swell outside the source tree and install
# it, for this checkout alone. Nothing of the system is changed.

# shellcheck source=contrib/lib/source_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/source_files.sh"

# Folders that a cluster needs to run Swell: no simulator, no tests, no planner's tools.
runtime_folders=(src/pch src/core src/control src/runtime src/profiler src/slurm src/controller src/plugins/sched
  src/plugins/job_submit src/plugins/spank src/launcher src/topo src/tools)

# set_source TOP: sets `source` to the folder from which TOP is built: TOP itself, or where `./configure` ran in TOP, a copy
# without what that made. From a configured source tree automake builds nowhere else.
set_source() {
  source=$1
  [[ -e $1/config.status ]] || return 0
  source=$1/build-source
  mkdir -p "$source" && (flock 9 && copy_sources "$1" "$source") 9> "$source/.lock"
}

# configure_swell TOP DIR [configure options]: with ccache where it is there. Quick where nothing has changed.
configure_swell() {
  local top=$1 dir=$2 compiler=() source
  shift 2
  mkdir -p "$dir" && set_source "$top" || return
  # Makefiles of another source are not used again.
  if [[ $source != "$(cat "$dir/.source" 2> /dev/null || printf '%s' "$top")" ]]; then rm -f "$dir/Makefile" || return; fi
  printf '%s' "$source" > "$dir/.source" || return
  # The same source is compiled in several build folders and copies of the tree; all are as deep, so that paths that are
  # relative are the same.
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$top CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1
  if [[ ! -x $source/configure || $source/configure -ot $source/configure.ac ]]; then
    (cd "$source" && autoreconf -fi) > "$dir/autoreconf.log" 2>&1 || { tail -n 20 "$dir/autoreconf.log"; return 1; }
  fi
  # Links in a third of the time.
  if command -v ld.gold > /dev/null; then compiler+=(LDFLAGS=-fuse-ld=gold); fi
  if [[ -z ${CXX:-} ]] && command -v ccache > /dev/null; then compiler+=(CXX='ccache g++'); fi
  if [[ ! -e $dir/Makefile || $dir/config.status -ot $source/configure ]]; then
    (cd "$dir" && "$source/configure" --quiet --prefix="$dir/stage" --with-plugindir="$dir/stage/plugins" \
      ${compiler[@]+"${compiler[@]}"} "$@") > "$dir/configure.log" 2>&1 || { tail -n 20 "$dir/configure.log"; return 1; }
  fi
}

# package_flags TOP: options of configure with which ccache has one object serve a build and its Debian package, where
# contrib/packaging runs with DEB_CXXFLAGS_APPEND=$package_debug_flag.
package_debug_flag=-g1
package_flags() {
  local top=$1 name
  if ! command -v dpkg-buildflags > /dev/null; then
    printf 'CXXFLAGS=-O2 %s\n' "$package_debug_flag"
    return
  fi
  for name in CPPFLAGS CXXFLAGS; do
    printf '%s=%s\n' "$name" "$(cd "$top" && DEB_BUILD_MAINT_OPTIONS=hardening=+all,-bindnow DEB_CXXFLAGS_APPEND=$package_debug_flag \
      dpkg-buildflags --get "$name")"
  done
}

# make_swell DIR LOG ARGUMENTS...: make, whose errors are shown.
make_swell() {
  local dir=$1 log=$2
  shift 2
  make -C "$dir" --silent "$@" >> "$log" 2>&1 && return 0
  grep -E -m 20 'error|Error' "$log"
  printf 'the build failed; all of it is in %s\n' "$log"
  return 1
}

# build_swell TOP DIR [configure options]: everything; installs into DIR/stage, plugins into DIR/stage/plugins.
build_swell() {
  local top=$1 dir=$2
  configure_swell "$@" --enable-pch || return
  : > "$dir/make.log"
  make_swell "$dir" "$dir/make.log" -j"$(nproc)" all && make_swell "$dir" "$dir/make.log" install
}

# build_runtime TOP DIR [configure options]: runtime_folders alone, installed likewise.
build_runtime() {
  local top=$1 dir=$2 folder
  configure_swell "$@" --enable-pch || return
  : > "$dir/make.log"
  for folder in "${runtime_folders[@]}"; do make_swell "$dir/$folder" "$dir/make.log" -j"$(nproc)" all || return; done
  for folder in "${runtime_folders[@]}"; do make_swell "$dir/$folder" "$dir/make.log" install || return; done
}

# build_test_programs DIR: programs of suites on clusters, as the fake controller. REQUIRES: build_swell() made DIR.
build_test_programs() {
  make -C "$1/tests/launcher" -j"$(nproc)" check && make -C "$1/tests/slurm" -j"$(nproc)" check
}

# Parts of src that the unit tests, their programs and the examples are linked with: no plugin, and no program of an installation.
tested_parts=(pch core control runtime profiler sim slurm controller/libcontroller.la plugins/select/libselect.la
  launcher/libswelllauncher.la topo tools/libswelltools.la)

# make_tested DIR [make variables]: tested_parts. REQUIRES: configure_swell() made DIR.
make_tested() {
  local dir=$1 part folder
  shift
  for part in "${tested_parts[@]}"; do
    folder=${part%/*.la}
    if [[ $folder == "$part" ]]; then part=all; else part=${part##*/}; fi
    make -C "$dir/src/$folder" -j"$(nproc)" "$@" "$part" || return
  done
}

# precompile DIR FLAGS: prints options with which headers are not parsed again for each source that is compiled with FLAGS.
precompile() {
  local top
  top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) && mkdir -p "$1" && : > "$1/standard.h" || return
  # ccache gives all checkouts one file, which has no path of theirs: objects made with it are found again.
  # shellcheck disable=SC2086 # words
  (cd "$1" && ${CXX:-$(command -v ccache) g++} $2 -I"$top/src" -x c++-header "$top/src/pch/precompiled.h" -o standard.h.gch &&
    sha256sum < standard.h.gch > standard.h.gch.sum) || return
  printf -- '-fpch-preprocess -include %s' "$1/standard.h"
}

# check_units DIR [make variables]: the unit tests, and what they are linked with where it is not built yet. With SWELL_AGAIN only the
# programs that failed, if all of them have run.
check_units() {
  local dir=$1 goal=check programs ran
  shift
  programs=("$dir"/tests/unit/*_test) ran=("$dir"/tests/unit/*_test.trs)
  [[ -z ${SWELL_AGAIN:-} || ${#ran[@]} != "${#programs[@]}" ]] || goal=recheck
  make_tested "$dir" "$@" && make -C "$dir/examples" -j"$(nproc)" "$@" all && make -C "$dir/tests/unit" -j"$(nproc)" "$@" "$goal"
}
