# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# For test scripts: a line `ok` or `not ok` a behaviour, and at the end how many there were.
count=0 failures=0
check_log=$(mktemp) || exit 1

# What a script may define anew: what else is shown of a failure, and what is done after each behaviour.
show_state() { :; }
after_check() { :; }

check() { # NAME FUNCTION...: one behaviour; what the function prints is shown when it fails
  local name=$1 began=$SECONDS
  shift
  count=$((count + 1))
  if "$@" > "$check_log" 2>&1; then
    printf 'ok %s - %s (%s s)\n' "$count" "$name" $((SECONDS - began))
  else
    failures=$((failures + 1))
    printf 'not ok %s - %s\n' "$count" "$name"
    { cat "$check_log"; show_state; } 2>&1 | sed 's/^/# /'
  fi
  after_check
}

# The script's last command: its status is that of the tests.
finish_tests() {
  rm -f "$check_log"
  printf '1..%s\n' "$count"
  ((failures == 0)) || exit 1
  exit 0
}
