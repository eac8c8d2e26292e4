# SPDX-License-Identifier: BSD-3-Clause
"""Measures the memory of one step, and tells the profiler a worker's role with it, so that its profile is reported."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from swell.engine import memory
from swell.engine.generation import Generation, GlobalBatch
from swell.engine.settings import Settings

__all__ = ["Observer"]


class Observer:
    """Observes one generation. is_done: the step has been measured, or nobody asks. role: what the profiler was told; empty before."""

    def __init__(self, settings: Settings, generation: Generation) -> None:
        self._settings, self._generation = settings, generation
        self.is_done = generation.session is None
        self.role: dict[str, float | None] = {}
        self._whole: memory.WholeActivations | None = None      # being counted

    def around(self, chunk: int) -> AbstractContextManager[Any]:
        """Stands around each pass of a chunk."""
        its = self._generation.share.chunks[chunk]
        if self._whole is None or its is None or self._whole.stage not in its.models or self._whole.is_done:
            return nullcontext()
        return self._whole.watched()

    def backward(self, batch: GlobalBatch) -> list[torch.Tensor]:
        """Generation.backward(), measured: with the sums over replicas after the passes, where they are counted."""
        now, settings = self._generation, self._settings
        session, plan, place = now.session, now.plan, now.place
        self.is_done = True
        assert session is not None
        for number, stage in enumerate(plan.stages):
            if stage.layers == 0:       # the runtime knows no such stage
                if place.rank == 0:
                    print(f"swell: no profile is reported: stage {number} of the plan has no layer", file=sys.stderr, flush=True)
                return now.backward(batch, now.sums)
        mine = now.mine(batch)
        watched = next((memory.WholeActivations(chunk, settings.recompute) for chunk in now.share.models() if chunk.layers), None)
        self._whole = watched
        if now.device.type == "cpu":
            with memory.Peak(now.state.all()) as peak:
                losses = now.backward(batch, None)
            peak_bytes = now.state.bytes + peak.most
        else:
            with memory.DevicePeak(now.device) as device_peak:
                losses = now.backward(batch, None)
            peak_bytes = device_peak.most + session.gpu_bytes
        self._whole = None
        samples, length = mine[0].shape
        activation = length * settings.config.hidden_size * torch.empty(0, dtype=settings.dtype).element_size()
        whole = watched.kept_bytes / (samples * len(watched.stage.layers) * activation) if watched is not None else 0.0
        session.profiler.memory(peak_bytes)
        last = 12.0 * length * settings.config.vocab_size if now.share.last else None       # probabilities, their gradient, the logits'
        self.role = {"peak_bytes": peak_bytes, "whole": whole, "last_activation_bytes": last}
        session.profiler.set_role(stage=place.stage, group=place.group, layers=plan.stages[place.stage].layers, local_batch=len(now.samples()), activation=settings.dtype,
                                  activation_shape=(length, settings.config.hidden_size), whole_activations=whole, last_activation_bytes=last,
                                  tied_embedding=bool(now.share.skeleton.tied), chunks=self._units())
        return losses

    def _units(self) -> list[int]:
        """Returns the units of each chunk; none where the planner would take the memory of a single one for that of 1F1B, and replace its schedule by interleaved."""
        now = self._generation
        units = [part.units for part in now.plan.contents.parts[now.place.stage]]
        if len(units) == 1 and not self._settings.mtp_heads and not now.plan.schedule and now.schedule.read not in ("1f1b", "interleaved"):
            return []
        return units
