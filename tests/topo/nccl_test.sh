#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell topo calibrate between GPUs, with stand-ins for NVIDIA's driver and NCCL (STAND_INS: the folder of the two). Their
# measurements mean nothing; the test is that the two ends agree, meet, exchange and say what is missing.
set -u -o pipefail
: "${SWELL:?}" "${STAND_INS:?}"
tap=$(cd "$(dirname "${BASH_SOURCE[0]}")/../support" && pwd)/tap.sh || exit 1
swell=$(realpath "$SWELL") stand_ins=$(realpath "$STAND_INS")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# shellcheck source=tests/support/tap.sh
source "$tap"
local_pair() { # METHOD [NAME=VALUE...]: writes cal.json; what is said goes to `said`
  local method=$1
  shift
  rm -f cal.json
  env "$@" "$swell" topo calibrate --local --pairs 1 --seconds 0.005 --method "$method" -o cal.json > said 2>&1
  local status=$?
  cat said
  return $status
}
measured_by() { # METHOD
  python3 - "$1" << 'PY'
import json, sys
d = json.load(open("cal.json"))
assert d["method"] == sys.argv[1], d
sizes = d["classes"][0]["sizes"]
assert len(sizes) == 8 and all(s["gbytes_per_s"] > 0 and s["latency_us"] > 0 for s in sizes), d
PY
}
refused() { # WORDS METHOD [NAME=VALUE...]
  local words=$1
  shift
  if local_pair "$@"; then return 1; fi
  [[ ! -e cal.json ]] && grep -q "$words" said
}

between_gpus() { local_pair nccl "LD_LIBRARY_PATH=$stand_ins" && measured_by nccl; }
check 'between two GPUs, with every size of message' between_gpus
by_itself() { local_pair auto "LD_LIBRARY_PATH=$stand_ins" && measured_by nccl; }
check 'where both ends have a GPU it is what auto takes' by_itself
one_gpu() {
  refused 'two ends on one node need a GPU each, and 1 is visible here' nccl "LD_LIBRARY_PATH=$stand_ins" STAND_IN_GPUS=1 || return
  local_pair auto "LD_LIBRARY_PATH=$stand_ins" STAND_IN_GPUS=1 && ! measured_by nccl
}
check 'one GPU for two ends is refused, and auto takes something else' one_gpu
# One end finds out, and the other must not wait for it.
one_end_fails() { # NAME=VALUE WORDS
  local began=$SECONDS
  refused "$2" nccl "LD_LIBRARY_PATH=$stand_ins" "$1" && local_pair auto "LD_LIBRARY_PATH=$stand_ins" "$1" || return
  ! measured_by nccl 2> /dev/null && grep -q "$2.*instead" said && ((SECONDS - began < 10))
}
check 'a GPU without memory on one end: the next best is measured' one_end_fails STAND_IN_FULL=1 'cuMemAlloc: CUDA_ERROR_OF_A_STAND_IN'
check '... on the other end' one_end_fails STAND_IN_FULL=0 'cuMemAlloc: CUDA_ERROR_OF_A_STAND_IN'
check 'one end cannot join: the next best is measured' one_end_fails STAND_IN_LOST=0 'ncclCommInitRank: error of a stand-in'

no_gpu() { refused 'no GPU is visible here; allocate some' nccl "LD_LIBRARY_PATH=$stand_ins" STAND_IN_GPUS=0; }
check 'an allocation without GPUs is named' no_gpu
one_library() {
  mkdir -p driver && cp "$stand_ins/libcuda.so.1" driver && refused 'libnccl.so.2' nccl "LD_LIBRARY_PATH=$work/driver"
}
check 'a missing library is named' one_library

finish_tests
