#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Measures Swell on one GPU, in stages of at most 8 minutes, each prediction beside its measurement.
#
#   tests/gpu/run.sh [--stand-in] [--out DIR] [--seconds N] [STAGE...]
#
# Stages: first memory profile ratio (all of them, in this order). A failure ends neither a stage nor the run.
# --stand-in   the stand-ins for the driver, with a thousandth of the state: no GPU is needed
# --out DIR    where the JSON of each stage and rows.md go (gpu-results)
# --seconds N  the limit of a stage (480)
# It needs the driver, Python 3.11 or 3.12 with PyTorch 2.11 or later (SWELL_PYTHON names it; python3), and transformers for the
# engine. Exits with 1 where a stage failed or missed a goal.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
top=$(cd "$here/../.." && pwd)
out=gpu-results seconds=480 stages=() stand_in=0
while (($#)); do
  case $1 in
    --stand-in) stand_in=1 ;;
    --out | --seconds)
      [[ -n ${2:-} ]] || { printf 'run.sh: %s needs a value; see --help\n' "$1" >&2; exit 2; }
      if [[ $1 == --out ]]; then out=$2; else seconds=$2; fi
      shift
      ;;
    first | memory | profile | ratio) stages+=("$1") ;;
    -h | --help)
      sed -n '3,14s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      printf 'run.sh: "%s" is not a stage; stages are first, memory, profile and ratio\n' "$1" >&2
      exit 2
      ;;
  esac
  shift
done
[[ $seconds =~ ^[1-9][0-9]{0,3}$ ]] || { printf 'run.sh: --seconds is "%s"; it is a whole number\n' "$seconds" >&2; exit 2; }
((${#stages[@]} > 0)) || stages=(first memory profile ratio)
python=${SWELL_PYTHON:-python3}
"$python" -c 'import torch' || { printf 'run.sh: %s has no PyTorch; let SWELL_PYTHON name one that has\n' "$python" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
export SWELL_STAGE=${SWELL_STAGE:-$top/build/stage} GPU_STAND_IN=$stand_in GPU_OUT=$out GPU_STAGE_SECONDS=$seconds
# Libraries that the programs of a bundle want; nothing where they are the system's.
[[ ! -d $top/build/lib ]] || export LD_LIBRARY_PATH=$top/build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
((stand_in == 0)) || export LD_LIBRARY_PATH=$SWELL_STAGE/../tests/unit/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUBLAS_WORKSPACE_CONFIG=:4096:8 TEST_PATIENCE=${TEST_PATIENCE:-120} TEST_PACE=${TEST_PACE:-0.05} PYTHONUNBUFFERED=1
failed=()
for stage in "${stages[@]}"; do
  module=$stage
  [[ $stage != profile ]] || module=profiles # Python has a module of that name
  rm -f "$out/$stage.json"
  timeout -k 20 $((seconds + 60)) "$python" "$here/stages/$module.py" 2> "$out/$stage.log"
  status=$?
  ((status == 0)) || failed+=("$stage ($status)")
  [[ -e $out/$stage.json ]] || { printf '%s: no result; the end of %s:\n' "$stage" "$out/$stage.log"; tail -n 20 "$out/$stage.log"; }
done
gpu='the stand-in'
((stand_in)) || gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
commit=$(cat "$top/commit" 2> /dev/null || git -C "$top" rev-parse --short HEAD 2> /dev/null || printf unknown)
files=()
for stage in "${stages[@]}"; do [[ ! -e $out/$stage.json ]] || files+=("$out/$stage.json"); done
"$python" "$here/stages/rows.py" "$(date +%F)" "${gpu:-unknown}" "$commit" ${files[@]+"${files[@]}"} > "$out/rows.md"
printf 'rows for docs/gpu-results.md: %s\n' "$out/rows.md"
((${#failed[@]} == 0)) || { printf 'failed or missed a goal: %s\n' "${failed[*]}"; exit 1; }
