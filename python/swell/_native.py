# SPDX-License-Identifier: BSD-3-Clause
"""libswell from Python: state that outlives this process, and what the profiler takes. swell.h says what each call does.

Needs no torch but for tensors over registered memory. Calls release Python's lock while they wait.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from swell import _structs
from swell._enums import Action, Kind, Region

if TYPE_CHECKING:
    import torch

__all__ = ["Action", "Generation", "Kind", "NativeError", "Region", "Session", "Times", "available", "is_live", "is_torchs_alone", "library", "open_session",
           "shares_gpu_memory"]

_SONAMES = ("libswell.so.1", "libswell.so.0")     # as swell.h has grown, it has only been added to
_WEIGHTS_VERSION = 10   # from which on Region.WEIGHTS is known
_API_VERSION = 2        # of swell.h as it is spoken here; later ones only add to it
_DEVICE_VERSION, _OWN_DEVICE_VERSION = 5, 6     # that know of tensors on a GPU, and of one's own memory there
_SHARES = 102, 103      # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ..._HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")     # of a wheel with libswell in it


class Generation(NamedTuple):
    """The result of adopt(). step: the boundary at which the last generation ended; fresh: the state is new, and zero."""

    generation: int
    step: int
    fresh: bool


class Times(NamedTuple):
    """The profiler's times of the last five whole steps, in seconds; kept_bytes: of one micro-batch's forward pass."""

    stable: bool
    micro_batches: int
    step_s: float
    forward_s: float
    backward_s: float
    forward_tp_s: float
    forward_head_s: float
    backward_head_s: float
    optimizer_s: float
    dp_sync_s: float
    layer_launch_s: float
    kept_bytes: float


class NativeError(OSError):
    """A call of libswell that failed: errno, and the sentence that libswell says."""


# ---- the library

_library: ctypes.CDLL | None = None
_looked = False


def _candidates() -> list[str]:
    """Where it may be, best first; a bare name: where the loader looks."""
    set_by_user = os.environ.get("SWELL_LIBRARY")
    if set_by_user:
        return [set_by_user]
    found = [os.path.join(_BUNDLED, name) for name in _SONAMES] + list(_SONAMES)
    try:
        asked = subprocess.run(["pkg-config", "--variable=libdir", "swell"], capture_output=True, text=True, timeout=10, check=False)
        if asked.returncode == 0 and asked.stdout.strip():
            found += [os.path.join(asked.stdout.strip(), name) for name in _SONAMES]
    except (OSError, subprocess.SubprocessError):
        pass
    of_site = os.environ.get("SWELL_SITE_LIBRARY")  # from swellrun, in live mode
    return found + [of_site] if of_site else found


def _load(path: str) -> ctypes.CDLL:
    """Raises OSError where it is not there, or is another version's."""
    if path.startswith(_BUNDLED) and os.path.exists(path):
        for name in sorted(os.listdir(_BUNDLED)):
            if not name.startswith("libswell"):     # what it needs: found by name once it is open
                ctypes.CDLL(os.path.join(_BUNDLED, name))
    loaded = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    for name, result, arguments in (
            ("swell_api_version", ctypes.c_int, []),
            ("swell_open", ctypes.c_int, [ctypes.POINTER(_structs.OpenParams), ctypes.POINTER(pointer)]),
            ("swell_register", ctypes.c_int, [pointer, ctypes.POINTER(_structs.Tensor)]),
            ("swell_adopt", ctypes.c_int, [pointer, ctypes.POINTER(_structs.Generation)]),
            ("swell_address", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(pointer), ctypes.POINTER(ctypes.c_size_t)]),
            ("swell_step", ctypes.c_int, [pointer, ctypes.c_uint64]),
            ("swell_set_role", ctypes.c_int, [pointer, ctypes.POINTER(_structs.Role)]),
            ("swell_region_begin", ctypes.c_int, [pointer, ctypes.POINTER(_structs.Region)]),
            ("swell_region_end", ctypes.c_int, [pointer, ctypes.c_int, ctypes.c_uint64]),
            ("swell_memory", ctypes.c_int, [pointer, ctypes.c_uint64]),
            ("swell_profile", ctypes.c_int, [pointer, ctypes.POINTER(_structs.Times)]),
            ("swell_close", None, [pointer]),
            ("swell_last_error", ctypes.c_char_p, [pointer])):
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise OSError(f"{path} has no {name}; install the libswell of this Swell") from None
        function.restype, function.argtypes = result, arguments
    if hasattr(loaded, "swell_next"):       # else no program is told to prepare
        loaded.swell_next.argtypes, loaded.swell_offer.argtypes = [pointer, ctypes.POINTER(pointer)], [pointer]
        loaded.swell_variable.restype, loaded.swell_variable.argtypes = ctypes.c_char_p, [pointer, ctypes.c_char_p]
    if hasattr(loaded, "swell_decline"):        # else a switch waits for its time
        loaded.swell_decline.argtypes = [pointer, ctypes.c_char_p]
    if hasattr(loaded, "swell_lacks_room"):     # else a lack of room is a reason like any other
        loaded.swell_lacks_room.argtypes = [pointer, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
    if hasattr(loaded, "swell_make_room"):      # else no program gives its cache back
        loaded.swell_make_room.argtypes = [pointer]
    version = loaded.swell_api_version()
    if version < _API_VERSION:
        raise OSError(f"{path} speaks version {version} of swell.h; at least {_API_VERSION} is needed")
    return loaded


def is_live() -> bool:
    """Whether swellrun was started with --elastic=mode=live, so that there is a shim to open a session with."""
    return bool(os.environ.get("SWELL_RUNTIME"))


def is_torchs_alone() -> bool:
    """Whether state on a GPU is to be in torch's memory, not in Swell's."""
    return os.environ.get("SWELL_GPU_MEMORY") == "torch"


@functools.cache
def shares_gpu_memory(gpu: int) -> bool:
    """Whether the driver gives memory of a GPU to other processes; true where it cannot be asked, which registration will show."""
    device, values = ctypes.c_int(), [ctypes.c_int(1) for _ in _SHARES]
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuDeviceGet(ctypes.byref(device), gpu) == 0:
            for attribute, value in zip(_SHARES, values, strict=True):
                driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            if all(value.value for value in values):
                return _passes_memory(driver, device.value)
    except (OSError, AttributeError):
        pass
    return all(value.value for value in values)


def _passes_memory(driver: ctypes.CDLL, device: int) -> bool:
    """As Device::try_sharing() of the library, which finds the same: a driver may say that it shares memory, and not do it."""
    properties = (ctypes.c_int * 8)(1, 1, 1, device)    # CUmemAllocationProp: pinned, by descriptor, of that device
    size, own, imported, fd = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int(-1)
    if driver.cuMemGetAllocationGranularity(ctypes.byref(size), properties, 0) or driver.cuMemCreate(ctypes.byref(own), size, properties, ctypes.c_uint64()):
        return True     # as where the GPU is full
    try:
        if driver.cuMemExportToShareableHandle(ctypes.byref(fd), own, 1, ctypes.c_uint64()):
            return False
        failed = driver.cuMemImportFromShareableHandle(ctypes.byref(imported), ctypes.c_void_p(fd.value), 1)
        os.close(fd.value)
        if not failed:
            driver.cuMemRelease(imported)
        return not failed
    finally:
        driver.cuMemRelease(own)


def library() -> ctypes.CDLL | None:
    """The library, looked for once; None where it is not there. In live mode that is said, once."""
    global _library, _looked
    if _looked:
        return _library
    _looked = True
    why = ""
    for path in _candidates():
        try:
            _library = _load(path)
            return _library
        except OSError as error:
            if not why or "speaks version" in str(error):
                why = str(error)
    if is_live() and os.environ.get("RANK", "0") == "0":
        print(f"swell: no libswell ({why}): this job is resized by restarts. For mode=live let SWELL_LIBRARY name {_SONAMES[0]}",
              file=sys.stderr, flush=True)
    return None


def available() -> bool:
    """Whether there is a libswell."""
    return library() is not None


def open_session(socket: str | None = None, snapshot_every: int | None = None, *, stays_if_none_is_new: bool = False) -> Session | None:
    """A session with this rank's shim, or a local one where there is none; None without a libswell."""
    return Session(socket, snapshot_every, stays_if_none_is_new=stays_if_none_is_new) if available() else None


class Session:
    """A connection to this rank's shim, or where SWELL_RUNTIME is not set, state of this process alone.

    One thread at a time, but for regions. Tensors over its memory must not be touched after close(); a session that
    nobody closes ends with the last of them.
    snapshot_every: steps from one copy of the state to the next; None: as SWELL_SNAPSHOT_EVERY says.
    stays_if_none_is_new: this process can train with another plan where that has no worker whose program is new.
    """

    _with_gpu_tensors: ClassVar[set[Session]] = set()
    _getpid = staticmethod(os.getpid)       # at Python's end modules are gone

    def __init__(self, socket: str | None = None, snapshot_every: int | None = None, *, stays_if_none_is_new: bool = False) -> None:
        found = library()
        if found is None:
            raise NativeError(errno.ENOENT, f"{_SONAMES[0]} was not found; let SWELL_LIBRARY name it")
        self._library, self._process = found, os.getpid()
        self._session: ctypes.c_void_p | None = ctypes.c_void_p()
        self._on_device: set[str] = set()
        self._over_gpu: dict[tuple[str, int], int] = {}     # bytes that tensor() has given, by name and index
        self._storages: list[torch.UntypedStorage] = []     # of these
        self._why_no_gpu_memory = ""
        params = _structs.OpenParams()
        if socket is not None:
            params.field_mask |= _structs.OPEN_SOCKET
            params.socket = socket.encode()
        if snapshot_every is not None:
            params.field_mask |= _structs.OPEN_SNAPSHOT_EVERY
            params.snapshot_every = snapshot_every
        if stays_if_none_is_new:
            params.field_mask |= _structs.OPEN_STAYS_IF_NONE_IS_NEW
            params.stays_if_none_is_new = 1
        code = found.swell_open(ctypes.byref(params), ctypes.byref(self._session))
        if code < 0:
            self._session = None
            raise NativeError(-code, found.swell_last_error(None).decode(errors="replace"))

    def next(self) -> Session:
        """A session of this process for the generation that PREPARE told of: register what this rank will hold there, and offer().

        NativeError with ECANCELED: it is not prepared any more.
        """
        made = object.__new__(Session)
        made._library, made._session, made._on_device, made._process = self._library, ctypes.c_void_p(), set(), os.getpid()
        made._over_gpu, made._storages, made._why_no_gpu_memory = {}, [], self._why_no_gpu_memory
        code = self._library.swell_next(self._session, ctypes.byref(made._session))
        if code < 0:
            made._session = None
            raise NativeError(-code, self._library.swell_last_error(None).decode(errors="replace"))
        return made

    def decline(self, why: str, *, room: tuple[int, int] | None = None) -> bool:
        """Say that this process cannot train in the generation that PREPARE told of, or, before adopt() and beside a process that trains, in its own:
        the switch is called off at once. Returns whether that was heard.

        room: the bytes that are needed and free where a GPU has too little memory.
        A library or a shim of an earlier version does not know that, and waits until the switch has taken too long.
        """
        if room is not None and hasattr(self._library, "swell_lacks_room"):
            return bool(self._library.swell_lacks_room(self._session, why.encode(), *room) == 0)
        return hasattr(self._library, "swell_decline") and bool(self._library.swell_decline(self._session, why.encode()) == 0)

    def offer(self) -> None:
        """Says that all is registered, in the session of next(). Train on until the other session's step() says SWITCH, then adopt()."""
        self._check(self._library.swell_offer(self._session))

    def variable(self, name: str) -> str | None:
        """A variable of this session's generation: of next() as swellrun gave it, else the environment's."""
        value: bytes | None = self._library.swell_variable(self._session, name.encode())
        return None if value is None else os.fsdecode(value)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, is_python_s_end: Callable[[], bool] = sys.is_finalizing) -> None:
        # At Python's own end launched work may still use a GPU's memory, for which unmapping does not wait: the end of the process comes after that work.
        if not (is_python_s_end() and getattr(self, "_on_device", None)):
            self.close()

    def _check(self, code: int) -> int:
        if code < 0:
            said = self._library.swell_last_error(self._session).decode(errors="replace")
            raise NativeError(-code, said or os.strerror(-code))
        return code

    def register(self, name: str, dtype: torch.dtype | str, shape: Sequence[int], *, kind: Kind = Kind.PARAMETER, layer: int | None = None,
                 block: tuple[Sequence[int], Sequence[int]] | None = None, flat: tuple[int, int] | None = None,
                 alias_of: str | None = None, address: int | None = None, optional: bool = False, device: int | None = None) -> None:
        """Register the part of a tensor that this rank holds, before adopt().

        name: of the whole tensor, the same on every rank. shape: of the whole tensor, in elements; () is taken for (1,).
        block: begin and end in each dimension; else the whole tensor. flat: the range of the block in row-major order;
        what is past its end is padding. address: of memory of one's own; else it is in Swell's arena. optional: this
        program can make it where the old plan has none. device: the GPU, as CUDA counts them here, that the address is on, or
        where Swell takes memory; one a session.
        """
        needed = 0 if device is None else _DEVICE_VERSION if address is None else _OWN_DEVICE_VERSION
        if self._library.swell_api_version() < needed:      # which would take it for the host's
            raise NativeError(errno.ENOSYS, f"tensor {name} is on a GPU; that needs version {needed} of swell.h, this libswell speaks "
                              f"version {self._library.swell_api_version()}")
        tensor = _structs.Tensor()
        dims = tuple(shape) or (1,)
        if len(dims) > _structs.MAX_DIMS:
            raise NativeError(errno.EINVAL, f"tensor {name} has {len(dims)} dimensions; at most {_structs.MAX_DIMS} are possible")
        tensor.field_mask = _structs.KIND
        tensor.name, tensor.dtype, tensor.dims, tensor.kind = name.encode(), _structs.dtype_of(dtype)[0], len(dims), kind
        tensor.shape[:len(dims)] = dims
        if layer is not None:
            tensor.field_mask |= _structs.LAYER
            tensor.layer = layer
        if block is not None:
            tensor.field_mask |= _structs.BLOCK
            tensor.begin[:len(dims)], tensor.end[:len(dims)] = block
        if flat is not None:
            tensor.field_mask |= _structs.RANGE
            tensor.flat_begin, tensor.flat_end = flat
        if alias_of is not None:
            tensor.field_mask |= _structs.ALIAS
            tensor.alias_of = alias_of.encode()
        if address is not None:
            tensor.field_mask |= _structs.ADDRESS
            tensor.address = address
        if optional:
            tensor.field_mask |= _structs.OPTIONAL
            tensor.optional = 1
        if device is not None:
            tensor.field_mask |= _structs.DEVICE
            tensor.device = device
        self._check(self._library.swell_register(self._session, ctypes.byref(tensor)))
        if device is not None:
            self._on_device.add(name)

    def takes_gpu_memory(self, name: str, dtype: torch.dtype | str, shape: Sequence[int], *, device: int, **options: Any) -> bool:
        """register() in memory of a GPU that Swell takes and the next program maps. False, after a line: this GPU's cannot be handed over,
        or SWELL_GPU_MEMORY says torch; register an address in memory of your own."""
        if is_torchs_alone():
            return False
        if not self._why_no_gpu_memory:
            try:
                self.register(name, dtype, shape, device=device, **options)
                return True
            except NativeError as error:
                if error.errno not in (errno.ENODEV, errno.ENOSYS):
                    raise
                self._why_no_gpu_memory = str(error.strerror)
                print(f"swell: {self._why_no_gpu_memory}: state on this GPU is copied where it is handed over", file=sys.stderr, flush=True)
        return False

    def adopt(self) -> Generation:
        """Take the registered state over. Blocks until this generation begins."""
        generation = _structs.Generation()
        self._check(self._library.swell_adopt(self._session, ctypes.byref(generation)))
        return Generation(generation.generation, generation.step, bool(generation.fresh))

    def address(self, name: str, index: int = 0) -> tuple[int, int]:
        """Address of a part after adopt(), and its bytes with padding. index: of this name's parts, as registered."""
        at, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._check(self._library.swell_address(self._session, name.encode(), index, ctypes.byref(at), ctypes.byref(size)))
        return at.value or 0, size.value

    def tensor(self, name: str, dtype: torch.dtype, shape: Sequence[int] | None = None, *, index: int = 0,
               device: torch.device | None = None) -> torch.Tensor:
        """A tensor over a part's own memory, after adopt(); without a shape one of 1 dimension, with the padding.

        device: the GPU that it is on. A session with such tensors ends with the process, or by close().
        """
        if device is None and name in self._on_device:
            raise NativeError(errno.EINVAL, f"tensor {name} is on a GPU; say which torch.device that is")
        import torch
        at, size = self.address(name, index)
        if device is not None:
            from swell import _dlpack
            self._with_gpu_tensors.add(self)    # these do not keep it
            self._over_gpu[name, index] = size
            flat = _dlpack.over(at, size, dtype, device)
            self._storages.append(flat.untyped_storage())
        else:
            memory: Any = (ctypes.c_char * size).from_address(at)
            memory.session = self       # which unmaps it
            flat = torch.frombuffer(memory, dtype=dtype)
        if shape is None:
            return flat
        count = 1
        for each in shape:
            count *= each
        return flat[:count].view(tuple(shape))

    @property
    def gpu_bytes(self) -> int:
        """The bytes of tensors in Swell's memory of a GPU, which torch's allocator does not count."""
        return sum(self._over_gpu.values())

    def has_gpu_tensors(self) -> bool:
        """Whether somebody has a tensor over its memory of a GPU, which close() would make an illegal address."""
        from swell import _dlpack
        return any(map(_dlpack.is_used, self._storages))

    def step(self, step: int) -> Action:
        """Say that a step is done and the state is whole. At a switch it blocks until the state has moved."""
        return Action(self._check(self._library.swell_step(self._session, step)))

    def make_room(self) -> bool:
        """Whether a program of another generation begins beside this one, which takes its memory before this one stops. True once for each."""
        return hasattr(self._library, "swell_make_room") and self._library.swell_make_room(self._session) == 1

    @property
    def profiler(self) -> Profiler:
        """Returns what measures this rank's steps."""
        return Profiler(self)

    def close(self) -> None:
        """End the session; its memory is unmapped. Twice, or in a process that was forked from its own, does nothing.

        Work that was launched on a GPU is not waited for: torch.cuda.synchronize() before, where tensors are there.
        """
        session, self._session = getattr(self, "_session", None), None
        self._with_gpu_tensors.discard(self)
        if session is not None and self._getpid() == self._process:
            self._library.swell_close(session)


