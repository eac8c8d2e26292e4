# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Of contrib/check and contrib/quickstart: build Swell outside the source tree and install it, for
# this checkout alone. Nothing of the system is changed.

# build_swell TOP DIR [configure options]: installs into DIR/stage, plugins into DIR/stage/plugins.
# Quick where nothing has changed.
build_swell() {
  local top=$1 dir=$2 jobs
  shift 2
  mkdir -p "$dir" || return
  jobs=$(nproc)
  if [[ ! -x $top/configure || $top/configure -ot $top/configure.ac ]]; then
    (cd "$top" && autoreconf -fi) > "$dir/autoreconf.log" 2>&1 || { tail -n 20 "$dir/autoreconf.log"; return 1; }
  fi
  if [[ ! -e $dir/Makefile || $dir/config.status -ot $top/configure ]]; then
    (cd "$dir" && "$top/configure" --quiet --prefix="$dir/stage" --with-plugindir="$dir/stage/plugins" "$@") ||
      return
  fi
  if ! make -C "$dir" --silent -j"$jobs" all > "$dir/make.log" 2>&1; then
    grep -E -m 20 'error|Error' "$dir/make.log"
    printf 'the build failed; all of it is in %s\n' "$dir/make.log"
    return 1
  fi
  make -C "$dir" --silent install > "$dir/install.log" 2>&1 || { tail -n 20 "$dir/install.log"; return 1; }
}
