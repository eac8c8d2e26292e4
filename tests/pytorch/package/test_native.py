# SPDX-License-Identifier: GPL-2.0-or-later
"""swell._native: libswell by ctypes, against the built library; local sessions, which need no shim."""

import errno
import os
import subprocess
import sys
import threading

import pytest
import torch

from native import LIBRARY, needs_library
from swell import _dlpack, _native, _structs
from swell._native import Action, Kind, NativeError, Region, Session

pytestmark = needs_library


@pytest.fixture
def session():
    with Session() as one:
        yield one


def test_a_tensor_stands_in_memory_that_both_see(session):
    session.register("w", torch.float32, (3, 4))
    generation = session.adopt()
    assert generation.fresh and generation.step == 0
    w, again = session.tensor("w", torch.float32, (3, 4)), session.tensor("w", torch.float32)
    assert w.data_ptr() == session.address("w")[0] and not w.any()
    w += torch.arange(12.).view(3, 4)
    assert again.tolist() == [float(at) for at in range(12)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.int32, torch.float32, torch.int64,
                                   torch.float64, torch.bool, torch.int8])
def test_every_dtype_has_its_size(session, dtype):
    session.register("t", dtype, (5,))
    session.adopt()
    one = session.tensor("t", dtype)
    assert one.dtype == dtype and one.shape == (5,) and session.address("t")[1] == 5 * one.element_size()


def test_a_flat_range_has_its_padding_and_a_block_its_size(session):
    session.register("flat", torch.float32, (5, 2), flat=(6, 12))       # the third of two rows of three
    session.register("rows", torch.int64, (5, 2), block=((1, 0), (3, 2)))
    session.adopt()
    assert session.tensor("flat", torch.float32).shape == (6,)
    assert session.tensor("flat", torch.float32, (2, 2)).shape == (2, 2)
    assert session.tensor("rows", torch.int64).shape == (4,)


def test_scalars_aliases_and_several_parts_of_a_name(session):
    session.register("step", torch.float32, (), kind=Kind.OPTIMIZER_STEP)
    session.register("embedding", torch.float32, (4,))
    session.register("head", torch.float32, (4,), alias_of="embedding")
    session.register("qkv", torch.float32, (6,), block=((0,), (2,)))
    session.register("qkv", torch.float32, (6,), block=((3,), (4,)))
    session.adopt()
    assert session.tensor("step", torch.float32, ()).shape == ()
    assert session.address("head") == session.address("embedding")
    assert session.tensor("qkv", torch.float32, index=1).shape == (1,)


def test_memory_of_ones_own_stays_where_it_is(session):
    mine = torch.arange(4.)
    session.register("mine", torch.float32, (4,), address=mine.data_ptr())
    session.adopt()
    assert session.address("mine") == (mine.data_ptr(), 16)


def test_errors_are_sentences_with_an_errno(session):
    with pytest.raises(NativeError, match="tensor w: .*5") as caught:
        session.register("w", torch.float32, (3,), block=((0,), (5,)))
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(TypeError, match="complex64"):
        session.register("c", torch.complex64, (3,))
    with pytest.raises(NativeError, match="8 are possible|at most 8"):
        session.register("deep", torch.float32, (1,) * 9)
    with pytest.raises(NativeError, match="after swell_adopt"):
        session.step(1)
    session.adopt()
    assert session.step(1) is Action.GO_ON
    with pytest.raises(NativeError, match="steps rise"):
        session.step(1)
    with pytest.raises(NativeError, match="no part 0 of a tensor nothing"):
        session.address("nothing")
    with pytest.raises(NativeError) as refused:
        Session("/nowhere/socket")
    assert refused.value.errno == errno.ECONNREFUSED


def test_regions_become_a_profile(session):
    session.adopt()
    session.profiler.set_role(layers=4, local_batch=2, activation=torch.float32, activation_shape=(8, 16))
    assert session.profiler.profile() is None
    session.profiler.set_role(layers=4, local_batch=2, chunks=(3, 2))
    with pytest.raises(NativeError, match="a chunk has -1 units"):
        session.profiler.set_role(layers=4, local_batch=2, chunks=(6, -1))
    session.profiler.set_role(layers=4, local_batch=2, chunks=(0,) * 300)    # more than can be said: not said

    def region(kind, number):
        opened = session.profiler.begin_region(kind, micro_batch=number)
        assert opened >= 0
        sum(range(20000))
        assert session.profiler.end_region(opened) == 0
    for step in range(1, 8):
        region(Region.FORWARD, 0)
        other = threading.Thread(target=region, args=(Region.BACKWARD, 0))      # autograd's thread on a GPU
        other.start()
        other.join()
        region(Region.OPTIMIZER, None)
        assert session.step(step) is Action.GO_ON
    seen = session.profiler.profile()
    assert seen is not None and seen.micro_batches == 1
    assert 0 < seen.forward_s < seen.step_s and 0 < seen.backward_s and 0 < seen.optimizer_s


