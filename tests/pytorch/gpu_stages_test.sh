#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The stages of the first half hour on a GPU (tests/gpu), from their bundle and over the stand-ins: each ends well, and measures.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
[[ -x ${SWELL_STAGE:-}/bin/swellrun ]] || { printf '1..0 # SKIP SWELL_STAGE names no stage of a build\n'; exit 77; }
"${SWELL_PYTHON:-python3}" -c 'import torch' 2> /dev/null || { printf '1..0 # SKIP no PyTorch\n'; exit 77; }
work=$(mktemp -d /tmp/swell-test-XXXXXX) || exit 1
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' INT TERM HUP

check 'the bundle has at most 60 MB, and its programs are in it' "$top/tests/gpu/pack.sh" "$work/bundle"
((failures == 0)) || finish_tests
# Nothing of this checkout or its build may be used from here on, nor transformers, which the target has not. A compute-sanitizer is there.
mkdir -p "$work/absent/transformers" "$work/tools" "$work/old"
printf 'raise ImportError("transformers is not on the target")\n' > "$work/absent/transformers/__init__.py"
printf '__version__ = "2.4.1"\n' > "$work/old/torch.py"
cat > "$work/tools/compute-sanitizer" << 'END'
#!/usr/bin/env bash
[[ $* == *'--target-processes all'* ]] || exit 9
while [[ $1 != /* ]]; do shift; done
"$@" && printf '========= ERROR SUMMARY: 0 errors\n'
END
chmod +x "$work/tools/compute-sanitizer"
bundle() { env -u SWELL_STAGE -u SWELL_LIBRARY PATH="$work/tools:$PATH" PYTHONPATH="$work/absent" "$@"; }
forks_unspoilt() { # a PyTorch as with CUDA, which tells who asks it for devices: workers that are forked after that cannot use CUDA
  bundle env SWELL_STAGE="$work/bundle/build/stage" "${SWELL_PYTHON:-python3}" - "$work/bundle/tests" << 'END'
import os, sys, traceback
import torch
asked = []
def asks(name):
    setattr(torch._C, name, lambda *_: asked.append(name) or traceback.print_stack() or 1)
for name in ("_cuda_init", "_cuda_getDeviceCount", "_cuda_getDevice", "_cuda_setDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice"):
    asks(name)
torch._C._cuda_getCurrentRawStream = lambda *_: 0
torch.version.cuda, torch.cuda._is_compiled, torch.cuda._device_count_nvml = "13.0", lambda: True, lambda: 1
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
sys.path[:0] = [os.path.join(sys.argv[1], "gpu", "stages")]
import bench, forked, memory, profiles, ratio, gpu_engine_job, gpu_llama, gpu_state_job
memory.shape(5), torch.cuda.is_available()
sys.exit(bool(asked))
END
}
check 'nothing initializes CUDA before the stages fork their workers' forks_unspoilt
stage() { bundle "$work/bundle/tests/gpu/run.sh" --stand-in --out "$work/results" "$1" || { tail -n 30 "$work/results/$1.log"; return 1; }; }
rows() { # STAGE TEXT...: it measured each
  local stage=$1 text
  shift
  for text; do grep -F "$text" "$work/results/$stage.json" || { printf '%s has no row "%s"\n' "$stage" "$text"; return 1; }; done
}
first() {
  stage first && rows first 'memory outlives all CUDA processes' 'plain copy within the GPU' 'checksum on the GPU' 'exclusive process' 'value 6, 25.0 GB/s' \
    'value 99, unknown GB/s' 'under compute-sanitizer' 'by 0.1 ms a slab'
}
memory() {
  stage memory && rows memory 'ddp, 5 GiB: pause' 'engine, 5 GiB: losses' 'fsdp, 5 GiB: losses' 'SWELL_GPU_MEMORY=torch: losses' 'SWELL_GPU_MEMORY=torch, verify=all: phases' \
    'GB device to device, from own GPU memory' 'ddp, 1 GiB, 95% of the GPU in use: change' 'fsdp, 1 GiB, 80% of the GPU in use: change' 'ddp: kill -9 of the old worker in move' \
    'engine: kill -9 of the old worker in move' 'the new one trains on' 'engine: kill -9 of the shim: free memory'
}
profile() { stage profile && rows profile 'over without' 'predicted' 'mean error' 'two ranks on one GPU over gloo: loss' {forward,backward,optimizer}' of a step: Swell'; }
ratio() { stage ratio && rows ratio 'restart over live' 'such as a kernel of the stand-in' 'skipped: '; }
check 'stage first measures a handover of memory' first
check 'stage memory changes DDP, FSDP2 and the engine live with equal losses, and survives kills' memory
check 'stage profile predicts other plans from one profile' profile
check 'stage ratio compares a restart with a live change' ratio
refuses() {
  ! "$work/bundle/tests/gpu/run.sh" --out "$work/none" second 2> "$work/said" && grep -F '"second" is not a stage' "$work/said" && [[ ! -e $work/none ]]
}
check 'an unknown stage is refused by name' refuses
lacks() {
  ! bundle PYTHONPATH="$work/old" "$work/bundle/tests/gpu/run.sh" --out "$work/none" first 2> "$work/said" && grep -F 'lacks PyTorch 2.11 or later (it is 2.4.1)' "$work/said" &&
    [[ $(wc -l < "$work/said") == 1 && ! -e $work/none ]]
}
check 'missing parts of a machine are named in one line' lacks
hangs() {
  : > "$work/hangs"
  ! STAND_IN_HANGS=$work/hangs bundle "$work/bundle/tests/gpu/run.sh" --stand-in --seconds 6 --out "$work/hung" first > "$work/said" && rm "$work/hangs" &&
    grep -F 'first (not over after 6 s)' "$work/said" && grep -F 'GPU 0: compute mode that Swell reads' "$work/hung/first.json" &&
    grep -F "memory without any CUDA process | had not ended when the stage's time was over" "$work/hung/rows.md"
}
shares() {
  : > "$work/hangs"
  ! STAND_IN_HANGS=$work/hangs bundle "$work/bundle/tests/gpu/run.sh" --stand-in --within 12 --out "$work/shared" first first > "$work/said" && rm "$work/hangs" &&
    (($(sed -nE 's/.*first \(not over after ([0-9]+) s\) first \(not over after ([0-9]+) s\).*/\1 + \2/p' "$work/said") <= 12))
}
check 'stages share the time that all have together' shares
check 'a stage that hangs ends in its time, with what it measured until then' hangs
finish_tests
