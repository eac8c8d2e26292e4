#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The engine: transformers models under many plans, by pytest.
#   engine_test.sh [arguments of pytest]
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
: "${SWELL_PYTHON:=python3}"
"$SWELL_PYTHON" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ["torch", "transformers", "pytest"])))' || {
  printf '1..0 # SKIP %s lacks torch, transformers or pytest: run contrib/setup --pytorch DIR --frameworks\n' "$SWELL_PYTHON"
  exit 77
}
export OMP_NUM_THREADS=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

count=0 failures=0
result() { # ok|not\ ok NAME
  count=$((count + 1))
  [[ $1 == ok ]] || failures=$((failures + 1))
  printf '%s %s - %s\n' "$1" "$count" "$2"
}
"$SWELL_PYTHON" -m pytest -v -p no:cacheprovider --basetemp "$work/pytest" "$here/engine" "$@" > "$work/log" 2>&1
status=$?
while read -r name verdict; do
  [[ $verdict == PASSED ]] && result ok "$name" || result 'not ok' "$name"
done < <(sed -n 's/^[^ ]*::\(test_[^ ]*\) \(PASSED\|FAILED\|ERROR\).*/\1 \2/p' "$work/log")
((status == 0)) || sed 's/^/# /' "$work/log"
((count > 0)) || result 'not ok' 'pytest ran no test'
printf '1..%s\n' "$count"
((status == 0 && failures == 0))
