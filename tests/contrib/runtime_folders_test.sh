#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The libraries that a cluster needs are built whole: each library that a runtime folder links is built before it,
# but for the simulator's, which only builds with the simulator link.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
# shellcheck source=contrib/lib/build.sh
source "$top/contrib/lib/build.sh"

libraries_first() {
  local folder needed built=' ' missing=0 found=0
  for folder in "${runtime_folders[@]}"; do
    built+="$folder "
    while read -r needed; do
      found=$((found + 1))
      [[ $built == *" $needed "* ]] || { printf '%s links a library of %s, which is not built before it\n' "$folder" "$needed"; missing=1; }
    done < <(grep -ohE '\$\(top_builddir\)/src/[a-z_/]+/lib[A-Za-z_-]+\.la' "$top/$folder/Makefile.am" |
      sed -E 's|^\$\(top_builddir\)/||; s|/[^/]*$||' | grep -vx src/sim | sort -u)
  done
  ((missing == 0 && found > 10))
}
check 'each library that a cluster needs is built before what links it' libraries_first

finish_tests
