#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The profiler, the runtime and the launcher's live driver under ThreadSanitizer: no data race in their unit tests.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
log=$(mktemp)
# Always the same, so that the compiler's cache knows it; made anew, as objects in it may be older than a header.
folder=$top/build-check/threads
trap 'rm -rf "$log" "$folder"' EXIT
rm -rf "$folder"
if "$top/tests/unit/sanitize" thread "$folder" > "$log" 2>&1 && grep -qE '^[1-9][0-9]+ tests, 0 failed$' "$log"; then
  printf 'ok 1 - %s under ThreadSanitizer\n' "$(tail -n 1 "$log")"
  grep ' s of CPU: ' "$log" | sed 's/^/# /'
else
  grep -E 'WARNING: ThreadSanitizer|error:|failed|^    #[0-4] ' "$log" | head -n 60 | sed 's/^/# /'
  printf 'not ok 1 - unit tests under ThreadSanitizer\n'
fi
printf '1..1\n'
grep -q '^[1-9][0-9]* tests, 0 failed$' "$log"
