#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The Python package: its own tests by pytest, and its types by mypy.
#   package_test.sh [--all] [arguments of pytest]    (--all: the slow ones, too)
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/pytorch/pytest_lib.sh
source "$here/pytest_lib.sh"
need torch pytest mypy
which=(-m 'not slow')
if [[ ${1:-} == --all ]]; then
  which=()
  shift
fi
run_pytest "$here/package" "${which[@]}" "$@"
if (cd "$here/../../contrib/pytorch" && "$SWELL_PYTHON" -m mypy --cache-dir "$work/mypy") > "$work/types" 2>&1; then
  result ok 'the public API is typed (mypy --strict)'
else
  result 'not ok' 'the public API is typed (mypy --strict)'
  sed 's/^/# /' "$work/types"
fi
finish
