# SPDX-License-Identifier: BSD-3-Clause
"""Whether a dataset of map style has the samples that it had: a digest of a few of them, bounded in time and bytes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

__all__ = ["fingerprint", "is_stored"]

_SAMPLES = 8
_INDICES = 1024
_BYTES = 1 << 16        # of one value
_SECONDS = 0.5          # for all of them; where one takes more than its share: no digest
_DEEP = 8


class _Unknown(Exception):
    """A digest cannot be made."""


def fingerprint(dataset: Any, length: int) -> str:
    """Returns a digest of samples at fixed places; empty: they are not of numbers, text, arrays and tensors, take too long, or code of the script's makes them.

    That code is not run: the dataset may hold files, caches or iterators, which a fetch that the training does not make would change. A Subset of such a dataset
    has a digest of its indices, which random_split() draws.
    """
    try:
        return _digest(dataset, length) if is_stored(dataset) else _digest_of_indices(dataset)
    except Exception:   # of samples: the training shows it where it is one
        return ""


def is_stored(dataset: Any) -> bool:
    """Whether to fetch a sample is to look one up. A class of the script's that is derived from one of these may do anything."""
    if type(dataset) is Subset:
        return is_stored(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(is_stored, dataset.datasets))
    name = (type(dataset).__module__, type(dataset).__name__)
    if name == ("datasets.arrow_dataset", "Dataset"):
        return bool(dataset.format["type"] != "custom")
    return type(dataset) in (list, tuple, TensorDataset, torch.Tensor) or name == ("numpy", "ndarray")


def _digest_of_indices(dataset: Any) -> str:
    """Returns a digest of some of a Subset's indices; empty: it is of another type, or they are."""
    found = hashlib.blake2b(digest_size=8)
    is_any = False
    while type(dataset) is Subset:
        indices: Any = dataset.indices
        if not isinstance(indices, (list, tuple, range, torch.Tensor)) and type(indices).__module__ != "numpy":
            return ""
        some = [int(indices[at]) for at in range(0, len(indices), max(1, len(indices) // _INDICES))]
        found.update(f"{len(indices)} {some}".encode())
        dataset, is_any = dataset.dataset, True
    return found.hexdigest() if is_any else ""


def _digest(dataset: Any, length: int) -> str:
    found = hashlib.blake2b(digest_size=8)
    for at in sorted({number * (length - 1) // (_SAMPLES - 1) for number in range(_SAMPLES)}):
        began, digest = time.monotonic(), hashlib.blake2b(digest_size=16)
        _add(digest, dataset[at], _DEEP)
        if time.monotonic() - began > _SECONDS / _SAMPLES:
            raise _Unknown
        found.update(digest.digest())
    return found.hexdigest()


def _add(digest: Any, value: Any, deep: int) -> None:
    """Add a value to a digest. Raises _Unknown where it is of another kind."""
    if deep == 0:
        raise _Unknown
    if isinstance(value, Mapping):
        for name in sorted(value, key=str):
            digest.update(f"{name}:".encode())
            _add(digest, value[name], deep - 1)
    elif isinstance(value, (list, tuple)):
        digest.update(f"[{len(value)}".encode())
        if value and all(type(each) in (int, bool, str) for each in value[:_BYTES]):      # tokens, at once
            digest.update(repr(value[:_BYTES >> 3])[:_BYTES].encode(errors="surrogatepass"))
            return
        for each in value[:_BYTES >> 3]:
            _add(digest, each, deep - 1)
    elif isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        some = value.detach().reshape(-1)[:_BYTES >> 3].cpu().contiguous()
        digest.update(some.view(torch.uint8).numpy().tobytes())
    elif type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        if value.dtype.hasobject:
            raise _Unknown
        digest.update(f"{value.dtype} {value.shape}".encode())
        digest.update(value.reshape(-1)[:_BYTES >> 3].tobytes())
    elif isinstance(value, (str, bytes)):
        digest.update(value[:_BYTES].encode(errors="surrogatepass") if isinstance(value, str) else value[:_BYTES])
    elif value is None or isinstance(value, (bool, int, float)):
        digest.update(repr(value).encode())
    else:
        raise _Unknown