def test_a_region_that_cannot_open_raises_nothing(session):
    assert session.profiler.begin_region(Region.FORWARD) == -errno.EAGAIN
    assert session.profiler.end_region(-errno.EAGAIN) == -errno.EAGAIN


@pytest.mark.parametrize("address", [None, 4096])
def test_a_gpu_that_is_not_there_is_refused(session, address):
    with pytest.raises(NativeError, match="tensor w: ") as refused:
        session.register("w", torch.float32, (3,), address=address, device=99)
    assert refused.value.errno == errno.ENODEV
    session.register("w", torch.float32, (3,))


def test_no_tensor_of_the_host_stands_over_memory_of_a_gpu(session):
    session._on_device.add("w")
    with pytest.raises(NativeError, match="tensor w is on a GPU; say which torch.device that is"):
        session.tensor("w", torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_a_tensor_stands_over_memory_that_torch_did_not_allocate(dtype):
    memory = torch.arange(24, dtype=dtype)
    there = _dlpack.over(memory.data_ptr() + 8 * memory.element_size(), 16 * memory.element_size(), dtype, torch.device("cpu"))
    assert torch.equal(there, memory[8:])
    there[3] = 7
    assert memory[11] == 7 and there.data_ptr() == memory[8:].data_ptr()
    assert _dlpack.over(0, 0, dtype, torch.device("cpu")).numel() == 0


def test_memory_of_a_gpu_beside_torchs_is_known(session):
    session.register("w", torch.float32, (1000,))
    session.register("host", torch.float32, (50,))
    session.adopt()
    assert session.gpu_bytes == 0
    for _ in range(2):      # over memory of the host, which stands for a GPU's
        session.tensor("w", torch.float32, device=torch.device("cpu")).fill_(1)
    session.tensor("host", torch.float32)
    assert session.gpu_bytes == 4000 and session.tensor("w", torch.float32)[999] == 1


@pytest.mark.parametrize(("memory", "said"), [("torch", ""), ("", "tensor w: ")])
def test_where_swell_cannot_take_memory_of_a_gpu_the_program_has_its_own(session, monkeypatch, capfd, memory, said):
    monkeypatch.setenv("SWELL_GPU_MEMORY", memory)
    for _ in range(2):
        assert not session.takes_gpu_memory("w", torch.float32, (3,), device=99)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("swell: ")]
    assert len(lines) == bool(said) and all(said in line and line.endswith("state on this GPU is copied where it is handed over") for line in lines)


@pytest.mark.parametrize(("speaks", "address", "needed"), [(4, None, 5), (5, 4096, 6)])
def test_an_older_library_is_not_asked_for_memory_of_a_gpu(session, monkeypatch, speaks, address, needed):
    monkeypatch.setattr(session, "_library", type("Older", (), {"swell_api_version": lambda self: speaks,
                                                               "swell_close": session._library.swell_close})())
    with pytest.raises(NativeError, match=f"needs version {needed} of swell.h, this libswell speaks version {speaks}"):
        session.register("w", torch.float32, (3,), address=address, device=0)


def test_close_is_done_once():
    one = Session()
    one.close()
    one.close()


def said(code, **environment):
    """Returns the output of another Python that has just imported swell._native."""
    clean = {name: value for name, value in os.environ.items() if name not in ("SWELL_LIBRARY", "SWELL_SITE_LIBRARY", "SWELL_RUNTIME", "RANK")}
    return subprocess.run([sys.executable, "-c", "from swell import _native; " + code], env={**clean, **environment},
                          capture_output=True, text=True, check=True)


