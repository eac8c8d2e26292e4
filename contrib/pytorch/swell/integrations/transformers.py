# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with transformers' Trainer, and what is derived from it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import transformers
from transformers.trainer_utils import TrainOutput

from swell import _native, _request, data
from swell.integrations._leaving import Departure

__all__ = ["SwellCallback"]

_STATE = "trainer_state.json"
_WHOLE = "swell.json"       # in a checkpoint folder: all workers have written their part


class SwellCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Makes a Trainer elastic: ``SwellCallback.attach(trainer)`` before ``trainer.train()``.

    The global batch is what the script asks for on the job's own GPUs (per_device_train_batch_size x
    gradient_accumulation_steps x those workers) and stays so: the batch of a device and the accumulation
    are made to fit the workers that there are. Samples come in an order that depends on the seed alone.
    When swellrun asks, all workers save a checkpoint at the same step, also from within an evaluation,
    and leave with exit code 0; trainer.train() resumes from the newest whole checkpoint in output_dir.
    """

    def __init__(self, trainer: Any, global_batch: int) -> None:
        self.trainer = trainer
        self.global_batch = global_batch    # samples of one optimizer step, over all workers
        self._departure = Departure()
        self._departure.listen(global_batch)
        self._leaving = False
        self._evaluation_due = False
        self._live: _Live | None = None

    @classmethod
    def attach(cls, trainer: Any, *, global_batch: int | None = None) -> SwellCallback:
        """Make a Trainer elastic, before its train().

        global_batch: samples of one optimizer step over all workers, in place of the script's own.
        """
        args = trainer.args
        world, basic = args.world_size, min(_request.place().basic_workers, args.world_size)
        micro = args.per_device_train_batch_size
        batch = global_batch or micro * args.gradient_accumulation_steps * basic
        if batch % world:
            raise ValueError(f"a global batch of {batch} samples does not divide over {world} workers; submit with --elastic=sizes="
                             f"{'/'.join(map(str, data.sizes(batch, basic)))}")
        share = batch // world
        accumulation = next(steps for steps in range(1, share + 1) if share % steps == 0 and share // steps <= micro)
        args.per_device_train_batch_size, args.gradient_accumulation_steps = share // accumulation, accumulation
        trainer._train_batch_size = args.train_batch_size
        made = cls(trainer, batch)
        trainer.add_callback(made)
        loader, train = trainer.get_train_dataloader, trainer.train
        trainer.get_train_dataloader = lambda: made._loader(loader())
        if _native.is_live():
            made._live = _Live(made)
        trainer.train = lambda resume_from_checkpoint=None, *rest, **options: made._train(train, resume_from_checkpoint, *rest, **options)
        return made

    # ---- data

    def _loader(self, made: Any) -> Any:
        """The Trainer's own loader, with our order in place of its sampler."""
        if isinstance(made.dataset, torch.utils.data.IterableDataset):
            raise TypeError("SwellCallback needs a dataset of map style, one with a length: where a sample of an iterable one "
                            "stands cannot be told; load it into memory or on disk, or write a loop with swell.torch.Elastic")
        args = self.trainer.args
        seed = args.seed if args.data_seed is None else args.data_seed
        sampler = _EpochSampler(made.dataset, self.global_batch, micro_batch=args.per_device_train_batch_size, seed=seed,
                                shuffle=args.train_sampling_strategy != "sequential", drop_last=args.dataloader_drop_last,
                                rank=args.process_index, world=args.world_size)
        return _Loader(made.dataset, batch_sampler=sampler, collate_fn=made.collate_fn, num_workers=made.num_workers,
                       pin_memory=made.pin_memory, prefetch_factor=made.prefetch_factor,
                       persistent_workers=made.persistent_workers)

    # ---- resuming

    def newest(self) -> str | None:
        """Path of the newest whole checkpoint in output_dir; None where there is none."""
        folder = self.trainer.args.output_dir
        found: list[tuple[bool, int, str]] = []
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            match, path = re.fullmatch(r"checkpoint-(\d+)", name), os.path.join(folder, name)
            if match and os.path.exists(os.path.join(path, _STATE)):
                found.append((os.path.exists(os.path.join(path, _WHOLE)), int(match[1]), path))
        return max(found)[2] if found else None

    def _train(self, train: Any, resume: Any, *rest: Any, **options: Any) -> Any:
        chosen = [self.newest()]    # rank 0's word: file systems may show a folder late
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.broadcast_object_list(chosen, src=0)
        path = chosen[0] or (resume if isinstance(resume, str) else None)
        if path is not None:
            state = transformers.TrainerState.load_from_json(os.path.join(path, _STATE))
            if state.max_steps and state.global_step >= state.max_steps and not self.trainer.is_fsdp_enabled:
                # The Trainer itself would train one step more.
                self.trainer._load_from_checkpoint(path)
                self.trainer.state = state
                return TrainOutput(state.global_step, 0.0, {})
        if self._live is not None:
            return self._live.train(train, path, *rest, **options)
        return train(path, *rest, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", _WHOLE)
        if state.global_step and os.path.exists(path):
            with open(path) as file:
                self._evaluation_due = bool(json.load(file)["evaluation_due"])

    # ---- leaving

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._departure.begin()
        # Not at a step's end: by now it has been logged, and what was due after it is done.
        if self._live is not None:
            self._live.pass_boundary(self._evaluation_due)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._departure.agreed():
            self._leaving = control.should_save = control.should_training_stop = True
            control.should_log = True       # the mean since the last log would be lost
            self._evaluation_due = bool(control.should_evaluate)
            control.should_evaluate = False
            return
        if self._evaluation_due:
            self._evaluation_due, control.should_evaluate = False, True
        if state.global_step >= state.max_steps:
            control.should_save = True      # who is asked to leave after training must find it

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.begin_optimizer()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_optimizer()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._live is not None and self.trainer.is_in_train:
            self._live.pass_boundary(evaluation_due=True)
        if not self._departure.agreed():
            return
        if self.trainer.is_in_train:
            self._leaving = self._evaluation_due = True
            self.trainer._save_checkpoint(self.trainer.model, trial=None)
            self.on_save(args, state, control)
        self._departure.leave(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if dist.is_initialized():
            dist.barrier()
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if state.is_world_process_zero and os.path.isdir(folder):
            with open(os.path.join(folder, _WHOLE + ".new"), "w") as file:
                json.dump({"evaluation_due": self._evaluation_due, "world": args.world_size}, file)
            os.replace(file.name, os.path.join(folder, _WHOLE))
        if self._leaving:
            self._departure.leave(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._departure.end()


class _Live:
    """Live mode: the Trainer prepares model and optimizer before it reads where training stands, not after.

    What stands beside the state is given to it as the trainer_state.json of a checkpoint that has nothing else.
    """

    HISTORY = 200       # entries of log_history that go along

    def __init__(self, callback: SwellCallback) -> None:
        self.callback, self.trainer = callback, callback.trainer
        self.departure = callback._departure
        self._folder = tempfile.TemporaryDirectory(prefix="swell-trainer-")
        self._is_taken = False
        self._loader: Any = None
        self._prepared: Any = None
        trainer = self.trainer
        self._init, self._prepare, get_loader = trainer._init_training_state, trainer._prepare_for_training, trainer.get_train_dataloader
        trainer._init_training_state, trainer._prepare_for_training = self._init_training_state, self._prepare_for_training

        def loader() -> Any:
            self._loader = get_loader()
            return self._loader
        trainer.get_train_dataloader = loader
        for name in ("_load_from_checkpoint", "_load_optimizer_and_scheduler", "_load_scaler", "_load_rng_state"):
            setattr(trainer, name, self._unless_taken(getattr(trainer, name)))

    def _unless_taken(self, load: Any) -> Any:
        """Nothing is loaded from our folder, nor after the state has been taken over."""
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            return None if path == self._folder.name or self._is_taken else load(path, *rest, **options)
        return call

    def train(self, train: Any, path: str | None, *rest: Any, **options: Any) -> Any:
        """The Trainer's own train(), from a checkpoint or from what the workers before hand over."""
        if path is None:
            self._write({"train_batch_size": self.trainer._train_batch_size})
        return train(path or self._folder.name, *rest, **options)

    def _write(self, state: dict[str, Any]) -> None:
        transformers.TrainerState(**state).save_to_json(os.path.join(self._folder.name, _STATE))

    def _init_training_state(self, max_steps: int, steps_per_epoch: int, epochs: int, resume: Any, trial: Any) -> Any:
        begins = self._init(max_steps, steps_per_epoch, epochs, None if resume == self._folder.name else resume, trial)
        self._prepared = self._prepare(max_steps, self._loader, resume)
        trainer = self.trainer
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        taken = self.departure.go_live(trainer.model_wrapped, [optimizer], {"scheduler": trainer.lr_scheduler})
        self.departure.time_calls(trainer.accelerator, "backward", "backward")
        if taken is None:
            return begins
        self._is_taken = True
        self.callback._evaluation_due = taken["evaluation_due"]
        self._write({**taken["state"], "train_batch_size": trainer._train_batch_size})
        return self._init(max_steps, steps_per_epoch, epochs, self._folder.name, trial)

    def _prepare_for_training(self, max_steps: int, loader: Any, resume: Any) -> Any:
        prepared, self._prepared = self._prepared, None
        return prepared if prepared is not None else self._prepare(max_steps, loader, resume)

    def pass_boundary(self, evaluation_due: bool) -> None:
        """Between two steps, or within an evaluation: the state is whole."""
        if not self.departure.is_live:
            return
        state = {field.name: getattr(self.trainer.state, field.name) for field in dataclasses.fields(self.trainer.state)}
        state["log_history"] = state["log_history"][-self.HISTORY:]
        self.departure.pass_boundary({"state": state, "evaluation_due": evaluation_due}, self.trainer.args.per_device_train_batch_size)


class _EpochSampler(data.ElasticSampler):
    """Begins each epoch at its beginning: the Trainer itself skips what it has trained on."""

    def set_epoch(self, epoch: int) -> None:
        self.samples = epoch * self.epoch_samples


class _Loader(torch.utils.data.DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """The Trainer calls this at the beginning of each epoch."""
        assert isinstance(self.batch_sampler, _EpochSampler)
        self.batch_sampler.set_epoch(epoch)
