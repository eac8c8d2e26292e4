#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The packages' copyright file says of each file what the file says of itself.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
copyright=$top/contrib/debian/copyright

# pattern, licence: one line each, in the file's order.
stanzas() {
  awk '/^[A-Za-z-]+:/ { inside = 0 }
       /^Files:/ { inside = 1; sub(/^Files:/, "") }
       /^License:/ && count { for (i = 0; i < count; i++) print pattern[i], $2; count = 0 }
       inside { for (i = 1; i <= NF; i++) pattern[count++] = $i }' "$copyright"
}
mapfile -t listed < <(stanzas)
# licence_by_stanza FILE: sets given; the last stanza that matches counts.
licence_by_stanza() {
  local line
  for line in "${listed[@]}"; do
    # shellcheck disable=SC2053 # a pattern
    [[ $1 != ${line% *} ]] || given=${line##* }
  done
}

every_file() {
  local file said given bad=0 seen=0
  while IFS=: read -r file said; do
    said=${said##*SPDX-License-Identifier: } && said=${said%% *} given=''
    licence_by_stanza "$file"
    seen=$((seen + 1))
    [[ $said == "$given" ]] || { printf '%s: says %s, the copyright file %s\n' "$file" "$said" "$given"; bad=1; }
  done < <(cd "$top" && grep -rHm 1 -o 'SPDX-License-Identifier: [A-Za-z0-9.-]*' src examples contrib man m4 configure.ac --exclude=Makefile.in --exclude-dir=.libs)
  ((seen > 500)) || { printf 'only %s files were found\n' "$seen"; bad=1; }
  return $bad
}
check "contrib/debian/copyright and each file's first line name the same licence" every_file

finish_tests
