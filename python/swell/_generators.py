# SPDX-License-Identifier: BSD-3-Clause
"""The states of the random number generators of this process."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch

from swell._plain import decoded, encoded

__all__ = ["generators", "is_same", "of_rank", "restore_generators", "seed_generators", "seeded_numpy"]


def generators() -> dict[str, Any]:
    """Returns the states of the generators of torch, Python, numpy and the current GPU, in types that torch.load(weights_only=True) reads."""
    version, words, gauss = random.getstate()
    found: dict[str, Any] = {"torch": torch.get_rng_state(), "python": (version, torch.tensor(words, device="cpu"), gauss)}     # one thing, not 625
    if "numpy" in sys.modules:
        found["numpy"] = encoded(sys.modules["numpy"].random.get_state(legacy=False))
    if torch.cuda.is_initialized():     # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def restore_generators(found: dict[str, Any]) -> None:
    """Sets the states that generators() returned; not that of numpy if it has another bit generator now."""
    torch.set_rng_state(found["torch"])
    version, words, gauss = found["python"]
    random.setstate((version, tuple(torch.as_tensor(words).tolist()), gauss))       # a list in older checkpoints
    if "numpy" in found and "numpy" in sys.modules:
        numpy, state = sys.modules["numpy"].random, found["numpy"]
        if isinstance(state, dict):
            state = decoded(state)
            kind = state["bit_generator"]
        else:       # of an older checkpoint
            kind, state = state[0], tuple(state)
        if kind == numpy.get_state(legacy=False)["bit_generator"]:
            numpy.set_state(state)
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two states of generators are equal."""
    if type(one).__module__ == "numpy":
        return bool((one == other).all())
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def seeded_numpy() -> Any:
    """Returns numpy.random if it is imported and can be seeded; None otherwise, and if the script has set another bit generator."""
    if "numpy" not in sys.modules:
        return None
    numpy: Any = sys.modules["numpy"].random
    if hasattr(numpy, "get_bit_generator"):     # get_state() copies its words one by one; numpy before 1.24 has that alone
        return numpy if type(numpy.get_bit_generator()) is numpy.MT19937 else None
    return numpy if numpy.get_state(legacy=False)["bit_generator"] == "MT19937" else None


def of_rank(each: Sequence[dict[str, Any]], rank: int) -> dict[str, Any] | None:
    """Returns the states with which a worker continues: those of the earlier worker of the same rank; None: it is a new worker."""
    return each[rank] if rank < len(each) else None


def seed_generators(seed: int, step: int, rank: int) -> None:
    """Seeds the generators of a new worker, by seed, step and rank, so that they differ from those of all earlier workers."""
    number = int.from_bytes(hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=4).digest(), "little")
    torch.manual_seed(number)
    random.seed(number)
    if (numpy := seeded_numpy()) is not None:
        numpy.seed(number)
