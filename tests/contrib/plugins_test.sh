#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The symbols that the plugins need of Swell are there when slurmctld loads them: symbols are bound when they are first called, so that
# one that nothing exports would end slurmctld then.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
if [[ ! -d ${SWELL_STAGE:-}/plugins ]]; then
  printf '1..0 # SKIP SWELL_STAGE names no installed Swell: run contrib/check\n'
  exit 77
fi
# shellcheck source=tests/support/tap.sh
source "$here/../support/tap.sh"

exported() {
  find "$SWELL_STAGE" -name 'libswell*.so' -exec nm -D --defined-only {} + | awk 'NF == 3 { print $3 }' | sort -u
}
needs_nothing_else() { # PLUGIN
  local missing
  # Names of Swell: C++ names in namespace swell, C names that begin so.
  missing=$(nm -D --undefined-only "$1" | awk '{ print $2 }' | grep -E '^_ZNK?5swell|^swell_' | sort -u | comm -23 - <(exported) | c++filt)
  [[ -z $missing ]] || { printf 'nothing exports:\n%s\n' "$missing" && return 1; }
}
for plugin in "$SWELL_STAGE"/plugins/*.so; do
  check "$(basename "$plugin") needs nothing of Swell that is not exported" needs_nothing_else "$plugin"
done

# Rivals, and solvers to compare with, are the simulator's and the tools': slurmctld loads none of them.
has_no_rivals() {
  local found symbols
  symbols=$(find "$SWELL_STAGE" -name 'libswell-controller.so' -exec nm -C {} +)
  [[ $(wc -l <<< "$symbols") -gt 1000 ]] || { printf 'the symbols of libswell-controller.so were stripped\n'; return 1; }
  grep -q 'swell::planner::Incremental' <<< "$symbols" || { printf 'nm finds not even the solver that it has\n'; return 1; }
  found=$(grep -E 'swell::(planner::(Exhaustive|Metis|make_solver)|policy::(Arena|Defragmenter|ElasticFlow|Gavel|Rubick|Sia|SimulatedPolicy|Suika|make_simulated_policy))' <<< "$symbols")
  [[ -z $found ]] || { printf 'slurmctld would load:\n%s\n' "$found" | head -n 10 && return 1; }
}
check 'slurmctld loads no rival and no solver to compare with' has_no_rivals
finish_tests
