# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions for test scripts: print one line, `ok` or `not ok`, for each behaviour, and the number of behaviours at the end.
count=0 failures=0
check_log=$(mktemp) || exit 1
check_trace=$(mktemp) || exit 1
exec {BASH_XTRACEFD}>> "$check_trace" || exit 1

# A script may redefine these: show_state prints more about a failure, after_check runs after each behaviour.
show_state() { :; }
after_check() { :; }

# Checks one behaviour. If the function fails, shows its output and the last commands that it ran, one of which failed.
check() { # NAME FUNCTION...
  local name=$1 began=$SECONDS check_status PS4='+${FUNCNAME[0]:-} '
  shift
  count=$((count + 1))
  : > "$check_trace"
  set -x
  "$@" > "$check_log" 2>&1
  { check_status=$? && set +x; } 2> /dev/null
  if ((check_status == 0)); then
    printf 'ok %s - %s (%s s)\n' "$count" "$name" $((SECONDS - began))
  else
    failures=$((failures + 1))
    printf 'not ok %s - %s\n' "$count" "$name"
    { cat "$check_log" && printf -- '--- the last commands\n' && head -n -2 "$check_trace" | tail -n 12 | cut -c 1-300 && show_state; } 2>&1 | sed 's/^/# /'
  fi
  after_check
}

# Must be the script's last command, so that the script's status tells whether the tests passed.
finish_tests() {
  rm -f "$check_log" "$check_trace"
  printf '1..%s\n' "$count"
  ((failures == 0)) || exit 1
  exit 0
}
