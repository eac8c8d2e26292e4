#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The stages of the first half hour on a GPU (tests/gpu), from their bundle and over the stand-ins: each ends well, and measures.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
[[ -x ${SWELL_STAGE:-}/bin/swellrun ]] || { printf '1..0 # SKIP SWELL_STAGE names no stage of a build\n'; exit 77; }
"${SWELL_PYTHON:-python3}" -c 'import torch, transformers' 2> /dev/null || { printf '1..0 # SKIP no PyTorch or no transformers\n'; exit 77; }
work=$(mktemp -d /tmp/swell-test-XXXXXX) || exit 1
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' INT TERM HUP

check 'the bundle has at most 60 MB, and its programs are in it' "$top/tests/gpu/pack.sh" "$work/bundle"
((failures == 0)) || finish_tests
# Nothing of this checkout or its build may be used from here on.
stage() { env -u SWELL_STAGE -u SWELL_LIBRARY "$work/bundle/tests/gpu/run.sh" --stand-in --out "$work/results" "$1" || { tail -n 30 "$work/results/$1.log"; return 1; }; }
rows() { # STAGE TEXT...: it measured each
  local stage=$1 text
  shift
  for text; do grep -F "$text" "$work/results/$stage.json" || { printf '%s has no row "%s"\n' "$stage" "$text"; return 1; }; done
}
first() { stage first && rows first 'memory outlives all CUDA processes' 'plain copy within the GPU' 'checksum on the GPU'; }
memory() { stage memory && rows memory 'ddp, 5 GiB of state: pause' 'engine, 5 GiB of state: losses' 'fsdp, 5 GiB of state: losses' 'not hashed: phases' 'kill -9 of the old worker in move' 'the shim: free memory'; }
profile() { stage profile && rows profile 'over without' 'predicted' 'mean error'; }
ratio() { stage ratio && rows ratio 'restart over live'; }
check 'stage first measures a handover of memory' first
check 'stage memory changes DDP, FSDP2 and the engine live with equal losses, and survives kills' memory
check 'stage profile predicts other plans from one profile' profile
check 'stage ratio compares a restart with a live change' ratio
refuses() {
  ! "$work/bundle/tests/gpu/run.sh" --out "$work/none" second 2> "$work/said" && grep -F '"second" is not a stage' "$work/said" && [[ ! -e $work/none ]]
}
check 'an unknown stage is refused by name' refuses
finish_tests
