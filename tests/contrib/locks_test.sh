#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every use of a value that a mutex guards happens while it is held, by clang's analysis of the annotations of src/base/mutex.h.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
clang=$(command -v clang++ clang++-19 clang++-16 clang++-15 clang++-14 | head -n 1)
[[ -n $clang ]] || { echo '1..0 # SKIP no clang++ was found: run contrib/setup'; exit 77; }
cd "$top" || exit 1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
read -r -a libraries <<< "$(pkg-config --cflags jansson fmt libxxhash)"
# The folders are those of an installation; what they are does not matter here.
flags=(-std=c++20 -Wno-everything -Wthread-safety -Werror=thread-safety "-I$top/src" "${libraries[@]}"
  '-DSWELL_LIBDIR=""' '-DSWELL_LIBEXECDIR=""' '-DSWELL_PLUGINDIR=""')
"$clang" "${flags[@]}" -x c++-header src/pch/precompiled.h -o "$work/standard.pch" || exit 1
analyse() { # FILE...
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} "$clang" "${flags[@]}" -include-pch "$work/standard.pch" -fsyntax-only {}
}
# Sources that lock one of these, and those whose class has one.
users() {
  grep -rlwE 'Lock|Mutex' src --include=*.cc
  grep -rlw Mutex src --include=*.h | sed 's/h$/cc/' | while read -r source; do [[ ! -e $source ]] || printf '%s\n' "$source"; done
}
all_are_held() {
  local -a sources
  mapfile -t sources < <(users | sort -u)
  ((${#sources[@]} > 30)) || { printf 'only %s sources were found\n' "${#sources[@]}"; return 1; }
  analyse "${sources[@]}"
}
check 'what a mutex guards is used only while it is held' all_are_held

no_other_mutex() {
  ! grep -rnE 'std::(mutex|shared_mutex|recursive_mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b' src --include=*.cc --include=*.h |
    grep -v '^src/base/mutex.h:'
}
check 'no mutex in src goes without this analysis' no_other_mutex

# The analysis itself is at work.
a_fault_is_found() {
  printf '%s\n' '#include "base/mutex.h"' 'struct Held {' '  swell::Mutex mutex;' '  int value SWELL_GUARDED_BY(mutex) = 0;' '};' \
    'int read(Held& held) { return held.value; }' > "$work/fault.cc"
  ! analyse "$work/fault.cc" > "$work/said" 2>&1 && grep -q "requires holding mutex 'held.mutex'" "$work/said"
}
check 'a value that is read without its mutex is found' a_fault_is_found
finish_tests
