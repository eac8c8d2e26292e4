# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# pytest's verdicts as `ok` and `not ok` lines. To be sourced.
#   need MODULE...         ends with 77 where $SWELL_PYTHON has not all of these
#   run_pytest ARGUMENT... one line a test; what pytest said, where one failed
#   result ok|"not ok" NAME
#   finish                 the count, and exits

: "${SWELL_PYTHON:=python3}"
export OMP_NUM_THREADS=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
count=0 failures=0

need() {
  "$SWELL_PYTHON" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "$@" && return
  printf '1..0 # SKIP %s lacks one of %s: run contrib/setup --pytorch DIR --frameworks\n' "$SWELL_PYTHON" "$*"
  exit 77
}

result() {
  count=$((count + 1))
  [[ $1 == ok ]] || failures=$((failures + 1))
  printf '%s %s - %s\n' "$1" "$count" "$2"
}

pytest() { (cd "$here" && "$SWELL_PYTHON" -m pytest -p no:cacheprovider --rootdir "$here" "$@"); }

# With SWELL_PASSED, a file: names of tests that pass are added to it, and those in it are not run again.
run_pytest() {
  local name verdict status before passed=${SWELL_PASSED:-/dev/null} rest=()
  if [[ -s $passed ]]; then
    mapfile -t rest < <(pytest --collect-only -q "$@" 2> /dev/null | grep '::' | grep -vxFf "$passed")
    while read -r name; do result ok "${name##*::}"; done < "$passed"
    if ((${#rest[@]} > 0)); then set -- "${rest[@]}"; else return; fi
  fi
  before=$count
  pytest -v --basetemp "$work/pytest" "$@" > "$work/log" 2>&1
  status=$?
  sed -n 's/^\([^ ]*::test_[^ ]*\) PASSED.*/\1/p' "$work/log" >> "$passed"
  # Names are sentences; parameters stand in brackets.
  while read -r name verdict; do
    [[ $verdict == PASSED ]] && result ok "$name" || result 'not ok' "$name"
  done < <(sed -n 's/^[^ ]*::\(test_[^ ]*\) \(PASSED\|FAILED\|ERROR\).*/\1 \2/p' "$work/log")
  # A second run may have nothing left but tests that are skipped.
  ((count > before)) || [[ $status == 0 && -s $passed ]] || result 'not ok' 'pytest ran no test'
  ((status == 0)) && return
  sed 's/^/# /' "$work/log"
  ((failures > 0)) || result 'not ok' "pytest ended with $status"
}

finish() {
  printf '1..%s\n' "$count"
  ((failures == 0))
  exit
}
