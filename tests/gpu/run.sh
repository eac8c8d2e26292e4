#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Measures Swell on one GPU, in stages of at most 8 minutes, each prediction beside its measurement.
#
#   tests/gpu/run.sh [--stand-in] [--out DIR] [--seconds N] [--within N] [STAGE...]
#
# Stages: first memory profile ratio (all of them, in this order). A failure ends neither a stage nor the run.
# --stand-in   the stand-ins for the driver, with a thousandth of the state: no GPU is needed
# --out DIR    where the JSON of each stage and rows.md go (gpu-results)
# --seconds N  the limit of a stage (480)
# --within N   the limit of all stages together: each has an equal share of what is left, at most --seconds
# It needs the driver, and Python 3.11 or later with PyTorch 2.11 or later (SWELL_PYTHON names it; python3). A missing part is told
# in one line. Exits with 1 where a stage failed or missed a goal.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
top=$(cd "$here/../.." && pwd)
out=gpu-results seconds=480 within=0 stages=() stand_in=0
while (($#)); do
  case $1 in
    --stand-in) stand_in=1 ;;
    --out | --seconds | --within)
      [[ -n ${2:-} ]] || { printf 'run.sh: %s needs a value; see --help\n' "$1" >&2; exit 2; }
      case $1 in
        --out) out=$2 ;;
        --seconds) seconds=$2 ;;
        *) within=$2 ;;
      esac
      shift
      ;;
    first | memory | profile | ratio) stages+=("$1") ;;
    -h | --help)
      sed -n '3,15s/^# \{0,1\}//p' "$0"
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
[[ $within =~ ^(0|[1-9][0-9]{0,4})$ ]] || { printf 'run.sh: --within is "%s"; it is a whole number\n' "$within" >&2; exit 2; }
((${#stages[@]} > 0)) || stages=(first memory profile ratio)
python=${SWELL_PYTHON:-python3}
missing=$("$python" - "$stand_in" 2> /dev/null << 'END'
import ctypes, sys
missing = []
if sys.version_info < (3, 11):
    missing.append("Python 3.11 or later (it is %s.%s)" % sys.version_info[:2])
try:
    import torch
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11):
        missing.append("PyTorch 2.11 or later (it is %s)" % torch.__version__)
    elif sys.argv[1] == "0" and not torch.cuda.is_available():
        missing.append("a GPU that PyTorch can use (torch.cuda.is_available() is False)")
except ImportError:
    missing.append("PyTorch 2.11 or later")
try:
    ctypes.CDLL("libcuda.so.1") if sys.argv[1] == "0" else None
except OSError:
    missing.append("the driver (libcuda.so.1)")
print(", ".join(missing))
END
) || missing="Python 3.11 or later with PyTorch ($python does not run)"
[[ -z $missing ]] || { printf 'run.sh: this machine lacks %s; SWELL_PYTHON names another Python\n' "$missing" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
TMPDIR=$(mktemp -d) || exit 1       # a stage that runs out of time leaves its files there
export TMPDIR
trap 'rm -rf -- "$TMPDIR"' EXIT
export SWELL_STAGE=${SWELL_STAGE:-$top/build/stage} GPU_STAND_IN=$stand_in GPU_OUT=$out GPU_STAGE_SECONDS
# Libraries that the programs of a bundle want; nothing where they are the system's.
[[ ! -d $top/build/lib ]] || export LD_LIBRARY_PATH=$top/build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
((stand_in == 0)) || export LD_LIBRARY_PATH=$SWELL_STAGE/../tests/unit/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUBLAS_WORKSPACE_CONFIG=:4096:8 TEST_PATIENCE=${TEST_PATIENCE:-120} TEST_PACE=${TEST_PACE:-0.05} PYTHONUNBUFFERED=1
# Stages fork their workers, which could not use CUDA if it had been initialized before: torch.cuda.is_available() asks NVML then.
export PYTORCH_NVML_BASED_CUDA_CHECK=1
failed=() left=${#stages[@]}
for stage in "${stages[@]}"; do
  module=$stage
  [[ $stage != profile ]] || module=profiles # Python has a module of that name
  rm -f "$out/$stage.json"
  GPU_STAGE_SECONDS=$seconds
  if ((within > 0)); then
    share=$(((within - SECONDS) / left--))
    ((share >= seconds)) || GPU_STAGE_SECONDS=$((share > 1 ? share : 1))
  fi
  timeout -k 5 "$GPU_STAGE_SECONDS" "$python" "$here/stages/$module.py" 2> "$out/$stage.log"
  status=$?
  why=$status
  ((status != 124 && status != 137)) || why="not over after $GPU_STAGE_SECONDS s"
  ((status == 0)) || failed+=("$stage ($why)")
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
