# SPDX-License-Identifier: BSD-3-Clause
"""The random number generators of this process, as they stand at a moment."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

__all__ = ["generators", "restore_generators"]


def generators() -> dict[str, Any]:
    """Returns the states of torch's, Python's and numpy's generators, and of the present GPU's."""
    found: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        found["numpy"] = (kind, keys.tolist(), *rest)       # in types that weights_only reads
    if torch.cuda.is_initialized():     # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def restore_generators(found: dict[str, Any]) -> None:
    """The generators stand where they stood when generators() was called."""
    torch.set_rng_state(found["torch"])
    version, numbers, gauss = found["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(found["numpy"]))
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
