#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Swell declares by hand what it calls of CUDA's driver, CUPTI, NCCL and NVML. This compares the declarations with
# the headers in NVIDIA's wheels: no GPU, driver or toolkit is needed. Skipped where pip cannot fetch the wheels.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
python=${SWELL_PYTHON:-python3}
wheels=(nvidia-nccl-cu13 nvidia-cuda-cupti nvidia-nvml-dev nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl)
# PyTorch comes for two major releases of CUDA, and NVML's older header has fewer links.
older=(nvidia-cuda-cupti-cu12==12.8.90 nvidia-nvml-dev-cu12==12.8.90 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-nvcc-cu12==12.8.93)
unpack() { # FOLDER WHEEL...
  "$python" -m pip --disable-pip-version-check download -q --no-deps -d "$work/wheels" "${@:2}" > "$work/pip.log" 2>&1 ||
    { printf 'SKIP: pip fetches no %s: %s\n' "${*:2}" "$(grep -m1 ERROR "$work/pip.log")"; exit 77; }
  "$python" - "$work/wheels" "$1" << 'UNPACK' || exit 1
import glob, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(sys.argv[2], [name for name in packed.namelist() if "/include/" in name])
UNPACK
  rm -rf "$work/wheels"
}
unpack "$work/unpacked" "${wheels[@]}"
unpack "$work/older" "${older[@]}"
folders_of() { find "$1" -type d \( -name include -o -path "*/include/cccl" \); }
mapfile -t folders < <(folders_of "$work/unpacked")
# Headers of the wheels alone, so that those of an installed toolkit stand in for none.
compile() { # OPTION...
  g++ -std=c++20 -w -I "$top/src" "${folders[@]/#/-I}" "$@" "$top/tests/unit/runtime/vendor_headers_test.cc"
}

all_four() {
  local each macros
  macros=$(compile -dM -E) || return
  for each in CUDA CUPTI NCCL NVML; do
    grep -q "SWELL_HAS_${each}_H" <<< "$macros" || { printf 'no wheel has the header of %s\n' "$each"; return 1; }
  done
}
check 'the wheels have the headers of CUDA, CUPTI, NCCL and NVML' all_four
check 'the declarations are those of the headers' compile -fsyntax-only
of_older() {
  local folders macros
  mapfile -t folders < <(folders_of "$work/older")
  compile -fsyntax-only && macros=$(compile -dM -E) && grep -q 'define CUDA_VERSION 12080' <<< "$macros"
}
check 'they are those of CUDA 12, too' of_older

# FILE EXPRESSION: a header that is changed so does not compile.
notices() {
  local header
  header=$(find "$work/unpacked" -path "*/include/$1" | head -1)
  cp "$header" "$work/header" && sed -i "$2" "$header" || return
  if cmp -s "$header" "$work/header"; then printf 'nothing of %s was changed\n' "$1"; return 1; fi
  if compile -fsyntax-only 2> "$work/said"; then printf 'a changed %s compiles\n' "$1"; cp "$work/header" "$header"; return 1; fi
  cp "$work/header" "$header"
  grep -q 'static assertion failed' "$work/said" || { cat "$work/said"; return 1; }
}
check 'another magic number of NCCL is noticed' notices nccl.h 's/0xcafebeef/0xcafebeee/'
check 'another parameter of a driver function is noticed' notices cuda.h 's/CUDAAPI cuMemCreate(CUmemGenericAllocationHandle \*handle, size_t size/CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, int size/'
check 'another layout of a struct of NVML is noticed' notices nvml.h 's/^\( *unsigned int *\)cliqueId;/\1 more, cliqueId;/'
check 'another value of an NVML enumeration is noticed' notices nvml.h 's/\(NVML_COMPUTEMODE_EXCLUSIVE_PROCESS *= \)3/\1 7/'
finish_tests
