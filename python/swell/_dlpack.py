# SPDX-License-Identifier: BSD-3-Clause
"""Tensors over memory that torch has not allocated, on the host or on a GPU, by DLPack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch.utils.dlpack

__all__ = ["is_used", "over"]

_CPU, _CUDA = 1, 2      # DLDeviceType
_UNSIGNED = 1           # DLDataTypeCode
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_described: list[Any] = []      # torch may read them as long as there is a tensor


def _capsule(at: Any) -> Any:
    """Returns a capsule as DLPack has it, without a destructor: what it names is kept by nobody."""
    new: Callable[..., Any] = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]   # type: ignore[attr-defined]
    return new(at, _NAME, None)


def over(address: int, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of one dimension over so many bytes. REQUIRES: they are there as long as the tensor is used."""
    if size == 0:
        return torch.empty(0, dtype=dtype, device=device)
    shape = (ctypes.c_int64 * 1)(size)
    managed = _Managed()
    its = managed.tensor
    its.data, its.device_type, its.device_id = address, _CUDA if device.type == "cuda" else _CPU, device.index or 0
    if device.type == "cuda" and device.index is None:
        its.device_id = torch.cuda.current_device()
    its.ndim, its.code, its.bits, its.lanes = 1, _UNSIGNED, 8, 1
    its.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    _described.append((managed, shape))
    found: torch.Tensor = torch.utils.dlpack.from_dlpack(_capsule(ctypes.addressof(managed)))
    return found.view(dtype)


def is_used(storage: torch.UntypedStorage, *, by_more_than: int = 0) -> bool:
    """Whether more than so many tensors are over it. Where this torch does not tell how many there are: true."""
    count: Any = getattr(torch._C, "_storage_Use_Count", None)
    if count is None:
        return True
    one = torch.empty(1).untyped_storage()      # by no tensor any more
    return bool(count(storage._cdata) - count(one._cdata) > by_more_than)
