#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Each threat and each fault of docs/security.md has a test, and every test that is named there is there by that name.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
cd "$top" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

# column_of HEADING NUMBER: of the table below it, without its head.
column_of() {
  awk -v heading="## $1" '/^## / { here = index($0, heading) == 1 } here && /^[|] /' docs/security.md | tail -n +3 |
    awk -F ' [|] ' -v column="$2" '{ sub(/ [|]$/, ""); print $column }'
}
unit_tests=$(find tests/unit -name '*.cc' -exec cat {} + | tr -s '\n ' '  ' | grep -oE 'Test\([a-z_]+, [a-z_0-9]+' | sed -E 's/Test\((.*), /\1\//')

file_of() { # NAME: the script that it stands for
  case $1 in
    security) printf 'tests/slurm/security_test.sh' ;;
    soak | hostile) printf 'tests/fault/%s' "$1" ;;
    */*) printf '%s' "$1" ;;
    *) printf 'tests/slurm/%s.sh' "$1" ;;
  esac
}
has_check() { # FILE WORDS: of the name of a check
  grep -E "(check|ok) ['\"]" "$1" | grep -F -- "$2" > /dev/null # grep -q would leave the first one a broken pipe, at times
}
fuzzes() { # NAME, NAME...
  local one
  for one in ${1//,/ }; do [[ -e tests/fuzz/$one.cc ]] || return 1; done
}
# is_there ITEM: one of what stands between semicolons in a column of tests.
is_there() {
  local file words=${1#*\`: }
  case $1 in
    '`fuzz`: '*) fuzzes "$words" ;;
    '`'*) file=$(file_of "$(cut -d'`' -f2 <<< "$1")") && [[ -e $file ]] && { [[ $1 != *'`: '* ]] || has_check "$file" "$words"; } ;;
    'the suite '*) grep -q "^${1#the suite }/" <<< "$unit_tests" ;;
    */*) grep -qxF "$1" <<< "$unit_tests" ;;
    *) return 1 ;;
  esac
}
all_there() { # HEADING NUMBER LEAST: at least so many rows
  local row item wrong=0 rows=0
  while IFS= read -r row; do
    rows=$((rows + 1))
    while IFS= read -r item; do
      is_there "$item" || { printf 'no such test: %s\n' "$item"; wrong=1; }
    done < <(sed 's/; /\n/g' <<< "$row")
  done < <(column_of "$1" "$2")
  printf '%s rows\n' "$rows"
  ((wrong == 0 && rows >= $3))
}
check 'each threat has a test, and its tests are there' all_there Threats 4 40
check 'each listener has one, too' all_there Listeners 4 8
check 'so has each fault that was fixed' all_there 'Fixed faults' 2 20

notices_a_lack() {
  ! is_there none && ! is_there 'controller/no_such_test' && ! is_there '`security`: words of no check' && ! is_there '`fuzz`: tag, nothing' &&
    ! is_there '`tests/slurm/nothing_test.sh`' && ! is_there 'the suite nothing' && is_there 'the suite trust' && is_there '`soak`: the invariants hold'
}
check 'a test that is not there is noticed' notices_a_lack
finish_tests
