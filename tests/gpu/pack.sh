#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Packs what tests/gpu/run.sh needs for a machine with one GPU and no compiler.
#
#   tests/gpu/pack.sh DIR
#
# DIR is made: programs with their libraries, the Python package and the stages. Copy it there and run DIR/tests/gpu/run.sh. The
# target needs the driver, Python 3.11 or 3.12 with PyTorch, and C and C++ libraries as new as those named in DIR/glibc.
# SWELL_STAGE names an installed build (BUILD/stage); without it Swell is built in build-gpu.
set -eu -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=contrib/lib/build.sh
source "$top/contrib/lib/build.sh"
[[ $# == 1 && $1 != -* ]] || { sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 2; }
[[ ! -e $1 ]] || { printf 'pack.sh: %s is there already; name a new folder\n' "$1" >&2; exit 2; }
if [[ -n ${SWELL_STAGE:-} ]]; then
  build=$(cd "$SWELL_STAGE/.." && pwd)
else
  build=$top/build-gpu
  build_runtime "$top" "$build" --disable-simulator
fi
programs=(tests/unit/live_host tests/bench/gpu-handover tests/bench/gpu-nccl tests/bench/gpu-facts)
for program in "${programs[@]}"; do make -C "$build/${program%/*}" --silent "${program##*/}"; done
make -C "$build/tests/unit" --silent libcuda.la fake_cupti.la

mkdir -p "$1"/build/{lib,stage/lib,tests/unit/.libs,tests/bench}
dir=$(cd "$1" && pwd)
for program in "${programs[@]}"; do
  # A program of libtool's is a script beside its binary.
  file=$build/$program
  [[ ! -x ${file%/*}/.libs/${file##*/} ]] || file=${file%/*}/.libs/${file##*/}
  strip -o "$dir/build/$program" "$file"
done
for library in libswell.so.1 libswell-nccl-profiler.so; do strip --strip-unneeded -o "$dir/build/stage/lib/$library" "$(readlink -f "$build/stage/lib/$library")"; done
for library in libcuda.so.1 fake_cupti.so; do strip --strip-unneeded -o "$dir/build/tests/unit/.libs/$library" "$(readlink -f "$build/tests/unit/.libs/$library")"; done
mv "$dir/build/tests/unit/.libs/fake_cupti.so" "$dir/build/tests/unit/.libs/libcupti.so.13"
cc -shared -fPIC -s -o "$dir/build/tests/unit/.libs/libnvidia-ml.so.1" "$top/tests/gpu/stand_in_nvml.c"
# All but the C and C++ libraries: Debian's libstdc++ wants a newer C library than the programs do, and PyTorch has one loaded.
ldd "$dir"/build/tests/{unit/live_host,bench/gpu-*} "$dir/build/stage/lib/libswell.so.1" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt|libstdc[+][+]|libgcc_s|libcuda)\.so/ { print $3 }' | sort -u |
  while read -r library; do cp -L "$library" "$dir/build/lib/"; done
mkdir -p "$dir"/contrib "$dir"/tests/pytorch/jobs
cp -r "$top/python" "$dir/"
cp -r "$top/contrib/lib" "$dir/contrib/"
cp -r "$top/tests/gpu" "$dir/tests/"
cp "$top"/tests/pytorch/{forked,stand_in_gpu}.py "$dir/tests/pytorch/"
cp "$top/tests/pytorch/jobs/common.py" "$dir/tests/pytorch/jobs/"
find "$dir" -name __pycache__ -prune -exec rm -rf {} +
git -C "$top" rev-parse --short HEAD > "$dir/commit" 2> /dev/null || printf 'unknown\n' > "$dir/commit"
objdump -T "$dir"/build/tests/*/* "$dir"/build/stage/lib/* "$dir"/build/lib/* 2> /dev/null | grep -oE 'GLIBC(XX)?_[0-9.]+' |
  sort -uV | awk -F_ '{ newest[$1] = $0 } END { print newest["GLIBC"], newest["GLIBCXX"] }' > "$dir/glibc"
mib=$(du -sm "$dir" | cut -f1)
printf '%s: %s MiB, with %s or newer\n' "$dir" "$mib" "$(cat "$dir/glibc")"
((mib <= 60)) || { printf 'pack.sh: the bundle has %s MiB; 60 is the most\n' "$mib" >&2; exit 1; }
