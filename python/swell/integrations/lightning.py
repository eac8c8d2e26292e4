# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with Lightning."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io import torch_io
from lightning.pytorch.callbacks import BatchSizeFinder, GradientAccumulationScheduler, LearningRateFinder, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io.wrapper import _WrappingCheckpointIO
from lightning.pytorch.loops.evaluation_loop import RestartStage
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.model_helpers import is_overridden

from swell import _identity, _native, _request, data
from swell._across import say_what_is_across_in
from swell._agreement import gather
from swell._averaged import average_what_is_trained
from swell._beside import Beside
from swell._changing import Changing
from swell._deepspeed import INSTEAD
from swell._kept_types import keep_types
from swell._lock import run_name
from swell._plain import Unreadable, check_readable, decoded, encoded, plain
from swell._rates import say_rates_in
from swell._room import make_room, save_beside
from swell._share import fails_on_one_sample, say_what_depends
from swell._stream import Stream, compare, is_stream
from swell._written import check_written, is_cut_off
from swell.checkpoint import on_all, set_aside, together, why_unsaved
from swell._drawn import DrawnLoader
from swell._generators import generators, of_rank, restore_generators
from swell._noise import Noise
from swell.integrations import _metrics
from swell.integrations._first_losses import FirstLosses
from swell.integrations._leaving import Departure
from swell.integrations._logged import Logged
from swell.integrations._pending import Pending
from swell.integrations._rows import keep_rows, take_columns, trim
from swell.integrations._unsaved import why_averages_are_lost

__all__ = ["LightningElastic"]

_NAME = re.compile(r"step-(\d{9})\.ckpt")
_UNFINISHED = ".unfinished"
_GIVE = "make it a part of the module (self.teacher = teacher, frozen by requires_grad_(False)), or give what on_save_checkpoint() saves"


@dataclass(frozen=True)
class _Validation:
    """Random numbers, and metrics of the training, as a validation began."""

    generators: dict[str, Any]
    metrics: dict[str, Any]


