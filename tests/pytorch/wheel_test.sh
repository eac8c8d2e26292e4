#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The wheel with libswell in it: made, installed where there is nothing else of Swell, and used.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
: "${SWELL_PYTHON:=python3}" "${SWELL_STAGE:=}"
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
[[ -e $SWELL_STAGE/lib/libswell.so.1 ]] || skip 'SWELL_STAGE names no installed Swell: run contrib/check'
"$SWELL_PYTHON" -c 'import torch, setuptools' 2> /dev/null || skip "$SWELL_PYTHON lacks torch or setuptools: run contrib/setup --pytorch DIR"
# shellcheck source=tests/support/tap.sh
source "$here/../support/tap.sh"
after_check() { :; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
unset PYTHONPATH SWELL_LIBRARY SWELL_RUNTIME LD_LIBRARY_PATH

made() {
  "$here/../../contrib/wheel" "$SWELL_STAGE" "$work/wheels" && wheel=$(echo "$work"/wheels/python3_swell-*-py3-none-manylinux_*.whl) &&
    [[ -s $wheel ]] && "$SWELL_PYTHON" -m zipfile -l "$wheel" > "$work/list" && grep -o 'swell/lib/[^ ]*' "$work/list" &&
    grep -q 'swell/lib/libswell.so.1' "$work/list" && ! grep -qi 'cuda\|libtorch' "$work/list"
}
check 'a wheel has libswell in it, and nothing of CUDA' made

# An environment of its own, which sees the torch that is there but no other swell.
installed() {
  "$SWELL_PYTHON" -m venv --without-pip "$work/venv" || return
  local site
  site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
  "$SWELL_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/torch_of_the_tests.pth"
  "$SWELL_PYTHON" -m pip --quiet --python "$work/venv/bin/python" install --no-deps --no-index --force-reinstall "$wheel"
}
check 'it installs without anything else' installed

used() {
  cd / && "$work/venv/bin/python" << 'EOP'
import torch
from swell import _native

assert _native.__file__.startswith(__import__("sys").prefix), _native.__file__
assert _native.available() and "swell/lib/" in _native.library()._name, _native.library()
with _native.Session() as session:
    session.register("w", torch.float32, (3,))
    assert session.adopt().fresh
    session.tensor("w", torch.float32).fill_(2)
    assert session.step(1) is _native.Action.GO_ON
with open("/proc/self/maps") as maps:
    found = {line.split()[-1] for line in maps if "libswell" in line or "libfmt" in line or "libxxhash" in line}
assert found and all("swell/lib/" in path for path in found), found
print(*sorted(found))
EOP
}
check 'its libswell is the one that is used, with what it needs' used
finish_tests