class Profiler:
    """Measures the steps of a session's rank, and reports its profile."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def set_role(self, *, layers: int, local_batch: int, stage: int = 0, group: int = 0, activation: torch.dtype | str | None = None,
                 activation_shape: Sequence[int] = (), whole_activations: float | None = None, last_activation_bytes: float | None = None,
                 tied_embedding: bool = False, chunks: Sequence[int] = ()) -> None:
        """Say what this rank is in its plan, so that its profile is reported.

        layers: of the model on this stage. local_batch: samples of a micro-batch. activation, activation_shape: the
        tensor between two stages for one sample. chunks: units of each chunk of this stage, one too, where the
        program can run plans with chunks; more than 256 are not said.
        """
        role = _structs.Role()
        role.stage, role.group, role.layers, role.local_batch = stage, group, layers, local_batch
        if activation is not None:
            role.field_mask |= _structs.ROLE_ACTIVATION
            role.activation_dtype, role.activation_dims = _structs.dtype_of(activation)[0], len(activation_shape)
            role.activation_shape[:len(activation_shape)] = tuple(activation_shape)
        if whole_activations is not None:
            role.field_mask |= _structs.ROLE_WHOLE
            role.whole_activations = whole_activations
        if last_activation_bytes is not None:
            role.field_mask |= _structs.ROLE_LAST
            role.last_activation_bytes = last_activation_bytes
        if tied_embedding:
            role.field_mask |= _structs.ROLE_TIED
            role.tied_embedding = 1
        if 0 < len(chunks) <= _structs.MAX_CHUNKS:
            role.field_mask |= _structs.ROLE_CHUNKS
            role.chunk_count, role.chunks = len(chunks), (ctypes.c_int * len(chunks))(*chunks)
        self._session._check(self._session._library.swell_set_role(self._session._session, ctypes.byref(role)))

    def begin_region(self, kind: Region, *, micro_batch: int | None = None, layers: tuple[int, int] | None = None,
                     stream: int | None = None, allocated_bytes: int | None = None) -> int:
        """Open a region of this step; any thread. Its number for end_region(), or a negative errno: nothing is raised.

        layers: the first one and how many. stream: a CUstream; else the host's clock is taken.
        """
        region = _structs.Region()
        if kind is Region.WEIGHTS and self._session._library.swell_api_version() < _WEIGHTS_VERSION:
            kind = Region.BACKWARD      # a part of it, as earlier versions count both
        region.kind = kind
        if micro_batch is not None:
            region.field_mask |= _structs.REGION_MICRO_BATCH
            region.micro_batch = micro_batch
        if layers is not None:
            region.field_mask |= _structs.REGION_LAYERS
            region.first_layer, region.layers = layers
        if stream is not None:
            region.field_mask |= _structs.REGION_STREAM
            region.stream = stream
        if allocated_bytes is not None:
            region.field_mask |= _structs.REGION_MEMORY
            region.allocated_bytes = allocated_bytes
        number: int = self._session._library.swell_region_begin(self._session._session, ctypes.byref(region))
        return number

    def end_region(self, number: int, allocated_bytes: int = 0) -> int:
        """Close a region; any thread. 0 or a negative errno; a number that is negative is left alone."""
        if number < 0:
            return number
        code: int = self._session._library.swell_region_end(self._session._session, number, allocated_bytes)
        return code

    def memory(self, peak_bytes: int) -> None:
        """Say the most device memory that was ever allocated."""
        self._session._check(self._session._library.swell_memory(self._session._session, peak_bytes))

    def profile(self) -> Times | None:
        """Returns the profiler's times; None before a role and five whole steps."""
        times = _structs.Times()
        code = self._session._library.swell_profile(self._session._session, ctypes.byref(times))
        if code == -errno.EAGAIN:
            return None
        self._session._check(code)
        values = {name: getattr(times, name) for name, *_ in _structs.Times._fields_}
        return Times(**{**values, "stable": bool(times.stable)})
