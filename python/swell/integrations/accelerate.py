# SPDX-License-Identifier: BSD-3-Clause
"""Elastic loops with Accelerate."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import accelerate.accelerator as home
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderAdapter
from accelerate.scheduler import AcceleratedScheduler
from accelerate.utils import DistributedType, send_to_device

from swell._agreement import cpu_group
from swell._counted import counted
from swell._deepspeed import INSTEAD
from swell._room import save_beside
from swell.torch import Elastic

__all__ = ["AccelerateElastic"]


class _Saves:
    """The script's own saves by accelerator.save_state(): those that Accelerate numbers are numbered on over resizes."""

    def __init__(self, elastic: AccelerateElastic) -> None:
        self._accelerator, self._save = elastic.accelerator, elastic.accelerator.save_state
        self._goes_on = self._lacks = False        # _lacks: a part of the present save was left out
        self._group: dist.ProcessGroup | None = None
        elastic.accelerator.save_state = self.save_state
        for name in ("save_accelerator_state", "save_custom_state"):
            self._watch(name, elastic)

    def state_dict(self) -> dict[str, Any]:
        return {"iteration": self._accelerator.project_configuration.iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._accelerator.project_configuration.iteration, self._goes_on = state["iteration"], True

    def save_state(self, output_dir: str | None = None, *arguments: Any, **options: Any) -> Any:
        """Accelerator.save_state(); one of a step that is trained again, as after a kill, takes the place of the one before.

        Where a worker could not write its part for want of room, the new folder is removed: load_state() would take it for whole.
        The workers meet only where Accelerate names the folder and has them meet itself: a script may save by its main process alone
        elsewhere. Files of several workers stay in a folder that the script names, since the others may still write there.
        """
        accelerator, folder, self._lacks = self._accelerator, output_dir, False
        meet = accelerator.project_configuration.automatic_checkpoint_naming
        if meet:
            folder = os.path.join(accelerator.project_dir, "checkpoints", f"checkpoint_{accelerator.save_iteration}")
            if self._goes_on and accelerator.is_main_process:
                shutil.rmtree(folder, ignore_errors=True)
        is_new = folder is not None and not os.path.exists(folder)
        if meet:
            accelerator.wait_for_everyone()
        saved = self._save(output_dir, *arguments, **options)
        if (meet or accelerator.num_processes == 1) and self._is_partial() and is_new and folder is not None and accelerator.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)
        return saved

    def _is_partial(self) -> bool:
        """Whether any worker has left out a part of the save."""
        if not dist.is_initialized():
            return self._lacks
        self._group = self._group or cpu_group()
        lack = torch.tensor([int(self._lacks)], dtype=torch.int32)
        dist.all_reduce(lack, op=dist.ReduceOp.MAX, group=self._group)
        return bool(lack.item())

    def _leave_out(self) -> None:
        self._lacks = True

    def _watch(self, name: str, elastic: AccelerateElastic) -> None:
        """Saves of the script's end no training for want of the room that this run's checkpoints take."""
        found = getattr(home, name)
        write = getattr(found, "swell_writes", found)

        def beside(*arguments: Any, **options: Any) -> Any:
            folder = os.fspath(arguments[0 if name == "save_accelerator_state" else 1])
            return save_beside(lambda: write(*arguments, **options), folder, elastic._checkpoints.paths, self._leave_out)
        setattr(beside, "swell_writes", write)
        setattr(home, name, beside)


