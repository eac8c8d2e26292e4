# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a training step, told to whoever times them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist

__all__ = ["Regions"]


class Regions:
    """Told what part of a step begins; the profiler and paced devices are such. This one does nothing."""

    stamps = False      # whether messages say when they have arrived

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0, chunk: int = 0) -> AbstractContextManager[Any]:
        """Enters a region around each timed part. kind: "forward", "backward" (or "inputs" and "weights": gradients of these alone), "head" and, within
        a backward pass, "head backward" or "head inputs", "optimizer", "tp", "dp", "send", "receive"; size: in bytes."""
        return nullcontext()

    def meet(self, group: dist.ProcessGroup | None) -> None:
        """Workers are about to begin a part together."""

    def beside(self, size: int) -> None:
        """A sum of so many bytes over replicas begins beside the computation. Any thread."""

    def arrival(self, rank: int, size: int) -> float:
        """When a message to a rank is there that is sent now. Asked where messages have stamps."""
        return 0.0

    def arrived(self, when: float) -> None:
        """A message is read that says so."""
