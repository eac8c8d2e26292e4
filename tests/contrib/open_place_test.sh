#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A checkout below a folder that is closed to others: contrib/check and contrib/quickstart run in a copy that all can read.
# shellcheck disable=SC2317,SC2154 # called by check; `copy` is set by open_copy
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
# shellcheck source=contrib/lib/open_place.sh
source "$top/contrib/lib/open_place.sh"
((EUID == 0)) || { printf '1..0 # SKIP only root runs daemons as other users\n'; exit 77; }
work=$(mktemp -d /tmp/swell-open-test-XXXXXX) && chmod 755 "$work" || exit 1
trap 'rm -rf "$work"' EXIT
export SWELL_CACHE=$work/cache
project=$work/home/project
mkdir -p "$project"/{contrib/lib,build-check,build-aux,.venv} "$project/with space" && chmod 700 "$work/home" || exit 1
cp "$top"/contrib/lib/{open_place,source_files}.sh "$project/contrib/lib/"
printf 'old\n' > "$project/with space/kept" && printf 'x\n' > "$project/removed" && touch "$project"/{build-check,.venv,build-aux}/file && chmod 600 "$project/with space/kept" || exit 1
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

finds_the_closed_one() {
  [[ $(closed_folder "$project/contrib") == "$work/home" ]] && ! closed_folder "$work" && ! closed_folder "$work/not/there"
}
check 'the folder that is closed is named, and an open place has none' finds_the_closed_one

all_can_read() {
  open_copy "$project" && [[ $copy == "$SWELL_CACHE"/checkout-* ]] && as_nobody cat "$copy/with space/kept" &&
    as_nobody test -e "$copy/build-aux/file" && [[ ! -e $copy/build-check && ! -e $copy/.venv ]]
}
check 'another user reads the copy, in which nothing built is' all_can_read

is_refreshed() {
  open_copy "$project" > /dev/null && mkdir -p "$copy/build-check" && touch "$copy/build-check/built" "$copy/configure" || return
  rm "$project/removed" && printf 'new\n' > "$project/with space/kept"
  open_copy "$project" && [[ ! -e $copy/removed && $(cat "$copy/with space/kept") == new && -e $copy/build-check/built && -e $copy/configure ]]
}
check 'a second copy follows the checkout, and keeps what was built in it' is_refreshed

open_needs_none() { open_copy "$top" && { [[ -z $copy ]] || closed_folder "$top" > /dev/null; }; }
check 'a checkout that all can read needs no copy' open_needs_none

refuses_a_foreign_cache() {
  mkdir -p "$work/foreign" && chown 65534 "$work/foreign" && ! SWELL_CACHE=$work/foreign open_copy "$project" 2> "$work/said" || return
  cat "$work/said"
  grep -q 'SWELL_CACHE' "$work/said" && [[ -z $(ls -A "$work/foreign") ]]
}
check 'a cache that belongs to another user is refused, and the way out is named' refuses_a_foreign_cache

check_runs_there() {
  cp "$top/contrib/check" "$project/contrib/" && cp "$top/contrib/lib/build.sh" "$project/contrib/lib/" || return
  printf '#!/bin/bash\npwd -P; printf "installed for %%s\\n" "$0"; exit 1\n' > "$project/contrib/setup" && chmod +x "$project/contrib/setup"
  ! "$project/contrib/check" --only 'no*' > "$work/said" || return
  cat "$work/said"
  grep -q "^installed for $SWELL_CACHE/checkout-" "$work/said"
}
check 'contrib/check runs in the copy' check_runs_there

finish_tests
