#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every C++ file reads as .clang-format says.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
command -v clang-format-14 > /dev/null || skip 'no clang-format-14: run contrib/setup'
git -C "$top" rev-parse --is-inside-work-tree > /dev/null 2>&1 || skip 'not a git checkout: which files are ours is not known'
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

check 'every C++ file reads as .clang-format says' "$top/contrib/format" --check
finish_tests
