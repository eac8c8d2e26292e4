#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The kernel that makes checksums on GPUs compiles for each GPU that ptxas knows, V100 or later. No GPU is needed. Skipped where ptxas is not installed.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
command -v ptxas > "$work/where" || { printf 'SKIP: ptxas is not installed\n'; exit 77; }
sed -n '/R"(/,/^)";/p' "$top/src/runtime/device/hash_ptx.h" | sed 's/.*R"(//; /^)";/d' > "$work/hash.ptx"
mapfile -t known < <(ptxas --help | grep -oE "'sm_[0-9]+'" | tr -d "'" | sort -u)

compiles() { # FILE
  local gpu found=0
  for gpu in "${known[@]}"; do
    if ((${gpu#sm_} < 70)); then continue; fi
    ptxas -arch="$gpu" -o "$work/hash.cubin" "$1" || { printf 'not for %s\n' "$gpu"; return 1; }
    found=$((found + 1))
  done
  ((found > 0))
}
check 'the checksum kernel compiles for every GPU that ptxas knows' compiles "$work/hash.ptx"
is_refused() { sed 's/red.global.add.u64/red.global.add.u65/' "$work/hash.ptx" > "$work/wrong.ptx" && ! compiles "$work/wrong.ptx" 2> "$work/said"; }
check 'a wrong instruction would be noticed' is_refused
finish_tests
