#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# contrib/check itself, over a project of stubs: totals, exit status, and how many suites run at a time.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
work=$(mktemp -d /tmp/swell-check-test-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT

# A project in which nothing is built, whose unit tests are 3 good ones.
mkdir -p "$work"/{contrib/lib,tests/{contrib,launcher,slurm,pytorch,fault,fuzz}} && chmod 755 "$work" &&
  cp "$top/contrib/check" "$work/contrib/" && cp "$top"/contrib/lib/{open_place,source_files}.sh "$work/contrib/lib/" || exit 1
cat > "$work/contrib/lib/build.sh" << 'STUB'
build_swell() {
  mkdir -p "$2/tests/unit" "$2/stage"
}
build_test_programs() { :; }
configure_swell() { build_swell "$@"; }
make_tested() { :; }
precompile() { :; }
package_debug_flag=-g1
package_flags() { echo CXXFLAGS=-O2; }
check_units() { printf 'Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0\n' > "$1/tests/unit/one_test.log"; }
STUB
script() { # FILE LINES...: a stub of the project
  local file=$work/$1
  shift
  { printf '#!/bin/bash\n'; printf '%s\n' "$@"; } > "$file" && chmod +x "$file"
}
script contrib/setup true
script tests/contrib/quickstart_test.sh 'echo "ok 1 - shown"'
script contrib/slurm-version '[[ $1 == native ]] || printf "22.05 one\n"; [[ $1 == list ]] || echo 22.05'
script tests/fault/soak 'echo "ok 1 - it holds"'
script tests/fuzz/run 'echo "ok 1 - it holds"; echo "$*" > "$(dirname "$0")/said"'

totals_are() { # LINE STATUS [options of check]
  local line=$1 status=$2
  shift 2
  "$work/contrib/check" "$@" > "$work/said" 2>&1
  [[ $? -eq $status && $(tail -n 1 "$work/said") == "$line" ]] && return 0
  cat "$work/said"
  return 1
}

all_good() {
  script tests/slurm/a_test.sh 'echo "ok 1 - one"; echo "ok 2 - two"'
  # 3 unit tests, 2 behaviours, soak, fuzz and quickstart
  totals_are '8 passed, 0 failed, 0 skipped' 0 && grep -q '^== unit-tests-under-sanitizers: 3 passed' "$work/said" &&
    grep -q -- ' -b .*/sanitizers$' "$work/tests/fuzz/said" &&
    totals_are '8 passed, 0 failed, 0 skipped' 0 --no-sanitizers && grep -q '^== unit-tests: 3 passed, 0 failed, in [0-9]* s, [0-9]* s of CPU' "$work/said" &&
    ! grep -q -- ' -b ' "$work/tests/fuzz/said" &&
    totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/slurm/*'
}
check 'passed suites are counted, and the exit status is 0' all_good

some_bad() {
  script tests/slurm/b_test.sh 'echo "ok 1 - one"; echo "not ok 2 - two"; echo "# because of this"; exit 1'
  script tests/slurm/c_test.sh 'echo "1..0 # SKIP nothing to run it with"; exit 77'
  script tests/slurm/d_test.sh 'echo "ok 1 - and then it dies"; exit 3'
  script tests/slurm/e_test.sh 'exit 0'
  totals_are '7 passed, 3 failed, 1 skipped' 1 --no-sanitizers --only 'tests/slurm/*' || return
  [[ $(grep -c '^# because of this' "$work/said") == 2 ]] || return
  grep -q '^# because of this' "$work/said" && grep -q 'skipped: SKIP nothing to run' "$work/said" &&
    grep -q '^failed: tests/slurm/b_test.sh' "$work/said" && grep -q '^failed: tests/slurm/d_test.sh' "$work/said" &&
    grep -q '^failed: tests/slurm/e_test.sh' "$work/said"
  local status=$?
  rm "$work"/tests/slurm/[b-e]_test.sh
  return $status
}
check 'failed, killed, silent and skipped suites are counted and named' some_bad

# Fails the first time.
only_alone() {
  rm -f "$work"/tests/slurm/* "$work/tried"
  script tests/slurm/a_test.sh 'echo "ok 1 - one"' "[[ -e $work/tried ]] || { touch $work/tried; echo 'not ok 2 - two'; echo '# too late'; exit 1; }" \
    'echo "ok 2 - two"'
  totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/slurm/*' && grep -q '^# too late' "$work/said" &&
    grep -q '^failed beside others, and passed alone: tests/slurm/a_test.sh (see .*/tests-slurm-a_test.sh.log)' "$work/said" || return
  rm "$work/tried"
  totals_are '4 passed, 1 failed, 0 skipped' 1 --no-sanitizers --only 'tests/slurm/*' --jobs 1
}
check 'a suite that fails beside others is run again alone, and that is said' only_alone

