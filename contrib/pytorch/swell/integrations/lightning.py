# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with Lightning."""

from __future__ import annotations

import os
import re
from typing import Any

import lightning.pytorch as pl
import torch

from swell import _request, data
from swell.integrations._leaving import Departure

__all__ = ["LightningElastic"]

_NAME = re.compile(r"step-(\d{9})\.ckpt")


class LightningElastic(pl.Callback):  # type: ignore[misc]
    """A callback that makes Lightning's Trainer elastic.

    ::

        elastic = LightningElastic("checkpoints")
        trainer = Trainer(callbacks=[elastic], use_distributed_sampler=False, devices=elastic.devices, num_nodes=elastic.num_nodes, ...)
        trainer.fit(module, elastic.loader(dataset, global_batch=256), ckpt_path=elastic.newest())

    When swellrun asks, all workers save a checkpoint after the same optimizer step and leave with exit code 0, also
    from within a validation. Lightning goes on after that then: it is not made up for.

    directory: for checkpoints; one that all workers see, and no other run uses.
    every: optimizer steps between checkpoints while training goes on; 0: none.
    keep: checkpoints that are kept.
    """

    def __init__(self, directory: str | os.PathLike[str], *, every: int = 1000, keep: int = 2) -> None:
        self.directory, self.every, self.keep = os.fspath(directory), every, keep
        self._departure = Departure()
        self._sampler: _StepSampler | None = None
        self._saved = -1
        self._accumulating = False

    # ---- what a script asks

    @property
    def devices(self) -> int:
        """Workers on this node, for Trainer(devices=...)."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    @property
    def num_nodes(self) -> int:
        """Groups of workers, for Trainer(num_nodes=...)."""
        return max(1, _request.place().world // self.devices)

    def newest(self) -> str | None:
        """Path of the newest checkpoint, for fit(ckpt_path=...); None where there is none."""
        steps = self._steps()
        return self._path(steps[0]) if steps else None

    def loader(self, dataset: Any, global_batch: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = True,
               **loader: Any) -> torch.utils.data.DataLoader[Any]:
        """The loader to train from: samples in the same order at any number of workers.

        dataset: of map style. global_batch: samples of one batch over all workers; Trainer(accumulate_grad_batches=...)
        takes so many times more for an optimizer step. loader: further arguments of DataLoader.
        """
        here = _request.place()
        self._departure.listen(global_batch)
        if global_batch % here.world:
            raise ValueError(f"global_batch={global_batch} does not divide over {here.world} workers; submit with --elastic=sizes="
                             f"{'/'.join(map(str, data.sizes(global_batch, here.basic_workers)))}")
        self._sampler = _StepSampler(dataset, global_batch, shuffle=shuffle, seed=seed, drop_last=drop_last)
        return torch.utils.data.DataLoader(dataset, batch_sampler=self._sampler, **loader)

    # ---- Lightning's hooks

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        if self._sampler is None:
            raise RuntimeError("LightningElastic needs its own loader: trainer.fit(module, elastic.loader(dataset, global_batch=...))")
        if trainer._accelerator_connector.use_distributed_sampler:
            raise RuntimeError("LightningElastic shares out the samples itself; give Trainer(use_distributed_sampler=False)")
        if trainer.world_size != _request.place().world:
            raise RuntimeError(f"Lightning sees {trainer.world_size} workers, there are {_request.place().world}; give "
                               "Trainer(devices=elastic.devices, num_nodes=elastic.num_nodes)")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # Model and optimizer are on their devices by now, and what a checkpoint says of the loops is not restored yet.
        connector = trainer._checkpoint_connector
        # Its forward pass may be a call of a part of the module alone: it is timed where the strategy makes it.
        taken = self._departure.go_live(trainer.strategy.model, trainer.optimizers, {}, sees_forward=False)
        if self._departure.profile is not None:
            self._departure.time_calls(trainer.strategy, "training_step", "forward")
            trainer.optimizers[0].register_step_post_hook(lambda *_: self._stepped())
        if taken is not None:
            assert self._sampler is not None
            self._sampler.load_state_dict(taken["sampler"])
            connector._loaded_checkpoint = {"optimizer_states": [], **taken["lightning"]}

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.begin_backward()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_backward()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        # Within the optimizer's step(), which has called forward and backward passes first.
        if self._departure.profile is not None:
            self._departure.profile.begin_optimizer()

    def _stepped(self) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_optimizer()

    def _passes_boundary(self, trainer: Any) -> None:
        if not self._departure.is_live:
            return
        assert self._sampler is not None
        self._departure.pass_boundary({"sampler": self._sampler.state_dict(), "lightning": {
            "loops": trainer._checkpoint_connector._get_loops_state_dict(),
            "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]}},
            samples=self._sampler.global_batch / self._sampler.world)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._departure.loaded()

    def state_dict(self) -> dict[str, Any]:
        return self._sampler.state_dict() if self._sampler is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._sampler is not None and state_dict:
            self._sampler.load_state_dict(state_dict)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self._sampler is not None
        self._sampler.advance()
        self._accumulating = trainer.fit_loop._should_accumulate()      # gradients are no part of a checkpoint

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # Here and not at a batch's end: by now it counts as done, and has been logged.
        if self._accumulating:
            return
        self._passes_boundary(trainer)
        leave = self._departure.agreed()
        if leave or (self.every > 0 and trainer.global_step > 0 and trainer.global_step % self.every == 0):
            self._save(trainer)
        if leave:
            self._departure.leave(trainer.global_step)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if trainer.sanity_checking:
            return
        if trainer.state.fn == "fit":
            self._passes_boundary(trainer)
        if not self._departure.agreed():
            return
        if trainer.state.fn == "fit":
            self._save(trainer)
        self._departure.leave(trainer.global_step)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._departure.end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._save(trainer)     # who is asked to leave after training must find it

    # ---- checkpoints

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, f"step-{step:09d}.ckpt")

    def _steps(self) -> list[int]:
        """Steps of the checkpoints, newest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted((int(match[1]) for match in map(_NAME.fullmatch, names) if match), reverse=True)

    def _save(self, trainer: Any) -> None:
        """Whole or not there: written under another name, and renamed when all workers have written."""
        step = trainer.global_step
        if step == self._saved:
            return
        path = self._path(step)
        trainer.save_checkpoint(path + ".unfinished")
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            os.replace(path + ".unfinished", path)
            for old in self._steps()[self.keep:]:
                trainer.strategy.remove_checkpoint(self._path(old))
        trainer.strategy.barrier()
        self._saved = step


class _StepSampler(data.ElasticSampler):
    """One list of indices a batch, as Lightning counts them: of the whole epoch, also where that is resumed."""

    def __len__(self) -> int:
        return self.steps_per_epoch
