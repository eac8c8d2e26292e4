#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The select plugin's stubs for aarch64, assembled and linked on any host.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
for program in as ld nm objdump; do
  command -v "aarch64-linux-gnu-$program" > /dev/null || skip 'no binutils for aarch64: run contrib/setup'
done
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# Every name that any version of Slurm passes on; two of them count, as the build says (src/plugins/select/Makefile.am).
sed 's/.*/FORWARD(&)/; /_node_init)/s/^/COUNT_AND_/; /_p_reconfigure)/s/^/COUNT_AND_/' "$top/src/plugins/select/forwarded.txt" > forwarded.h
stubs_of() { # MACRO...: what is between the marks that the compiler puts around assembly of ours
  printf '#include "plugins/select/stubs.h"\n' | g++ -std=c++20 -I. -I"$top/src" "$@" -x c++ -S -o - - |
    sed -n '/^#APP/,/^#NO_APP/p' | grep -v '^#'
}

assembled() {
  local name
  stubs_of -U__x86_64__ -D__aarch64__ > stubs.s && [[ -s stubs.s ]] || return
  printf '.data\n.globl swell_node_table_changes\n.hidden swell_node_table_changes\nswell_node_table_changes: .word 0\n.balign 8\n' >> stubs.s
  while read -r name; do
    printf '.globl swell_to_%s\n.hidden swell_to_%s\nswell_to_%s: .quad 0\n' "$name" "$name" "$name"
  done < "$top/src/plugins/select/forwarded.txt" >> stubs.s
  aarch64-linux-gnu-as stubs.s -o stubs.o && aarch64-linux-gnu-ld -shared stubs.o -o stubs.so
}
check 'the stubs for aarch64 are assembled and linked into a shared library' assembled

every_name_jumps() {
  local missing jumps names
  missing=$(comm -23 <(sort "$top/src/plugins/select/forwarded.txt") <(aarch64-linux-gnu-nm -D stubs.so | awk '$2 == "T" { print $3 }' | sort))
  names=$(wc -l < "$top/src/plugins/select/forwarded.txt")
  jumps=$(aarch64-linux-gnu-objdump -d stubs.so | grep -cw 'br[[:space:]]*x16')
  printf 'missing: %s; %s names, %s jumps\n' "$missing" "$names" "$jumps"
  [[ -z $missing && $jumps == "$names" ]]
}
check 'every name is a function that jumps once through its slot' every_name_jumps

arguments_are_kept() {
  # x0 to x8 and the stack hold arguments; x16 and x17 are there for such stubs.
  ! aarch64-linux-gnu-objdump -d --no-show-raw-insn stubs.so | grep -E '\b([xw]([0-9]|1[0-589])|sp)\b' | grep -v '^[0-9a-f]* <'
}
check 'no register that may hold an argument is touched' arguments_are_kept

others_are_refused() {
  ! printf '#include "plugins/select/stubs.h"\n' | g++ -std=c++20 -I. -I"$top/src" -U__x86_64__ -x c++ -fsyntax-only - 2> said &&
    grep -q 'write the three pieces of a stub' said
}
check 'any other processor is named when the stubs are compiled' others_are_refused

# As a build for such a processor configures, though with this host's compiler.
left_out_elsewhere() {
  mkdir ppc64 && (cd ppc64 && "$top/configure" --build=x86_64-pc-linux-gnu --host=powerpc64le-linux-gnu CC=gcc CXX=g++ --disable-simulator) > said 2>&1 ||
    { tail -n 20 said; return 1; }
  grep 'select plugin' said | tee line
  grep -q 'no: its jumps are written for x86_64 and aarch64 alone, not for powerpc64le' line &&
    grep -qx '#select_LTLIBRARIES = select_cons_tres.la' ppc64/src/plugins/select/Makefile
}
[[ ! -x $top/configure ]] || check 'configure leaves the plugin out for any other processor, and says so' left_out_elsewhere

finish_tests
