#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The Python package: its own tests by pytest, and its types by mypy.
#   package_test.sh [--all] [--part live|frameworks|scripts|rest] [arguments of pytest]
# --all: the slow ones, too. --part: live resizes of Elastic, what imports a framework of others, scripts of users and their output,
# or all else. contrib/check runs these side by side.
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
of_part() { # NAME...: the test files of these names
  local name
  for name in "$@"; do printf '%s\n' "$here/package/test_$name.py"; done
}
live=(live staying) frameworks=(integrations matrix megatron odd ordinary trl written)
scripts=(averaged check full_disk request research scripts)
files=("$here/package")
if [[ ${1:-} == --part ]]; then
  case ${2:-} in
    live) mapfile -t files < <(of_part "${live[@]}") ;;
    frameworks) mapfile -t files < <(of_part "${frameworks[@]}") ;;
    scripts) mapfile -t files < <(of_part "${scripts[@]}") ;;
    rest) mapfile -t -O 1 files < <(of_part "${live[@]}" "${frameworks[@]}" "${scripts[@]}" | sed 's/^/--ignore=/') ;;
    *) printf 'package_test.sh: --part needs live, frameworks, scripts or rest\n' >&2; exit 2 ;;
  esac
  [[ $2 == rest ]] || skip_types=yes
  shift 2
fi
run_pytest "${files[@]}" "${which[@]}" "$@"
[[ -z ${skip_types:-} ]] || finish
if (cd "$here/../../python" && "$SWELL_PYTHON" -m mypy --cache-dir "$work/mypy") > "$work/types" 2>&1; then
  result ok 'the public API is typed (mypy --strict)'
else
  result 'not ok' 'the public API is typed (mypy --strict)'
  sed 's/^/# /' "$work/types"
fi
finish
