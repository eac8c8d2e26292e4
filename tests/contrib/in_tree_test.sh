#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# README's build for admins, `./configure && make` in the source tree, and then what builds outside of it: contrib/check,
# contrib/quickstart and the benchmarks configure by configure_swell().
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
# shellcheck source=contrib/lib/build.sh
source "$top/contrib/lib/build.sh"
work=$(mktemp -d /tmp/swell-in-tree-test-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
tree=$work/tree
copy_sources "$top" "$tree" || exit 1

# As README has it, as far as one object; what make leaves in other folders stands there by name.
builds_in_the_tree() {
  (cd "$tree" && { [[ -x configure ]] || autoreconf -fi; } && ./configure --quiet CXXFLAGS=-O0 && make --silent -C examples regression.o &&
    mkdir -p src/core/.libs && touch src/core/json.lo src/core/json.o src/core/.libs/json.o &&
    printf '#!/bin/sh\n# swell - temporary wrapper script for .libs/swell\n' > src/tools/swell && cp /bin/true src/launcher/swellrun &&
    chmod +x src/tools/swell && [[ -e config.status && -e examples/regression.o ]])
}
check 'README builds in the source tree' builds_in_the_tree

builds_outside_all_the_same() {
  configure_swell "$tree" "$tree/build-check" CXXFLAGS=-O0 && make --silent -C "$tree/build-check/examples" regression.o &&
    [[ -e $tree/build-check/examples/regression.o ]] && grep -q '^srcdir = .*build-source' "$tree/build-check/examples/Makefile"
}
check 'a build folder is made from it all the same' builds_outside_all_the_same

keeps_the_admins_build() { [[ -e $tree/config.status && -e $tree/examples/regression.o && -x $tree/src/launcher/swellrun ]]; }
check 'the build in the tree stays' keeps_the_admins_build

# Files made by autoreconf are allowed: releases have them.
sources_of() { source_files "$1" | tr '\0' '\n' | grep -vE '^\./(\.git/|\.copied|configure|aclocal|build-aux|m4/|config\.h\.in)|Makefile\.in$'; }
nothing_built_is_a_source() { diff <(sources_of "$top") <(sources_of "$tree"); }
check 'no product of a build is taken for a source' nothing_built_is_a_source

follows_the_tree() {
  rm -f "$tree/config.status" && configure_swell "$tree" "$tree/build-check" CXXFLAGS=-O0 &&
    ! grep -q '^srcdir = .*build-source' "$tree/build-check/examples/Makefile"
}
check 'once the tree is clean again, it is built from the tree itself' follows_the_tree

finish_tests
