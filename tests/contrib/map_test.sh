#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The map is true: names in docs/architecture.md, docs/journeys.md, docs/clocks.md, CONTRIBUTING.md and docs/README.md are there.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
cd "$top" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

map=(docs/architecture.md docs/journeys.md docs/clocks.md)

# Paths of the source in backquotes; those with NAME, a pattern or a build folder are examples.
paths_of() { grep -oE '`(src|tests|contrib|docs|man|m4)/[A-Za-z0-9_./-]+`' "$1" | tr -d '`' | grep -v NAME | sort -u; }
every_path() {
  local page path missing=0
  for page in "${map[@]}" CONTRIBUTING.md README.md; do
    while read -r path; do
      [[ -e $path ]] || { printf '%s names %s, which is not there\n' "$page" "$path"; missing=1; }
    done < <(paths_of "$page")
  done
  ((missing == 0)) && [[ $(paths_of docs/architecture.md | wc -l) -gt 30 ]]
}
check 'every file that the map names is there' every_path

# Functions and types, as `Name::member()`, `Name::member` or `name()`.
every_name() {
  local name member missing=0
  while read -r name; do
    member=${name##*::}
    grep -rqwF -- "$member" src || { printf 'nothing in src is called %s\n' "$name"; missing=1; }
  done < <(grep -ohE '`[A-Za-z_]+(::[A-Za-z_]+)?(\(\))?`' "${map[@]}" | grep -E '::|\(\)' | tr -d '`()' | sort -u)
  ((missing == 0))
}
check 'every function that the map names is there' every_name

# `Name::member()` in `file`
every_place() {
  local member file wrong=0 places
  places=$(grep -ohE '`[A-Za-z_:]+(\(\))?` in `src/[A-Za-z0-9_./]+`' "${map[@]}" CONTRIBUTING.md | tr -d '`()' | sort -u)
  while read -r member _ file; do
    grep -qwF -- "${member##*::}" "$file" && [[ $member != *::* || $(grep -cwE "${member%%::*}" "$file") != 0 ]] ||
      { printf '%s is not in %s\n' "$member" "$file"; wrong=1; }
  done <<< "$places"
  ((wrong == 0)) && [[ $(wc -l <<< "$places") -gt 4 ]]
}
check 'every function is in the file where the map says that it is' every_place

# The last column of docs/scripts.md: `FILE`: NAME; the same file: NAME
held() { # FILE NAME: whether it has a test of that name
  local name=${2// /_}
  case $1 in
    *.sh) grep -qF -- "check '$2'" "$1" || grep -qF -- "check \"$2\"" "$1" ;;
    *.py) grep -qF -- "def test_$name(" "$1" ;;
    *) grep -qF -- ", $name" "$1" ;;
  esac
}
every_line_is_held() {
  local row item file='' name missing=0 lines=0 items
  while IFS= read -r row; do
    row=${row% |} row=${row##*| }
    lines=$((lines + 1))
    mapfile -t items < <(sed 's/; \(`tests\|the same\)/\n\1/g' <<< "$row")
    for item in "${items[@]}"; do
      # shellcheck disable=SC2016 # backquotes of the page
      [[ $item =~ ^'`'(tests/[^'`']+)'`' ]] && file=${BASH_REMATCH[1]}
      name=${item#*: } name=${name% (*}
      [[ $item == *': '* || $item == 'the same'* ]] || { printf 'no test is named: %s\n' "$row"; missing=1; }
      [[ $item != *': '* ]] || held "$file" "$name" || { printf '%s has no test "%s"\n' "$file" "$name"; missing=1; }
    done
  done < <(sed -nE '/^\| (your script has|---)/d; /^\|/p' docs/scripts.md)
  ((missing == 0 && lines > 20))
}
check 'every line of docs/scripts.md has the test that it names' every_line_is_held

# The table of frameworks: "yes [3]" and the like, "no", and below it "3. `FILE`: NAME".
frameworks() { sed -nE '/^\| framework \| restart \| live/,/^$/{/^\|/p}' "$1"; }
every_framework() {
  local number file name missing=0 numbers
  diff <(frameworks README.md) <(frameworks docs/frameworks.md | sed -E 's/ \[[0-9]+\]//g') || { printf 'README and docs/frameworks.md differ\n'; missing=1; }
  if frameworks docs/frameworks.md | tail -n +3 | cut -d'|' -f3-7 | tr '|' '\n' | grep -vE '^ no( \[[0-9]+\])? $|^ [A-Za-z, ]+ \[[0-9]+\] $|^$'; then
    printf 'a cell has neither a test nor "no"\n'
    missing=1
  fi
  numbers=$(frameworks docs/frameworks.md | grep -oE '\[[0-9]+\]' | tr -d '[]' | sort -nu)
  diff <(printf '%s\n' "$numbers") <(sed -nE '/^\| framework \| restart/,/^## /s/^([0-9]+)\. `.*/\1/p' docs/frameworks.md) || { printf 'the numbers and the list differ\n'; missing=1; }
  while IFS='|' read -r number file name; do
    [[ -n $number ]] && held "$file" "$name" || { printf '%s has no test "%s"\n' "$file" "$name"; missing=1; }
  done < <(sed -nE '/^\| framework \| restart/,/^## /s/^([0-9]+)\. `([^`]+)`: (.*)/\1|\2|\3/p' docs/frameworks.md)
  ((missing == 0)) && [[ $(wc -w <<< "$numbers") -gt 15 ]]
}
check 'every cell of the table of frameworks names a test that there is, or says no' every_framework

# | name | unit | value | file | what for |
clocks() { sed -nE 's/^\| `([A-Za-z_]+)` \| ([a-z]+) \| ([^|]*[^ ]) \| `([^`]+)` \|.*/\1;\2;\3;\4/p' docs/clocks.md; }
every_clock() {
  local name unit value file wrong=0 line
  while IFS=';' read -r name unit value file; do
    line=$(grep -w -- "$name" "$file" | grep -E -- "(^|[^0-9.'])${value//\*/\\*}([^0-9.']|$)" | head -n 1)
    [[ -n $line ]] || { printf '%s: no %s of %s %s\n' "$file" "$name" "$value" "$unit"; wrong=1; }
  done < <(clocks)
  ((wrong == 0)) && [[ $(clocks | wc -l) -gt 25 ]]
}
check 'every clock of the map has that value in that file' every_clock

# Prints what a folder includes by the table of folders, as src/FOLDER/file.h says it.
includes_of() { # FOLDER
  grep -rhoE '^#include "[a-z_]+/' "src/$1" --include=*.cc --include=*.h --include=*.c | sed -E 's/.*"(.*)\//\1/' | sort -u | grep -vx "$1"
}
no_other_folder() {
  local folder others wrong=0 one allowed seen=0
  while IFS='|' read -r _ folders allowed _; do
    for folder in $(grep -oE 'src/[a-z]+' <<< "$folders"); do
      folder=${folder#src/}
      seen=$((seen + 1))
      for one in $(includes_of "$folder"); do
        [[ $one != base ]] || continue
        if [[ $allowed == *all\ but* ]]; then [[ $allowed == *"src/$one\`"* ]] || continue; else [[ $allowed != *"src/$one\`"* ]] || continue; fi
        printf 'src/%s includes src/%s\n' "$folder" "$one"
        wrong=1
      done
    done
  done < <(sed -n '/^| folder | includes |/,/^$/p' docs/architecture.md | tail -n +3)
  others=$(find src -mindepth 1 -maxdepth 1 -type d | wc -l)
  ((wrong == 0)) && { ((seen == others)) || { printf 'the table has %s folders, src %s\n' "$seen" "$others"; return 1; }; }
}
check 'no folder includes what the map does not say' no_other_folder

# A constant of the controller, the protocol or the launcher that is a time.
no_clock_without_a_row() {
  local name rows wrong=0
  rows=$(clocks)
  while read -r name; do
    grep -q "^$name;" <<< "$rows" || { printf 'no row for %s\n' "$name"; wrong=1; }
  done < <(grep -rhoE 'constexpr (auto|double|int|std::chrono::[a-z]+|Clock::duration) [A-Za-z_]+ ?(=|\{).*' src/control src/controller src/launcher --include=*.cc --include=*.h |
    grep -E 'chrono|_s ?(=|\{)|_ms ?(=|\{)|Seconds ?(=|\{)' | sed -E 's/^constexpr [^ ]+ ([A-Za-z_]+).*/\1/' | sort -u)
  while read -r name; do
    grep -q "^$name;" <<< "$rows" || { printf 'no row for the key %s\n' "$name"; wrong=1; }
  done < <(sed -nE 's/^ *\{"([A-Za-z]+)",.*seconds\(.*/\1/p' src/control/swell_conf.cc)
  ((wrong == 0))
}
check 'every named clock of controller and launcher is on the map' no_clock_without_a_row

every_page() {
  local page missing=0
  while read -r page; do
    grep -qF "(${page#docs/})" docs/README.md || { printf 'docs/README.md lacks %s\n' "$page"; missing=1; }
  done < <(find docs -name '*.md' ! -path docs/README.md)
  while read -r page; do
    [[ -e docs/$page ]] || { printf 'docs/README.md names %s, which is not there\n' "$page"; missing=1; }
  done < <(grep -oE '\]\([^)]+\)' docs/README.md | tr -d '])(')
  ((missing == 0))
}
check 'the index has every page, and no others' every_page

one_test_alone() {
  grep -q 'a_pending_job_gets_the_gpus\|a pending job gets lent GPUs back' tests/slurm/grow_test.sh && ls tests/unit/controller/controller_test.cc &&
    grep -q 'Test(controller, drain' tests/unit/controller/controller_test.cc &&
    grep -q 'Test(controller, reclaims_for_a_pending_job_and_counts_it' tests/unit/controller/controller_test.cc &&
    grep -q 'Test(controller, cancels_what_outlives_its_deadline' tests/unit/controller/controller_test.cc
}
check 'the tests that the map points at are there by that name' one_test_alone

finish_tests
