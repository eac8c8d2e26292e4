# SPDX-License-Identifier: BSD-3-Clause
"""Elastic loops with Accelerate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.scheduler import AcceleratedScheduler
from accelerate.utils import send_to_device

from swell.torch import Elastic

__all__ = ["AccelerateElastic"]


class AccelerateElastic(Elastic):
    """swell.torch.Elastic for a model and an optimizer that Accelerate has prepared.

    ::

        model, optimizer = accelerator.prepare(model, optimizer)
        elastic = AccelerateElastic(accelerator, model, optimizer, directory="checkpoints", global_batch=512)
        for batch in elastic.batches(dataset, epochs=3):
            elastic.step(loss_of(model, batch))

    It takes the place of accelerator.accumulate() and of a prepared loader: gradients are accumulated as the number of
    workers demands. options: those of Elastic. A schedule that was prepared, too, is stepped once an optimizer step all the same.
    """

    wraps_later = True      # prepare() wraps a model for more than one worker alone

    def __init__(self, accelerator: Accelerator, model: torch.nn.Module, optimizer: Any, **options: Any) -> None:
        if accelerator.gradient_accumulation_steps != 1:
            raise ValueError(f"Accelerator(gradient_accumulation_steps={accelerator.gradient_accumulation_steps}): leave it out, and give "
                             "global_batch and micro_batch to AccelerateElastic, which accumulates what the workers demand")
        self.accelerator = accelerator
        if accelerator.scaler is not None:
            options["state"] = {**(options.get("state") or {}), "scaler": accelerator.scaler}
        if isinstance(options.get("scheduler"), AcceleratedScheduler):
            options["scheduler"] = options["scheduler"].scheduler       # the prepared one steps once for each worker
        super().__init__(model, optimizer, **options)

    def batches(self, dataset: Any, **options: Any) -> Iterator[Any]:
        """As Elastic.batches(), on the accelerator's device."""
        for batch in super().batches(dataset, **options):
            yield send_to_device(batch, self.accelerator.device)

    def _saved_optimizer(self) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        return optimizer

    def _why_not_stay(self) -> str:
        return "Accelerate keeps the number of workers"

    def _backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)

    def _clip(self, norm: float) -> None:
        self.accelerator.clip_grad_norm_(self.model.parameters(), norm)
