#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Where the differences among versions of Slurm live, and that docs/versions.md is true: each file, each test.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
cd "$top" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

sources() { find src examples -name '*.cc' -o -name '*.h' -o -name '*.c'; }
# A plugin's version, which Slurm reads, is no difference.
no_condition_elsewhere() {
  local found
  found=$(sources | grep -vE '^src/(slurm|plugins/select)/' | xargs grep -nE '#[[:space:]]*(el)?if.*SLURM_VERSION|SLURM_VERSION_NUM\(' )
  printf '%s\n' "$found"
  [[ -z $found ]] && (($(sources | wc -l) > 300)) && grep -rqE '#if SLURM_VERSION' src/slurm src/plugins/select
}
check 'code that depends on the version of Slurm is in src/slurm and src/plugins/select alone' no_condition_elsewhere

# Versions of a running Slurm are taken apart in src/slurm/release.cc, but for the whole number that a plugin must have.
no_release_elsewhere() {
  local found
  found=$(sources | grep -vE '^src/(slurm|plugins/select)/' | xargs grep -nE 'major *(==|<|>|<=|>=) *2[0-9]|slurm_api_version\(')
  printf '%s\n' "$found"
  [[ -z $found ]]
}
check 'behaviour of a running Slurm by its release is asked of src/slurm' no_release_elsewhere

# Cgroups have the job's id in their names up to 24.11, and its SLUID later.
no_cgroup() { ! grep -rniE '/sys/fs|/proc/[^ ]*cgroup|cgroup\.(procs|controllers|events|kill)' src examples --include='*.cc' --include='*.h' --include='*.c'; }
check 'no program looks at the cgroup of a job' no_cgroup

# is_there FILE NAME: a test of that name, in a unit test or a script.
is_there() {
  [[ -e $1 ]] || { printf 'no file %s\n' "$1"; return 1; }
  case $1 in
    *.cc) grep -q "^Test(${2%%.*}, ${2#*.})" "$1" ;;
    *) grep -qF -- "check '$2'" "$1" || grep -qF -- "check \"$2\"" "$1" ;;
  esac || { printf '%s has no test %s\n' "$1" "$2"; return 1; }
}

# | difference | file | test |
rows_are_true() {
  local what file test name rows=0 wrong=0
  while IFS='|' read -r _ what file test _; do
    [[ $test == *'`'* ]] || continue
    rows=$((rows + 1))
    while read -r file; do [[ -e $file ]] || { printf '%s: no file %s\n' "$what" "$file"; wrong=1; }; done < <(grep -o '`[^`]*`' <<< "$file" | tr -d '`')
    name=$(sed 's/.*`: *//; s/ *$//' <<< "$test") test=$(grep -o '`[^`]*`' <<< "$test" | head -n 1 | tr -d '`')
    is_there "$test" "$name" || wrong=1
  done < <(sed -n '/^| difference/,/^$/p' docs/versions.md)
  ((rows > 10 && wrong == 0))
}
check 'each difference has its file and its test' rows_are_true

# In README's table the last cell names tests in backquotes, of tests/slurm where no folder is said.
cells_are_backed() {
  local line cell test rows=0 wrong=0
  while IFS= read -r line; do
    cell=${line%|} cell=${cell##*|}
    [[ $cell == *'`'* ]] || continue
    rows=$((rows + 1))
    while read -r test; do
      [[ $test == */* ]] || test=tests/slurm/$test
      [[ -x ${test%% *} ]] || { printf '%s: no %s\n' "$line" "$test"; wrong=1; }
    done < <(grep -o '`[^`]*`' <<< "$cell" | tr -d '`')
  done < <(sed -n '/^| what | 22.05/,/^$/p' README.md)
  ((rows > 10 && wrong == 0))
}
check "each row of README's table of versions names a test that is there" cells_are_backed

# Every suite of tests/slurm is in that table.
every_suite() {
  local file table wrong=0
  table=$(sed -n '/^| what | 22.05/,/^$/p' README.md)  # a pipe to grep -q may end with SIGPIPE
  for file in tests/slurm/*_test.sh; do
    [[ $table == *"\`${file##*/}\`"* ]] || { printf 'not in the table: %s\n' "$file"; wrong=1; }
  done
  ((wrong == 0))
}
check 'every suite on clusters is in that table' every_suite

finish_tests