# A suite whose second run knows what passed in the first one; another check begins anew.
knows_what_passed() {
  rm -f "$work"/tests/slurm/*
  script tests/pytorch/a_test.sh 'if [[ -s $SWELL_PASSED ]]; then echo "ok 1 - $(cat "$SWELL_PASSED")"; echo "ok 2 - two"; exit; fi' \
    'echo one > "$SWELL_PASSED"; echo "ok 1 - one"; echo "not ok 2 - two"; exit 1'
  local time status=0
  for time in 1 2; do
    totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/pytorch/*' &&
      grep -q '^failed beside others, and passed alone: tests/pytorch/a_test.sh' "$work/said" || status=1
  done
  rm "$work/tests/pytorch/a_test.sh"
  return "$status"
}
check 'the second run of a suite knows what passed in the first' knows_what_passed

# Each waits until the other has begun: that ends only where they run at the same time.
meets() { # OWN OTHER
  printf '%s\n' "touch $work/$1; for i in {1..200}; do [[ -e $work/$2 ]] && echo \"ok 1 - met\" && exit 0; sleep 0.1; done" 'echo "not ok 1 - alone"; exit 1'
}
has_run_again() { grep '^failed beside others' "$work/said"; }
side_by_side() {
  rm -f "$work"/tests/slurm/*
  script tests/slurm/a_test.sh "$(meets one two)" && script tests/slurm/b_test.sh "$(meets two one)"
  totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/slurm/*' && ! has_run_again
}
check 'two suites run at the same time' side_by_side

no_more_than_asked() {
  rm -f "$work"/tests/slurm/*
  local each
  for each in a b c; do
    script "tests/slurm/${each}_test.sh" "mkdir $work/busy || { echo 'not ok 1 - not alone'; exit 1; }" "sleep 0.2; rmdir $work/busy; echo 'ok 1 - alone'"
  done
  totals_are '6 passed, 0 failed, 0 skipped' 0 --no-sanitizers --jobs 1 --only 'tests/slurm/*'
}
check 'with --jobs 1 they run one after the other' no_more_than_asked

# A suite that trains and one that compiles run beside a cluster suite, but not two of either. Two train side by side once no suite runs.
lanes() {
  rm -f "$work"/tests/slurm/*
  rm -rf "$work"/{one,two,three,four,five,b-over,busy}
  local meet="for i in {1..200}; do [[ -e $work/one && -e $work/two && -e $work/three ]] && break; sleep 0.1; done" wait
  local alone="mkdir $work/busy || { echo 'not ok 1 - not alone'; exit 1; }" met="echo \"ok 1 - met\""
  wait="for i in {1..200}; do [[ -e $work/%s ]] && break; sleep 0.1; done"
  # shellcheck disable=SC2059 # a format
  script tests/slurm/a_test.sh "touch $work/one" "$meet" "$met" "$(printf "$wait" b-over)"
  script tests/pytorch/a_test.sh "$alone" "touch $work/two" "$meet" "$met" "rmdir $work/busy"
  script tests/pytorch/b_test.sh "$alone" "echo \"ok 1 - alone\"" "rmdir $work/busy" "touch $work/b-over"
  # shellcheck disable=SC2059 # a format
  script tests/contrib/threads_test.sh "touch $work/three" "$meet" "$met" "$(printf "$wait" five)"
  script tests/pytorch/c_test.sh "$(meets four five)" && script tests/pytorch/d_test.sh "$(meets five four)"
  totals_are '10 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/[!f]*/*' && ! has_run_again
  local status=$?
  rm "$work"/tests/{slurm,pytorch}/* "$work/tests/contrib/threads_test.sh"
  return $status
}
check 'one that trains and one that compiles run beside suites' lanes

# Each waits for all: once nothing compiles any more, there is one more place on clusters and one more to train.
more_at_once() {
  rm -f "$work"/tests/slurm/* "$work"/{one,two,three,four,five}
  local all="for i in {1..200}; do [[ -e $work/one && -e $work/two && -e $work/three && -e $work/four && -e $work/five ]] && echo 'ok 1 - met' && exit; sleep 0.1; done"
  local suites=(slurm/a slurm/b slurm/c pytorch/a pytorch/b) names=(one two three four five) i
  for i in "${!suites[@]}"; do script "tests/${suites[i]}_test.sh" "touch $work/${names[i]}" "$all" 'echo "not ok 1 - met"; exit 1'; done
  totals_are '9 passed, 0 failed, 0 skipped' 0 --no-sanitizers --jobs 2 --only 'tests/[!f]*/*' && ! has_run_again
  local status=$?
  rm "$work"/tests/{slurm,pytorch}/*
  return $status
}
check 'once nothing compiles, one more suite runs on clusters, and one more trains' more_at_once

# The package's tests in parts, each with its argument and its log.
parts() {
  rm -f "$work"/tests/slurm/*
  script tests/pytorch/package_test.sh 'echo "ok 1 - $*"'
  totals_are '7 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/pytorch/*'
  local status=$? part
  for part in live frameworks scripts rest; do grep -q "^ok 1 - --part $part\$" "$work/build-check/logs/tests-pytorch-package_test.sh:$part.log" || status=1; done
  rm "$work/tests/pytorch/package_test.sh"
  return $status
}
check 'the tests of the package are run in parts' parts

# The unit tests: of 13 programs the second run has those that failed. It has all of them if the first did not come so far.
only_failed_programs() {
  rm -f "$work"/tests/slurm/*
  local failing=$work/build-check/failing
  printf '%s\n' 'check_units() {' "  if [[ -z \$SWELL_AGAIN ]]; then echo 'Passing: 2 | Failing: 1 Synthesis:' > \"\$1/tests/unit/one_test.log\"; return 1; fi" \
    "  echo 'Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0' > \"\$1/tests/unit/one_test.log\"" '}' > "$failing"
  cp "$work/contrib/lib/build.sh" "$failing.before" && cat "$failing" >> "$work/contrib/lib/build.sh" || return
  totals_are '3 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'none' && grep -q '^failed beside others, and passed alone: unit-tests' "$work/said"
  local status=$?
  mv "$failing.before" "$work/contrib/lib/build.sh"
  ((status == 0)) || return
  local dir=$work/units
  mkdir -p "$dir/tests/unit" && touch "$dir"/tests/unit/{a,b}_test "$dir"/tests/unit/a_test.trs || return
  goal() ( # of make in tests/unit
    # shellcheck source=contrib/lib/build.sh
    source "$top/contrib/lib/build.sh"
    make() { printf '%s\n' "${@: -1}" > "$dir/goal"; }
    check_units "$dir" && cat "$dir/goal"
  )
  [[ $(SWELL_AGAIN='' goal) == check && $(SWELL_AGAIN=yes goal) == check ]] || return
  touch "$dir/tests/unit/b_test.trs"
  [[ $(SWELL_AGAIN='' goal) == check && $(SWELL_AGAIN=yes goal) == recheck ]]
}
check 'a second run of the unit tests has the programs that failed' only_failed_programs

# Modules that Python has compiled are kept between suites, except those of packages.
keeps_modules() {
  rm -f "$work"/tests/slurm/*
  mkdir -p "$work/tests/packaging"
  script tests/slurm/a_test.sh 'echo "ok 1 - ${PYTHONDONTWRITEBYTECODE:-kept} in ${PYTHONPYCACHEPREFIX:-}"'
  script tests/packaging/a_test.sh 'echo "ok 1 - ${PYTHONDONTWRITEBYTECODE:-kept} in ${PYTHONPYCACHEPREFIX:-no folder}"'
  PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX='' totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/[ps]*/a_test.sh' &&
    grep -q "^ok 1 - kept in $work/build-check/pycache\$" "$work/build-check/logs/tests-slurm-a_test.sh.log" &&
    grep -q '^ok 1 - 1 in no folder$' "$work/build-check/logs/tests-packaging-a_test.sh.log"
  local status=$?
  rm -r "$work/tests/packaging" "$work"/tests/slurm/*
  return $status
}
check 'compiled modules of Python are kept, except those of packages' keeps_modules

# Two more versions: one has a build, one cannot be had.
other_slurms() {
  rm -f "$work"/tests/slurm/*
  script contrib/slurm-version 'case $1 in list) printf "22.05 one\n24.11 two\n26.05 three\n" ;; native) echo 22.05 ;; run) echo "quickstart on $2: $*" ;; esac'
  script contrib/plugins-all '[[ "$*" == "--dir "*" 24.11 26.05" ]] || exit 1' \
    'mkdir -p "$2-24.11/stage/bin" && cp "$0" "$2-24.11/stage/bin/swellrun"' \
    'echo "slurm 24.11: built in 1 s"; echo "slurm-version: no mirror"; echo "slurm 26.05: SKIPPED, see above"; exit 77'
  script tests/slurm/grow_test.sh 'echo "ok 1 - on ${SWELL_SLURM:-this one} in $SWELL_STAGE"'
  script tests/slurm/het_test.sh 'echo "ok 1 - on ${SWELL_SLURM:-this one}"'
  # 3 unit tests, a build, grow and het here; grow there, with all het and the quickstart too
  totals_are '7 passed, 0 failed, 1 skipped' 0 --no-sanitizers --only 'tests/slurm/*' && grep -q 'no mirror' "$work/said" &&
    grep -q 'on 24.11 in .*-24.11/stage$' "$work/build-check/logs/slurm-24.11-tests-slurm-grow_test.sh.log" &&
    totals_are '8 passed, 0 failed, 1 skipped' 0 --no-sanitizers --only 'tests/slurm/*' --slurm all &&
    totals_are '5 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/slurm/*' --slurm none &&
    totals_are '12 passed, 0 failed, 1 skipped' 0 --no-sanitizers --slurm all || return
  script contrib/plugins-all 'for one in 24.11 26.05; do mkdir -p "$2-$one/stage/bin" && cp "$0" "$2-$one/stage/bin/swellrun" && echo "slurm $one: built in 1 s"; done'
  script tests/slurm/ends_test.sh 'echo "ok 1 - on ${SWELL_SLURM:-this one}"'
  # 3 unit tests, 2 builds, three suites here; grow on both, ends on the newest
  totals_are '11 passed, 0 failed, 0 skipped' 0 --no-sanitizers --only 'tests/slurm/*' && grep '^== slurm-26.05/tests/slurm/ends_test.sh: 1 passed' "$work/said"
}
check 'other installed Slurms are built for, and tested there' other_slurms

finish_tests