def test_it_is_found_by_variable_by_the_loader_and_by_pkg_config(tmp_path):
    folder = os.path.dirname(LIBRARY)
    assert said("print(_native.available())", SWELL_LIBRARY=LIBRARY).stdout == "True\n"
    assert said("print(_native.available())", LD_LIBRARY_PATH=folder).stdout == "True\n"
    assert said("print(_native.available())", SWELL_SITE_LIBRARY=LIBRARY).stdout == "True\n"
    pkg_config = tmp_path / "pkg-config"
    pkg_config.write_text(f"#!/bin/sh\n[ \"$*\" = '--variable=libdir swell' ] && echo {folder}\n")
    pkg_config.chmod(0o755)
    assert said("print(_native.available())", PATH=f"{tmp_path}:{os.environ['PATH']}").stdout == "True\n"


def test_without_it_nothing_is_said_unless_the_job_is_live():
    asked = "print(_native.available(), _native.available(), _native.open_session())"
    alone = said(asked, SWELL_LIBRARY="/nowhere/libswell.so.1")
    assert alone.stdout == "False False None\n" and alone.stderr == ""
    live = said(asked, SWELL_LIBRARY="/nowhere/libswell.so.1", SWELL_RUNTIME="/nowhere/socket", RANK="0")
    assert live.stdout == "False False None\n" and live.stderr.count("resized by restarts") == 1 and "/nowhere/libswell.so.1" in live.stderr
    assert said(asked, SWELL_LIBRARY="/nowhere/libswell.so.1", SWELL_RUNTIME="/nowhere/socket", RANK="1").stderr == ""


def test_another_library_of_that_name_is_refused():
    libc = "libc.so.6"
    assert said("print(_native.available())", SWELL_LIBRARY=libc).stdout == "False\n"
    assert "has no swell_api_version" in said("_native.available()", SWELL_LIBRARY=libc, SWELL_RUNTIME="x").stderr


def test_structs_are_laid_out_as_the_c_compiler_does(tmp_path):
    import ctypes
    import shutil
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    top = os.path.join(os.path.dirname(__file__), "..", "..", "..")
    structs = {"swell_open_params_t": _structs.OpenParams, "swell_tensor_t": _structs.Tensor, "swell_generation_t": _structs.Generation,
               "swell_region_t": _structs.Region, "swell_role_t": _structs.Role, "swell_times_t": _structs.Times}
    prints = "".join(f'printf("{name} %zu\\n", sizeof({name}));'
                     + "".join(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field, *_ in made._fields_)
                     for name, made in structs.items())
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include <stddef.h>\n#include "runtime/api/swell.h"\nint main(void) {' + prints + "return 0; }\n")
    subprocess.run([compiler, f"-I{top}/src", str(source), "-o", str(tmp_path / "layout")], check=True)
    expected = dict(line.split() for line in subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout.splitlines())
    found = {}
    for name, made in structs.items():
        found[name] = str(ctypes.sizeof(made))
        found.update({f"{name}.{field}": str(getattr(made, field).offset) for field, *_ in made._fields_})
    assert found == expected


WATCHED = """
import os, sys, torch
sys.path.insert(0, {folder!r})
import stand_in_gpu
from swell import _native
stand_in_gpu.begin()
class Watched:
    def __init__(self, library):
        self._library = library
    def __getattr__(self, name):
        return getattr(self._library, name)
    def swell_close(self, session, write=os.write):      # at Python's end modules are gone
        write(1, b"unmapped ")
        self._library.swell_close(session)
session = _native.Session()
session._library = Watched(session._library)
session.register("w", torch.float32, (4,), device={device})
session.adopt()
{rest}
"""


@pytest.mark.parametrize("device, rest, unmaps", [
    (0, "", ""), (0, "w = session.tensor('w', torch.float32, device=torch.device('cpu'))", ""), (0, "session.close()", "unmapped "), (0, "del session", "unmapped "),
    (None, "", "unmapped "),
    (0, "os.fork() or (session.close(), os._exit(0)); os.wait()", ""), (None, "os.fork() or (session.close(), os._exit(0)); os.wait(); session.close()", "unmapped "),
], ids=["python ends", "with tensors", "close", "dropped", "on the host", "forked", "forked, on the host"])
def test_gpu_memory_is_not_unmapped_at_python_s_end_nor_by_a_forked_process(device, rest, unmaps):
    """As launched work may use it, for which the driver does not wait; the driver is a stand-in."""
    script = WATCHED.format(folder=os.path.join(os.path.dirname(__file__), ".."), device=device, rest=rest)
    given = {name: value for name, value in os.environ.items() if name not in ("SWELL_RUNTIME", "RANK")}
    ended = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, unmaps, "")