class _Given:
    """Lists the objects that the script has given to Accelerate beside model and optimizer: registered objects, and schedules that it steps itself."""

    def __init__(self, accelerator: Accelerator, scheduler: Any) -> None:
        self._accelerator, self._scheduler = accelerator, scheduler
        self._waiting: list[Any] = []       # states of objects that the script registers later
        self._register = accelerator.register_for_checkpointing
        accelerator.register_for_checkpointing = self.register

    def register(self, *things: Any) -> None:
        """Accelerator.register_for_checkpointing(); what a start registers later than Elastic() goes on, too."""
        self._register(*things)
        for thing in things[:len(self._waiting)]:
            thing.load_state_dict(self._waiting.pop(0))

    def _schedules(self) -> list[Any]:
        found = [getattr(each, "scheduler", each) for each in self._accelerator._schedulers]
        return [each for each in found if each is not self._scheduler]

    def state_dict(self) -> dict[str, Any]:
        return {"registered": [each.state_dict() for each in self._accelerator._custom_objects], "schedules": [each.state_dict() for each in self._schedules()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        there = self._accelerator._custom_objects
        for thing, each in [*zip(there, state["registered"]), *zip(self._schedules(), state["schedules"])]:
            thing.load_state_dict(each)
        self._waiting = state["registered"][len(there):]


class AccelerateElastic(Elastic):
    """swell.torch.Elastic for a model and an optimizer that Accelerate has prepared.

    ::

        model, optimizer = accelerator.prepare(model, optimizer)
        elastic = AccelerateElastic(accelerator, model, optimizer, directory="checkpoints", global_batch=512)
        for batch in elastic.batches(dataset, epochs=3):
            elastic.step(loss_of(model, batch))

    An object given to accelerator.register_for_checkpointing() is a part of its checkpoints, as is a prepared schedule that the script steps itself.
    It takes the place of accelerator.accumulate() and of a prepared loader: gradients are accumulated as the number of
    workers demands. options: those of Elastic. A schedule that was prepared, too, is stepped once an optimizer step all the same.
    """

    def __init__(self, accelerator: Accelerator, model: torch.nn.Module, optimizer: Any, **options: Any) -> None:
        if accelerator.gradient_accumulation_steps != 1:
            raise ValueError(f"Accelerator(gradient_accumulation_steps={accelerator.gradient_accumulation_steps}): leave it out, and give "
                             "global_batch and micro_batch to AccelerateElastic, which accumulates what the workers demand")
        if getattr(accelerator.state, "deepspeed_plugin", None) is not None:
            raise ValueError(f"AccelerateElastic cannot resize a training with DeepSpeed: {INSTEAD}, by Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))")
        if accelerator.distributed_type == DistributedType.MEGATRON_LM:
            raise ValueError("AccelerateElastic cannot resize Accelerate's Megatron-LM: its checkpoints are read by as many workers as wrote them; use "
                             "swell.integrations.megatron, or DistributedDataParallel or FSDP")
        others = [each for each in getattr(accelerator, "_optimizers", ()) if each is not optimizer and each not in (options.get("state") or {}).values()]
        if others and optimizer in accelerator._optimizers:
            raise ValueError(f"accelerator.prepare() has {counted(len(others), 'other optimizer')} ({', '.join(type(each.optimizer).__name__ for each in others)}), whose state no "
                             "checkpoint would have: give AccelerateElastic one optimizer with all parameters as groups, or state={\"name\": the other}; if it is "
                             "of a training that is over, call accelerator.free_memory() before")
        self.accelerator = accelerator
        if accelerator.scaler is not None:
            options["state"] = {**(options.get("state") or {}), "scaler": accelerator.scaler}
        if isinstance(options.get("scheduler"), AcceleratedScheduler):
            options["scheduler"] = options["scheduler"].scheduler       # the prepared one steps once for each worker
        options["state"] = {**(options.get("state") or {}), "swell.given": _Given(accelerator, options.get("scheduler"))}
        self._saves = _Saves(self)
        if accelerator.project_configuration.automatic_checkpoint_naming:
            options["state"] = {**(options.get("state") or {}), "swell.saves": self._saves}
        super().__init__(model, optimizer, **options)

    def batches(self, dataset: Any, **options: Any) -> Iterator[Any]:
        """As Elastic.batches(), on the accelerator's device. Takes the dataset, and not a loader that was prepared."""
        if isinstance(dataset, DataLoaderAdapter) or hasattr(dataset, "base_dataloader"):
            raise TypeError(f"batches() is given a prepared {type(dataset).__name__}, which shares out its samples itself: give its dataset, with num_workers and "
                            "collate_fn beside it")
        for batch in super().batches(dataset, **options):
            yield send_to_device(batch, self.accelerator.device)

    def _restore(self, rest: dict[str, Any], reseed: bool) -> None:
        state = rest.get("state") or {}
        if "saves" in state and "swell.saves" not in state and "saves" not in self._state:      # its name in older checkpoints
            rest = {**rest, "state": {**state, "swell.saves": state["saves"]}}
        super()._restore(rest, reseed)

    def _how_to_wrap(self) -> str:
        # prepare() wraps a model for more than one worker alone, but notes it on one, too.
        is_prepared = any(getattr(each, "_orig_mod", each) is self._wrapped for each in self.accelerator._models)
        return "" if is_prepared else "give AccelerateElastic the model that accelerator.prepare() returns"

    def _schedules(self) -> dict[str, Any]:
        given = self._state["swell.given"]
        prepared = given._schedules() if isinstance(given, _Given) else []
        return {**super()._schedules(), **{f"prepared schedule {at}": schedule for at, schedule in enumerate(prepared)}}

    def _told(self) -> dict[str, Any]:
        return {**super()._told(), "mixed_precision": self.accelerator.mixed_precision}

    def _has_static_graph(self) -> bool:
        return super()._has_static_graph() or bool(getattr(self.accelerator.ddp_handler, "static_graph", False))

    def _saved_optimizer(self) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        return optimizer

    def _why_not_stay(self) -> str:
        return "Accelerate keeps the number of workers"

    def _backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)

    def _clip(self, norm: float) -> None:
        self.accelerator.clip_grad_norm_(self.model.parameters(), norm)
