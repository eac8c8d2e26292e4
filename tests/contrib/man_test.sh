#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The manual pages say what the program does: every key, with its default; every word; no page that
# man complains of.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1

# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

# Text of a page without roff's requests and font changes.
text_of() { sed -E 's/\\f[A-Z]//g; s/\\-/-/g; s/^\.[A-Z]+ //; s/" "//g; s/"//g' "$top/man/$1"; }
same() { # WHAT EXPECTED FOUND: two lists of lines
  diff <(sort -u <<< "$2") <(sort -u <<< "$3") > /dev/null && return 0
  printf '%s: < in the source, > in the page\n' "$1"
  diff <(sort -u <<< "$2") <(sort -u <<< "$3")
  return 1
}

conf_keys() { sed -nE 's/^ *\{"([A-Z][A-Za-z]+)",.*/\1/p' "$top/src/control/swell_conf.cc"; }
page_keys() { sed -nE 's/^\.(BI|BR) ([A-Z][A-Za-z]+)= .*/\2/p' "$top/man/swell.conf.5"; }
every_conf_key() { [[ $(conf_keys | wc -l) -ge 10 ]] && same keys "$(conf_keys)" "$(page_keys)"; }
check 'swell.conf(5) has the keys that swell_conf.cc reads, and no others' every_conf_key

# key, member in Config, default there; for the keys whose reader stands on one line
numeric_defaults() {
  local key member
  sed -nE 's/^ *\{"([A-Za-z]+)",.*(whole|seconds)\(c\.([a-z_]+),.*/\1 \3/p' "$top/src/control/swell_conf.cc" |
    while read -r key member; do
      printf '%s %s\n' "$key" "$(sed -nE "s/.* $member = ([0-9.]+);.*/\1/p" "$top/src/control/swell_conf.h")"
    done
}
page_default() { # KEY
  awk -v key="$1" '
    /^\.(BI|BR) [A-Z][A-Za-z]+= / { at = ($2 == key "=") }
    at && match($0, /(Default: |^)[0-9][0-9.]*\.$/) { text = substr($0, RSTART, RLENGTH); gsub(/Default: |\.$/, "", text); print text; exit }
  ' "$top/man/swell.conf.5"
}
every_default() {
  local key default bad=0
  while read -r key default; do
    [[ -n $default && $(page_default "$key") == "$default" ]] && continue
    printf '%s: %s in swell_conf.h, %s in the page\n' "$key" "$default" "$(page_default "$key")"
    bad=1
  done < <(numeric_defaults)
  return $bad
}
check 'swell.conf(5) has the defaults of swell_conf.h' every_default

spec_keys() { grep -oE '\{"[a-z]+", +read_[a-z]+\}' "$top/src/control/elastic_spec.cc" | sed -E 's/\{"([a-z]+)".*/\1/'; }
page_spec_keys() { sed -nE '/^\.SH THE OPTION/,/^\.SH WHAT HAPPENS/s/^\.(BI|BR|B) ([a-z]+)=.*/\2/p' "$top/man/swell-elastic.7"; }
every_spec_key() { [[ $(spec_keys | wc -l) -ge 6 ]] && same keys "$(spec_keys)" "$(page_spec_keys)"; }
check 'swell-elastic(7) has the keys of --elastic, and no others' every_spec_key

every_tag_word() {
  local word bad=0 page
  page=$(text_of swell-elastic.7)
  for word in $(grep -oE '(\{|set\()"[a-z_]+", ' "$top/src/controller/elastic_job.cc" | sed -E 's/.*"(.*)".*/\1/'); do
    grep -qE "^(.*, )?$word(,.*)?$" <<< "$page" || { printf '%s is not explained\n' "$word"; bad=1; }
  done
  return $bad
}
check "swell-elastic(7) has the words of a job's AdminComment" every_tag_word

every_event() {
  local event bad=0 page
  page=$(text_of swell.conf.5 | tr '\n' ' ')
  # shellcheck disable=SC2013 # words without blanks
  for event in $(cat "$top"/src/controller/*.cc | grep -oE 'event\("[a-z-]+"' | cut -d'"' -f2 | sort -u); do
    grep -qE "(^|[ ,:])$event([ ,:]|$)" <<< "$page" || { printf '%s is not there\n' "$event"; bad=1; }
  done
  return $bad
}
check 'swell.conf(5) has the events of EventLog' every_event

# An admin who reads one of them writes the same lines as one who reads the other. Comments differ.
same_as_readme() {
  local line bad=0 page
  page=$(text_of swell-admin.7 | tr -d '"' | sed 's/ *#.*//; s/^[a-z]*\.conf: *//; s/^ *//')
  while IFS= read -r line; do
    grep -qxF -- "$line" <<< "$page" || { printf 'swell-admin(7) lacks: %s\n' "$line"; bad=1; }
  done < <(sed -n '/^## What an admin does/,/^## How it works/p' "$top/README.md" | awk '/^```/ { inside = !inside; next } inside' |
    tr -d '"' | sed 's/ *#.*//; /^$/d' | grep -v '^swell doctor\|^systemctl')
  return $bad
}
check 'README.md and swell-admin(7) have the same lines' same_as_readme

no_warnings() {
  local page said bad=0
  command -v man > /dev/null || return 0
  for page in "$top"/man/*.[1-8]; do
    said=$(MANWIDTH=100 LC_ALL=C man -l --warnings "$page" 2>&1 > /dev/null)
    [[ -z $said ]] || { printf '%s: %s\n' "${page##*/}" "$said"; bad=1; }
    grep -q "${page##*/}" "$top/man/Makefile.am" || { printf '%s is not installed\n' "${page##*/}"; bad=1; }
  done
  return $bad
}
check 'man(1) has no complaint, and every page is installed' no_warnings

finish_tests
