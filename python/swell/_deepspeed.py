# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed is refused by name, with what takes its place, before anything is lent."""

from __future__ import annotations

from typing import Any

__all__ = ["INSTEAD", "is_of_deepspeed", "refuse_deepspeed"]

INSTEAD = ("its checkpoints are read by as many workers as wrote them; use fully_shard (FSDP2), which shards what ZeRO-3 does, with reshard_after_forward=False what "
           "ZeRO-2 does, or DistributedDataParallel")


def is_of_deepspeed(thing: Any) -> bool:
    """Whether this is an engine or a wrapped optimizer of DeepSpeed's, or a model whose parameters its zero.Init has partitioned.

    Optimizers of deepspeed.ops are torch's in form, and train under DistributedDataParallel as others do.
    """
    if any(kind.__module__.startswith("deepspeed.runtime.") for kind in type(thing).__mro__):
        return True
    parameters = getattr(thing, "parameters", None)
    return callable(parameters) and any(hasattr(parameter, "ds_id") for parameter in parameters())


def refuse_deepspeed(who: str, *things: Any) -> None:
    """Raises TypeError where one of these things is DeepSpeed's. who: the name of what it was given to."""
    for thing in things:
        if is_of_deepspeed(thing):
            raise TypeError(f"{who} cannot resize a training with DeepSpeed ({type(thing).__name__}): {INSTEAD}")