class LightningElastic(pl.Callback):  # type: ignore[misc]
    """A callback that makes Lightning's Trainer elastic.

    ::

        elastic = LightningElastic("checkpoints")
        trainer = Trainer(callbacks=[elastic], use_distributed_sampler=False, devices=elastic.devices, num_nodes=elastic.num_nodes,
                          logger=CSVLogger("logs", version=elastic.version), ...)
        trainer.fit(module, elastic.loader(dataset, global_batch=256), ckpt_path=elastic.newest())

    The loader may also be what a LightningDataModule's train_dataloader() returns. When swellrun asks, all workers save a
    checkpoint after the same optimizer step and leave with exit code 0, also from within a validation. That validation is made
    before the next step then.

    directory: for checkpoints; one that all workers see, and no other run uses.
    every: optimizer steps between checkpoints while training goes on; 0: none.
    keep: checkpoints that are kept.
    """

    def __init__(self, directory: str | os.PathLike[str], *, every: int = 1000, keep: int = 2) -> None:
        self.directory, self.every, self.keep = _request.run_folder(directory), every, keep
        self._departure = Departure()
        self._sampler: _StepSampler | Stream | None = None
        self._loaded: dict[str, Any] = {}       # what a checkpoint, or the workers before, say of this callback
        self._saved = -1
        self._save_fails = ""       # why the newest save failed
        self._accumulating = False
        self._validation: _Validation | None = None     # that is under way
        self._logs_epochs = False
        # "kinds": of what the script has made, since callbacks may put another schedule in its place; "told": what a start may change.
        self._script: dict[str, dict[str, Any]] = {"kinds": {}, "told": {}}
        self._finders: list[Any] = []       # of learning rates
        self._generators: dict[str, Any] | None = None      # those to go on with
        self._is_handed_over = False
        self._last_step = -1        # of max_steps
        keep_rows()
        _watch_saves(self)
        self._is_due = False        # a validation that workers were asked to leave in is to be made
        self._has_stopped = False       # a callback has ended training before its last step
        self._trims = False     # rows of steps that are trained again, as the first batch begins
        self._noise = Noise("the training step")
        self._losses = FirstLosses(self._samples, self._departure.lending.stop)
        self._pending: Pending | None = None        # gradients of a module that optimizes by hand
        self._changing: Changing | None = None
        self._logs: Logged | None = None        # of the first batch
        self._beside: Beside | None = None      # what changes and no checkpoint holds

    # ---- what a script asks

    @property
    def devices(self) -> int:
        """Workers on this node, for Trainer(devices=...)."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    @property
    def num_nodes(self) -> int:
        """Groups of workers, for Trainer(num_nodes=...)."""
        return max(1, _request.place().world // self.devices)

    @property
    def version(self) -> str:
        """The run's name, the same at every start of a job: for loggers, which otherwise begin a new version at each."""
        return run_name() or "run"

    def newest(self) -> str | None:
        """Path of the newest whole checkpoint, for fit(ckpt_path=...); None where there is none. Raises ValueError where all are damaged."""
        damaged: list[str] = []
        for path in self.paths():
            try:
                if not _is_damaged(path):
                    break
                damaged.append(path)
            except FileNotFoundError:   # as where rank 0 has set it aside by now
                pass
        else:
            if damaged:
                all_of_them = ", ".join(f"the checkpoint {each} is damaged: it has no end" for each in damaged)
                raise ValueError(f"{all_of_them}, and there is no whole one before it; move {'them' if len(damaged) > 1 else 'it'} away to begin anew, or give another directory")
            return None
        for each in damaged if _request.place().rank == 0 else ():
            print(f"swell: the checkpoint {each} is damaged: it has no end; this start takes the one before it", file=sys.stderr, flush=True)
        return path

    def loader(self, dataset: Any, global_batch: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = True,
               **loader: Any) -> Any:
        """The loader to train from: samples in the same order at any number of workers.

        dataset: of map style; or a stream that every worker reads whole, as swell.torch.Elastic.batches() takes it, for which shuffle, seed and
        drop_last have no meaning, and which is read in this process. global_batch: samples of one batch over all workers; Trainer(accumulate_grad_batches=...)
        takes so many times more for an optimizer step. drop_last=False leaves out, too, what is left of an epoch and does not
        divide over every number of workers: the mean of their losses would not be that of the samples. loader: further arguments of
        DataLoader.
        """
        here = _request.place()
        if is_stream(dataset):
            return self._stream_loader(dataset, global_batch, loader)
        data.ElasticSampler(dataset, global_batch, drop_last=drop_last)     # whether these go together, before anything is lent
        self._departure.lending.listen(global_batch)
        if global_batch % here.world:
            raise ValueError(f"global_batch={global_batch} does not divide over {here.world} workers; submit with --elastic=sizes="
                             f"{'/'.join(map(str, data.sizes(global_batch, here.basic_workers)))}")
        if not drop_last and len(dataset) % global_batch:
            if here.rank == 0 and self._sampler is None:
                print(f"swell: the last batch of an epoch has {len(dataset) % global_batch} of {global_batch} samples, which do not divide over every "
                      "number of workers: it is left out", file=sys.stderr, flush=True)
            drop_last = True
        if loader.get("collate_fn") is not None:
            say_what_is_across_in(loader["collate_fn"], takes_samples=True)
        # A loader that is made again may be over other samples, which only a start says.
        before = {**self._sampler.state_dict(), "content": ""} if self._sampler is not None else self._loaded.get("data")
        self._sampler = _StepSampler(dataset, global_batch, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if before:
            self._sampler.load_state_dict(before)
        return DrawnLoader(dataset, batch_sampler=self._sampler, **loader)

    def _stream_loader(self, dataset: Any, global_batch: int, loader: dict[str, Any]) -> _StreamLoader:
        here = _request.place()
        if others := sorted(set(loader) - {"collate_fn"}):
            raise ValueError(f"{', '.join(others)}: {type(dataset).__name__} is read in this process; for readers beside it give a loader with state_dict(), "
                             "such as torchdata's StatefulDataLoader")
        stream = Stream(dataset, global_batch, micro_batch=global_batch, rank=here.rank, world=here.world, collate=loader.get("collate_fn"))
        before = self._sampler.state_dict() if self._sampler is not None else self._loaded.get("data")
        if before:
            stream.load_state_dict(before)
        elif here.generation == 0 and not self._steps():
            stream.check()
        self._departure.lending.listen(stream.units)
        if stream.units % here.world:
            raise ValueError(f"global_batch={global_batch}, in batches of {stream.unit}, does not divide over {here.world} workers; submit with --elastic=sizes="
                             f"{'/'.join(map(str, data.sizes(stream.units, here.basic_workers)))}")
        self._sampler = stream
        return _StreamLoader(stream, self._departure)

    # ---- Lightning's hooks

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        if any(kind.__name__ == "DeepSpeedStrategy" for kind in type(trainer.strategy).__mro__):     # of lightning's or of pytorch_lightning's
            raise TypeError(f"LightningElastic cannot resize a training with DeepSpeed ({type(trainer.strategy).__name__}): {INSTEAD}, by Trainer(strategy=ModelParallelStrategy()) or "
                            "strategy=\"ddp\"")
        if trainer._accelerator_connector.use_distributed_sampler:
            raise RuntimeError("LightningElastic shares out the samples itself; give Trainer(use_distributed_sampler=False)")
        if trainer.world_size != _request.place().world:
            raise RuntimeError(f"Lightning sees {trainer.world_size} workers, there are {_request.place().world}; give "
                               "Trainer(devices=elastic.devices, num_nodes=elastic.num_nodes)")
        if finder := next((each for each in trainer.callbacks if isinstance(each, BatchSizeFinder)), None):
            raise RuntimeError(f"{type(finder).__name__} changes the batch of a worker, and LightningElastic keeps the global batch: leave it out, and give elastic.loader(global_batch=...)")
        self._finders = [each for each in trainer.callbacks if isinstance(each, LearningRateFinder)]
        for each in self._finders:
            each.on_fit_start = lambda *_: None     # until on_fit_start() here
        if not any(isinstance(each, _Validations) for each in trainer.callbacks):
            at = trainer.callbacks.index(self) + 1      # each at its place in the script's order
            trainer.callbacks[at:at] = [_Validations(self), _Times(self._departure, self._losses)]
        set_up = trainer.strategy.setup
        trainer.strategy.setup = lambda trainer: self._sets_up(set_up, trainer, pl_module)
        self._losses.watch(trainer, pl_module)
        unsaved = [each for each in trainer.callbacks if not is_overridden("state_dict", each, parent=pl.Callback)]
        self._changing = Changing({"the module": pl_module, **{f"callback {at}": each for at, each in enumerate(unsaved, 1)}}, remedy=_GIVE)
        self._changing.add({}, [pl_module])
        load = trainer.strategy.load_checkpoint
        trainer.strategy.load_checkpoint = lambda *arguments, **options: decoded(load(*arguments, **options))

    def _samples(self) -> int:
        """Returns the samples of a worker's batch; 0: there is no loader yet."""
        return self._sampler.global_batch // self._sampler.world if self._sampler is not None else 0

    def _sets_up(self, set_up: Any, trainer: Any, pl_module: Any) -> None:
        set_up(trainer)
        # Here and not in a hook: other callbacks may have restored groups of an optimizer before ours.
        self._departure.trained = _identity.Trained(pl_module, trainer.optimizers)
        self._departure.averaged = average_what_is_trained(trainer.strategy.model)
        for each in trainer.optimizers:
            keep_types(each)
        # Callbacks may change how many batches are accumulated.
        told = {name: plain(value) for name, value in (("gradient_clip_val", trainer.gradient_clip_val), ("gradient_clip_algorithm", getattr(trainer.gradient_clip_algorithm, "value", None)),
                                                       ("accumulate_grad_batches", trainer.accumulate_grad_batches), ("precision", trainer.precision))}
        told.update(_identity.factors({f"of scheduler {at}": config.scheduler for at, config in enumerate(trainer.lr_scheduler_configs)}))
        self._script = {"kinds": _kinds(trainer), "told": told}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # Model and optimizer are on their devices by now, and what a checkpoint says of the loops is not restored yet.
        connector = trainer._checkpoint_connector
        self._find_rates(trainer, pl_module)
        assert self._departure.trained is not None
        identity = self._loaded.get("identity")
        _identity.check_same(identity, kinds=self._script["kinds"])       # before any state is loaded
        with self._departure.trained.following(identity):
            pass        # torch's own optimizers load what is theirs, frozen or not
        taken = self._take_over(trainer, pl_module)
        self._departure.lock(self.directory)
        if taken is None:
            self._compare_steps()
        say_what_depends(pl_module)
        say_what_is_across_in(pl_module.training_step)
        self._pending = Pending(trainer.optimizers) if not pl_module.automatic_optimization else None
        if self._sampler is not None and fails_on_one_sample(pl_module):
            batch = self._sampler.global_batch
            self._departure.lending.narrow(lambda workers: batch // workers >= 2)
        self._remove_unfinished(trainer)
        if trainer.is_global_zero:
            self._set_damaged_aside()
        self._departure.before_leaving = lambda: _let_go(trainer)
        self._departure.has_parts = lambda: self._has_logged(trainer, pl_module)
        run = trainer.fit_loop.run
        trainer.fit_loop.run = lambda: self._run(trainer, run)
        if taken is not None:
            self._is_handed_over = True
            connector._loaded_checkpoint = {"optimizer_states": [], **taken["lightning"]}
            call._call_callbacks_load_state_dict(trainer, taken["lightning"])
            self._loaded["metrics"] = taken["logged"]
            self._generators = generators()

    def _find_rates(self, trainer: Any, pl_module: Any) -> None:
        """Have callbacks look for a learning rate where the training begins: each trains for a while, and goes back to a checkpoint of its own, in the place of one that is to be gone on with."""
        begins = trainer.ckpt_path is None and not self._steps()
        for each in self._finders:
            if begins or each._early_exit:      # a Tuner's, which trains nothing beyond
                try:
                    type(each).on_fit_start(each, trainer, pl_module)
                finally:
                    self._loaded, self._is_due, self._generators = {}, False, None      # of that checkpoint
        if other := next((each for each in self._finders if type(each) is not LearningRateFinder), None):
            self._departure.lending.bar(f"{type(other).__name__} may look for learning rates within the training, where it goes back to a checkpoint of its own: use LearningRateFinder itself")

    def _take_over(self, trainer: Any, pl_module: Any) -> Any:
        if _native.is_live() and (why := _why_not_live(trainer, pl_module)):
            if trainer.is_global_zero:
                print(f"swell: {why}: this job is resized by restarts", file=sys.stderr, flush=True)
            return None
        # Its forward pass may be a call of a part of the module alone: it is timed where the strategy makes it.
        taken = self._departure.go_live(trainer.strategy.model, trainer.optimizers, {}, sees_forward=False)
        if self._departure.profile is not None:
            self._departure.time_calls(trainer.strategy, "training_step", "forward")
            trainer.optimizers[0].register_step_post_hook(lambda *_: self._stepped())
        return taken

    def _run(self, trainer: Any, run: Any) -> None:
        """The fit loop, also where nothing is left of it but a validation."""
        if not any(isinstance(each, _Begins) for each in trainer.callbacks):
            trainer.callbacks.insert(0, _Begins(self))
        identity = self._loaded.get("identity") or {}
        if self._loaded.pop("stopped", False) and identity.get("run") == run_name():       # Lightning itself would train to the next time that a callback ends it
            if trainer.is_global_zero:
                print(f"swell: {_identity.continues(identity, trainer.global_step, self._path(trainer.global_step))}: a callback has ended training there, nothing is left to train; "
                      "for more, give another directory", file=sys.stderr, flush=True)
            self._departure.end()
            return
        loop = trainer.fit_loop.epoch_loop
        self._last_step, steps = loop.max_steps, loop.global_step
        if self._is_due and 0 <= loop.max_steps <= steps:
            loop.max_steps = steps + 1      # until the validation is made
        run()

    def _stepped(self) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_optimizer()

    def _passes_boundary(self, trainer: Any) -> None:
        if not self._departure.is_live:
            return
        assert self._sampler is not None
        precision = trainer.precision_plugin
        self._departure.pass_boundary({"lightning": {
            "loops": trainer._checkpoint_connector._get_loops_state_dict(), "callbacks": call._call_callbacks_state_dict(trainer),
            "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
            type(precision).__qualname__: precision.state_dict()}, "logged": _metrics.joined(self._departure.parts(self._logged(trainer)))},
            samples=self._sampler.global_batch / self._sampler.world)

    def _has_logged(self, trainer: Any, pl_module: Any) -> bool:
        """Whether the module logs what is of an epoch: from the first time on."""
        self._logs_epochs = self._logs_epochs or _metrics.is_any(trainer, pl_module)
        return self._logs_epochs

    def _logged(self, trainer: Any) -> dict[str, Any]:
        """This worker's part of what was logged of the epoch: as a validation began, if one is under way."""
        return _metrics.taken(trainer, trainer.lightning_module) if self._validation is None else self._validation.metrics

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._sampler is None:
            raise RuntimeError("LightningElastic needs its own loader: trainer.fit(module, elastic.loader(dataset, global_batch=...)), or a "
                               "LightningDataModule whose train_dataloader() returns elastic.loader(...)")
        self._check_loaders(trainer)
        self._has_stopped = False       # by a fit() before
        self._departure.loaded()
        identity = self._loaded.get("identity")
        _identity.check_same(identity, **self._numbers(trainer))
        if self._loaded:
            step = trainer.global_step
            if not self._is_handed_over:
                self._saved = step
                if trainer.is_global_zero:
                    print("swell: " + _identity.continues(identity, step, self._path(step)), file=sys.stderr, flush=True)
            self._go_on_in_the_epoch(trainer, pl_module)
            self._go_on(trainer)
        self._trims = trainer.is_global_zero
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger) and trainer.is_global_zero:
                take_columns(logger.experiment)
        if why := _identity.why_not_the_models(pl_module, trainer.optimizers):
            self._departure.lending.bar(why)
        saved, unsaved = list[Any](), list[Any]()
        for each in trainer.callbacks:
            (saved if any(is_overridden(name, each, parent=pl.Callback) for name in ("state_dict", "on_save_checkpoint")) else unsaved).append(each)
        if _request.under_swellrun() and trainer.is_global_zero and not is_overridden("on_save_checkpoint", pl_module, parent=pl.LightningModule):
            kept = [pl_module, *trainer.optimizers, *trainer.strategy._lightning_optimizers, *(config.scheduler for config in trainer.lr_scheduler_configs), *(each for each in saved if each is not self)]
            self._beside = Beside(kept, trainer.optimizers[0], _GIVE) if trainer.optimizers else None
        if trainer.is_global_zero:
            say_rates_in([pl_module, *trainer.callbacks])
            rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
            self._logs = Logged(pl_module, rates)
            self._losses.came_from = (self._loaded["world"], rates) if self._loaded.get("world") else None
        if why := why_averages_are_lost(unsaved, pl_module, (), "return its state in the callback's state_dict(), or use Lightning's WeightAveraging"):
            self._departure.lending.bar(why)
        try:
            check_readable({"the schedule": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
                            "the optimizer": [{name: value for name, value in group.items() if name != "params"}
                                              for optimizer in trainer.optimizers for group in optimizer.param_groups],
                            "hyperparameters": [dict(each.hparams) for each in (pl_module, trainer.datamodule) if each is not None],
                            "the callbacks' states": call._call_callbacks_state_dict(trainer)})
        except Unreadable as error:
            self._departure.lending.bar(str(error))

    def _check_loaders(self, trainer: Any) -> None:
        """Raises where the training does not read from the one loader that this has made: what it reads elsewhere is not shared out, nor gone on with."""
        loaders = trainer.fit_loop._combined_loader.flattened
        if len(loaders) == 1 and self._sampler in (getattr(loaders[0], "batch_sampler", None), getattr(loaders[0], "_stream", None)):
            return
        raise RuntimeError(f"the training reads from {len(loaders)} loaders; LightningElastic shares out the samples of one: give fit() the last one that elastic.loader() "
                           "has returned, over a dataset that gives what a step needs")

    def _go_on_in_the_epoch(self, trainer: Any, pl_module: Any) -> None:
        """Within an epoch: what was logged of it so far, and what callbacks have set as it began, which Lightning does not call then."""
        if (found := self._loaded.get("metrics")) is not None:
            _metrics.restore(trainer, pl_module, found)
        loop = trainer.fit_loop
        if not (loop.restarted_mid_epoch or loop.restarted_on_epoch_end):
            return
        if found is not None:
            loop._restarting = False    # else schedules that look at a metric are not stepped at the end of this epoch, for want of metrics
        for each in trainer.callbacks:
            if isinstance(each, GradientAccumulationScheduler):
                each.on_train_epoch_start(trainer, pl_module)
            if isinstance(each, StochasticWeightAveraging):
                rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
                each.on_train_epoch_start(trainer, pl_module)
                for rate, group in zip(rates, (group for optimizer in trainer.optimizers for group in optimizer.param_groups), strict=True):
                    group["lr"] = rate      # a new schedule sets its first

    def _go_on(self, trainer: Any) -> None:
        """The loops count what is trained: a checkpoint is written when the next batch is ready, or within a validation."""
        loop = trainer.fit_loop.epoch_loop
        progress = loop.batch_progress
        if progress.total.ready > progress.total.completed:
            progress.total.reset_on_restart()
            progress.is_last_batch = False
            if not loop._should_accumulate():
                loop._batches_that_stepped -= 1     # Lightning adds one to what a checkpoint of its own would say
        if self._is_due:
            validation = loop.val_loop
            progress = validation.batch_progress
            for name in ("ready", "started", "processed", "completed"):
                setattr(progress.total, name, getattr(progress.total, name) - getattr(progress.current, name))
            progress.current.reset()
            progress.is_last_batch = False
            validation.restarting = False
            validation._restart_stage = RestartStage.RESTARTED_MID_EVALUATION
            loop._should_check_val_fx = lambda *_: True     # so that the validation that was interrupted runs

    def _numbers(self, trainer: Any) -> dict[str, Any]:
        """Returns the values that every start of this run must share."""
        assert self._sampler is not None and self._departure.trained is not None
        where = self._sampler.numbers() if isinstance(self._sampler, Stream) else {**self._sampler.state_dict(), "stream": False}
        return {"data": where, "trained": self._departure.trained, **self._script}

    def state_dict(self) -> dict[str, Any]:
        if self._sampler is None:
            return {}
        return {**self._sampler.state_dict(), "validation_due": self._validation is not None, "stopped": self._has_stopped, "world": _request.place().world}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the state of a checkpoint, or of the workers before: the loader may be made later."""
        if not state_dict:
            return
        names = ("validation_due", "generators", "identity", "metrics", "stopped", "world")
        self._loaded = {**{name: state_dict[name] for name in names if name in state_dict},
                        "data": {name: value for name, value in state_dict.items() if name not in names}}
        self._is_due = bool(state_dict.get("validation_due"))
        if self._sampler is not None:
            self._sampler.load_state_dict(self._loaded["data"])
        if state_dict.get("generators"):
            self._generators = of_rank(state_dict["generators"], _request.place().rank)

    def _restore_generators(self) -> None:
        found, self._generators = self._generators, None
        if found is not None:
            restore_generators(found)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self._sampler is not None
        self._noise.end(pl_module)
        self._losses.end_batch()
        if self._changing is not None:
            self._changing.stepped()
        if self._logs is not None:
            self._logs.close()
            self._logs = None
        self._sampler.advance()
        self._accumulating = self._pending.after_batch() if self._pending is not None else trainer.fit_loop._should_accumulate()      # checkpoints do not have gradients

    def _total(self, trainer: Any) -> int | None:
        """Steps at the training's end; None: not known."""
        ends = [trainer.max_steps] if trainer.max_steps > 0 else []
        if isinstance(self._sampler, _StepSampler) and (trainer.max_epochs or -1) > 0:
            ends.append(trainer.max_epochs * -(-min(len(self._sampler), trainer.num_training_batches) // trainer.accumulate_grad_batches))
        return min(ends, default=None)

    def _batch_begins(self, trainer: Any) -> None:
        """Before any callback knows of it: whoever trains on from here has them begin the batch."""
        if self._trims:     # Lightning numbers rows by this count, which is right from here on. It is not the count of steps if a module optimizes by hand.
            self._trims = False
            for logger in (each for each in trainer.loggers if isinstance(each, CSVLogger)):
                trim(logger.experiment, trainer.fit_loop.epoch_loop._batches_that_stepped)
        self._restore_generators()
        # Here and not at a batch's end: by now it counts as done, and has been logged.
        if self._accumulating:
            return
        if self._beside is not None and trainer.global_step and (why := self._beside.why()):
            self._departure.lending.stop(why)
            self._beside = None
        _request.made_step(trainer.global_step, self._total(trainer))
        self._passes_boundary(trainer)
        leave = self._departure.agreed()
        if leave:
            self._leave(trainer)
        elif self.every > 0 and trainer.global_step > 0 and trainer.global_step % self.every == 0:
            self._try_to_save(trainer)

    def _leave(self, trainer: Any) -> None:
        """Leave with a checkpoint. Where it cannot be saved: train on, and have swellrun lend nothing."""
        if why := self._departure.why_not() or self._try_to_save(trainer, says=False):
            self._departure.lending.decline(why)
        else:
            self._departure.leave(trainer.global_step)

    def _validation_begins(self, trainer: Any, pl_module: Any) -> None:
        self._restore_generators()
        self._validation = _Validation(generators(), _metrics.taken(trainer, pl_module))

    def _within_a_validation(self, trainer: Any) -> None:
        if self._accumulating:
            return
        if self._validation is None:
            if self._departure.agreed():
                self._departure.leave(trainer.global_step)
            return
        with self._as_it_began(self._validation.generators), _with_its_own_weights(trainer):
            self._passes_boundary(trainer)
            if self._departure.agreed():
                self._leave(trainer)        # a checkpoint of this step is where this validation was due

    @contextmanager
    def _as_it_began(self, began: dict[str, Any]) -> Iterator[None]:
        now = generators()
        restore_generators(began)
        try:
            yield
        finally:
            restore_generators(now)

    def _validation_ends(self, trainer: Any) -> None:
        if self._validation is None:
            return
        self._validation = None
        if self._is_due:
            self._is_due, self._saved = False, -1       # the checkpoint says that it is due
            loop = trainer.fit_loop.epoch_loop
            loop.max_steps = self._last_step
            del loop._should_check_val_fx

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        loop = trainer.fit_loop
        limits = ((trainer.global_step, trainer.max_steps), (loop.epoch_progress.current.processed, trainer.max_epochs))
        if trainer.should_stop and not any(limit is not None and 0 <= limit <= at for at, limit in limits):
            self._has_stopped, self._saved = True, -1       # a checkpoint of this step may say otherwise
        self._try_to_save(trainer)      # who is asked to leave after training must find it
        self._departure.end()

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

    def _remove_unfinished(self, trainer: Any) -> None:
        """Remove what workers have left that were killed as they wrote. REQUIRES: the lock."""
        with suppress(OSError):
            for name in os.listdir(self.directory) if trainer.is_global_zero else ():
                if _NAME.fullmatch(name.removesuffix(_UNFINISHED)) and name.endswith(_UNFINISHED):
                    trainer.strategy.remove_checkpoint(os.path.join(self.directory, name))

    def _set_damaged_aside(self) -> None:
        """Damaged checkpoints would count among those that are kept, in the place of whole ones. REQUIRES: the lock."""
        for path in self.paths():
            try:
                if _is_damaged(path):
                    print(f"swell: the damaged checkpoint {path} stands in {set_aside(path)} now", file=sys.stderr, flush=True)
            except OSError as error:
                print(f"swell: the checkpoint {path} cannot be looked at: {error.strerror or error}", file=sys.stderr, flush=True)

    def _compare_steps(self) -> None:
        """Raises where workers have loaded different checkpoints: each has looked for the newest itself."""
        steps = gather((self._loaded.get("identity") or {}).get("step"), self._departure.group)
        for rank, step in enumerate(steps):
            if step != steps[0]:
                raise RuntimeError(f"rank {rank} has loaded the checkpoint of step {step}, rank 0 that of {steps[0]}: nodes see different files in {self.directory}; "
                                   "give a directory that all of them see, and the same ckpt_path to all")

    def _try_to_save(self, trainer: Any, says: bool = True) -> str:
        """_save(); returns why it failed, the same on all workers; empty: it did not. says: once, until one succeeds."""
        step = trainer.global_step
        if step == self._saved:
            return ""
        try:
            self._save(trainer, step)
        except Exception as error:      # torch, pickle and file systems have errors of their own
            why = str(error) if isinstance(error, Unreadable) else why_unsaved(self.directory, step, self._saved if self._saved >= 0 else None, error)
            if says and not self._save_fails and trainer.is_global_zero:
                print(f"swell: {why}; training goes on", file=sys.stderr, flush=True)
            self._save_fails = why
            if trainer.is_global_zero:
                trainer.strategy.remove_checkpoint(self._path(step) + _UNFINISHED)
            return why
        self._saved, self._save_fails = step, ""
        self._departure.lending.saved()
        return ""

    def _save(self, trainer: Any, step: int) -> None:
        """Whole or not there: written under another name, and renamed when all workers have written, and it was read back."""
        path, group = self._path(step), self._departure.group
        each = gather((generators(), self._logged(trainer)), group)
        checkpoint: dict[str, Any] = {}
        # A strategy that shards gathers here, or as it writes.
        on_each = on_all if isinstance(trainer.strategy, (DDPStrategy, SingleDeviceStrategy)) else together
        on_each(group, lambda: checkpoint.update(trainer._checkpoint_connector.dump_checkpoint(False)))
        checkpoint["callbacks"][self.state_key].update({"generators": [one for one, _ in each], "metrics": _metrics.joined([one for _, one in each]), "identity": _identity.record(step, **self._numbers(trainer))})
        on_each(group, lambda: self._write(trainer, checkpoint, path + _UNFINISHED))
        on_all(group, (lambda: check_written(path + _UNFINISHED)) if trainer.is_global_zero else None)
        on_all(group, (lambda: self._finish(trainer, path)) if trainer.is_global_zero else None)

    def _finish(self, trainer: Any, path: str) -> None:
        os.replace(path + _UNFINISHED, path)
        try:
            for old in self._steps()[self.keep:]:
                trainer.strategy.remove_checkpoint(self._path(old))
        except OSError as error:
            print(f"swell: older checkpoints in {self.directory} cannot be removed: {error.strerror or error}", file=sys.stderr, flush=True)

    def paths(self) -> list[str]:
        """Paths of the checkpoints, newest first."""
        return [self._path(step) for step in self._steps()]

    def _write(self, trainer: Any, checkpoint: dict[str, Any], path: str) -> None:
        if trainer.is_global_zero:
            make_room(self.paths())
        # A module makes itself of its hyperparameters, by Lightning's own load_from_checkpoint(): training does not read them.
        checkpoint.update({name: plain(value, paths=True) for name, value in checkpoint.items() if name.endswith("hyper_parameters")})
        with _at_once(trainer.strategy):
            trainer.strategy.save_checkpoint(encoded(checkpoint), path)
        if trainer.is_global_zero and os.path.isfile(path):     # else it is of parts, which torch.distributed.checkpoint reads
            try:
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except Exception:
                check_readable({f"the checkpoint[{name!r}]": value for name, value in checkpoint.items()})
                raise


def _is_damaged(path: str) -> bool:
    """Whether a checkpoint was cut off; a strategy that shards writes a folder, which is not looked at. Raises OSError where nobody can say."""
    return not os.path.isdir(path) and is_cut_off(path)


def _why_not_live(trainer: Any, pl_module: Any) -> str:
    """Returns what of the training stands in checkpoints alone, as a part of a sentence; empty: nothing."""
    adds = [each for each in (pl_module, *trainer.callbacks)
            if is_overridden("on_save_checkpoint", each, parent=pl.LightningModule if each is pl_module else pl.Callback)]
    if adds:
        return f"{type(adds[0]).__name__}.on_save_checkpoint() adds to checkpoints what live mode does not hand over"
    if any(isinstance(each, StochasticWeightAveraging) for each in trainer.callbacks):
        return "StochasticWeightAveraging puts another schedule in the place of the script's, which live mode does not hand over"
    if any(isinstance(each, LearningRateFinder) for each in trainer.callbacks):
        return "LearningRateFinder trains for a while before the training"
    if any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs):
        return "ReduceLROnPlateau looks at what was logged of an epoch, which live mode does not hand over"
    return ""


def _kinds(trainer: Any) -> dict[str, str]:
    several = {f"{kind}{f' {at}' if at else ''}": thing for kind, things in (
        ("optimizer", trainer.optimizers), ("scheduler", [config.scheduler for config in trainer.lr_scheduler_configs])) for at, thing in enumerate(things)}
    return _identity.kinds({**several, "scaler": getattr(trainer.precision_plugin, "scaler", None)})


class _Begins(pl.Callback):  # type: ignore[misc]
    """Comes before all other callbacks."""

    def __init__(self, elastic: LightningElastic) -> None:
        self._elastic = elastic

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._elastic._batch_begins(trainer)
        self._elastic._noise.begin()


class _Validations(pl.Callback):  # type: ignore[misc]
    """Workers may be asked to leave within a validation."""

    def __init__(self, elastic: LightningElastic) -> None:
        self._elastic = elastic

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._elastic._validation_begins(trainer, pl_module)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if not trainer.sanity_checking:
            self._elastic._within_a_validation(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._elastic._validation_ends(trainer)


class _Times(pl.Callback):  # type: ignore[misc]
    """Gives the profiler the parts of a step."""

    def __init__(self, departure: Departure, losses: FirstLosses) -> None:
        self._departure, self._losses, self._is_barred = departure, losses, False

    def _look_at_gradients(self, trainer: Any, pl_module: Any) -> None:
        """One worker alone is not wrapped by DistributedDataParallel, which over more would end the training for a parameter without a gradient."""
        if self._is_barred or not pl_module.automatic_optimization:
            return
        for name, parameter in pl_module.named_parameters():
            if parameter.requires_grad and parameter.grad is None:
                self._is_barred = True
                self._departure.lending.bar(f"{name} takes no part in the loss, for which DistributedDataParallel would end the training of more workers: set its "
                                    "requires_grad to False, or give Trainer(strategy=\"ddp_find_unused_parameters_true\")")
                return

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if not pl_module.automatic_optimization:
            self._losses.look(loss)
        if self._departure.profile is not None:
            self._departure.profile.begin_backward()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_backward()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        # Within the optimizer's step(), which has called forward and backward passes first.
        self._losses.look_at_rates(trainer)
        if isinstance(trainer.strategy, SingleDeviceStrategy):
            self._look_at_gradients(trainer, pl_module)
        if self._departure.profile is not None:
            self._departure.profile.begin_optimizer()


@contextmanager
def _with_its_own_weights(trainer: Any) -> Iterator[None]:
    """Within a validation that is made with an average of the weights, the model has its own."""
    swapped = [each for each in trainer.callbacks if isinstance(each, WeightAveraging) and each._average_model is not None]
    for each in swapped:
        each._swap_models(trainer.lightning_module)
    try:
        yield
    finally:        # a save that fails ends no training
        for each in reversed(swapped):
            each._swap_models(trainer.lightning_module)


@contextmanager
def _at_once(strategy: Any) -> Iterator[None]:
    """Makes saves within this complete when the call returns, also where the script's own saves are made beside the training."""
    io = strategy._checkpoint_io
    if isinstance(io, _WrappingCheckpointIO):
        strategy._checkpoint_io = None      # Lightning's own
    try:
        yield
    finally:
        strategy._checkpoint_io = io


def _watch_saves(elastic: LightningElastic) -> None:
    """Saves of ModelCheckpoint and of the script end no training for want of the room that this run's checkpoints take."""
    write = getattr(torch_io._atomic_save, "swell_writes", torch_io._atomic_save)

    def beside(checkpoint: dict[str, Any], path: Any) -> None:
        if str(path).endswith(_UNFINISHED) or "://" in str(path):
            write(checkpoint, path)
        else:
            save_beside(lambda: write(checkpoint, path), os.fspath(path), elastic.paths)
    setattr(beside, "swell_writes", write)
    torch_io._atomic_save = beside


def _let_go(trainer: Any) -> None:
    """Prepares loggers and callbacks for the end of this process: loggers write what they hold, and none of them treats it as a failed training."""
    for logger in trainer.loggers:
        try:
            logger.save()
            logger.finalize("RUNNING")      # "failed" is what Lightning would say
        except Exception as error:      # of a disk or a server, say: the checkpoint is written
            print(f"swell: rank {trainer.global_rank}: {type(logger).__name__} could not be saved: {error}", file=sys.stderr, flush=True)
    call._interrupt = lambda *_: None       # who sees it would save for an exception


class _StepSampler(data.ElasticSampler):
    """One list of indices a batch, as Lightning counts them: of the whole epoch, also where that is resumed."""

    def __len__(self) -> int:
        return self.steps_per_epoch


class _StreamLoader:
    """Global batches of a stream to the end of an epoch, one a batch of Lightning's, which reads one ahead of the steps."""

    def __init__(self, stream: Stream, departure: Departure) -> None:
        self.dataset, self._stream, self._departure, self._is_compared = stream.source, stream, departure, False

    def __iter__(self) -> Iterator[Any]:
        for batch in self._stream.joined_shares():
            if not self._is_compared:
                self._is_compared = True
                compare(self._stream, self._departure.group)
            yield batch
