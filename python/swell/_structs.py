# SPDX-License-Identifier: BSD-3-Clause
"""The structs of swell.h, its masks, and the dtypes that it knows: what tests compare with the C compiler's."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_DIMS = 8
Dims = ctypes.c_int64 * MAX_DIMS


class OpenParams(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("socket", ctypes.c_char_p), ("snapshot_every", ctypes.c_uint64), ("stays", ctypes.c_int),
                ("stays_if_none_is_new", ctypes.c_int)]


class Tensor(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("dims", ctypes.c_int),
                ("shape", Dims), ("layer", ctypes.c_int), ("kind", ctypes.c_int), ("begin", Dims), ("end", Dims),
                ("flat_begin", ctypes.c_int64), ("flat_end", ctypes.c_int64), ("alias_of", ctypes.c_char_p),
                ("address", ctypes.c_void_p), ("optional", ctypes.c_int), ("device", ctypes.c_int)]


class Generation(ctypes.Structure):
    _fields_ = [("generation", ctypes.c_uint64), ("step", ctypes.c_uint64), ("fresh", ctypes.c_int)]


class Region(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("kind", ctypes.c_int), ("stage", ctypes.c_int), ("micro_batch", ctypes.c_int),
                ("first_layer", ctypes.c_int), ("layers", ctypes.c_int), ("allocated_bytes", ctypes.c_uint64), ("stream", ctypes.c_void_p)]


class Role(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("stage", ctypes.c_int), ("group", ctypes.c_int), ("layers", ctypes.c_int),
                ("local_batch", ctypes.c_int), ("activation_dtype", ctypes.c_int), ("activation_dims", ctypes.c_int),
                ("activation_shape", Dims), ("whole_activations", ctypes.c_double), ("last_activation_bytes", ctypes.c_double),
                ("tied_embedding", ctypes.c_int), ("chunk_count", ctypes.c_int), ("chunks", ctypes.POINTER(ctypes.c_int))]


class Times(ctypes.Structure):
    _fields_ = [("stable", ctypes.c_int), ("micro_batches", ctypes.c_int), ("step_s", ctypes.c_double), ("forward_s", ctypes.c_double),
                ("backward_s", ctypes.c_double), ("forward_tp_s", ctypes.c_double), ("forward_head_s", ctypes.c_double),
                ("backward_head_s", ctypes.c_double), ("optimizer_s", ctypes.c_double), ("dp_sync_s", ctypes.c_double),
                ("layer_launch_s", ctypes.c_double), ("kept_bytes", ctypes.c_double)]


OPEN_SOCKET, OPEN_SNAPSHOT_EVERY, OPEN_STAYS, OPEN_STAYS_IF_NONE_IS_NEW = 1, 2, 4, 8
LAYER, KIND, BLOCK, RANGE, ALIAS, ADDRESS, OPTIONAL, DEVICE = (1 << bit for bit in range(8))
REGION_MICRO_BATCH, REGION_LAYERS, REGION_MEMORY, REGION_STREAM = 2, 4, 8, 16
ROLE_ACTIVATION, ROLE_WHOLE, ROLE_LAST, ROLE_TIED, ROLE_CHUNKS = 1, 2, 4, 8, 16
MAX_CHUNKS = 256

# By their names in torch, so that this needs no torch: swell_dtype_t and bytes of an element.
_DTYPES = {"uint8": (0, 1), "float8_e4m3fn": (1, 1), "float16": (2, 2), "bfloat16": (3, 2), "int32": (4, 4), "float32": (5, 4),
           "int64": (6, 8), "float64": (7, 8)}


def dtype_of(dtype: torch.dtype | str) -> tuple[int, int]:
    """swell_dtype_t and bytes of an element."""
    name = str(dtype).removeprefix("torch.")
    if name == "bool" or name == "int8":
        name = "uint8"      # moved as bytes
    if name not in _DTYPES:
        raise TypeError(f"dtype {name}: libswell moves {', '.join(_DTYPES)}; keep this tensor in one of these")
    return _DTYPES[name]
