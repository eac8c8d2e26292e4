# SPDX-License-Identifier: BSD-3-Clause
"""What the integrations share: the agreement among a framework's workers, and leaving together."""

from __future__ import annotations

import sys

import torch.distributed as dist

from swell import _request
from swell.torch import Agreement, cpu_group

__all__ = ["Departure"]


class Departure:
    """One agreement, made when it is first needed: the framework makes the process group."""

    def __init__(self) -> None:
        _request.listen()
        self._agreement: Agreement | None = None

    def agreed(self) -> bool:
        """Whether all workers are to leave now. Every worker asks equally often."""
        if self._agreement is None:
            self._agreement = Agreement(cpu_group())
        return self._agreement.poll()

    def end(self) -> None:
        """Training is over: whatever was asked comes too late."""
        if self._agreement is not None:
            self._agreement.end()
            self._agreement = None

    def leave(self, step: int) -> None:
        """Leave with exit code 0, once all workers have come here. The checkpoint is written."""
        if _request.place().rank == 0:
            print(f"swell: asked to leave: checkpoint at step {step}", file=sys.stderr, flush=True)
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        sys.exit(0)
