# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with transformers' Trainer, and what is derived from it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import DTensor
from transformers.trainer_utils import SaveStrategy

from swell import _identity, _native, _request, data
from swell._across import say_what_is_across_in
from swell._averaged import average_what_is_trained
from swell._changing import Changing
from swell._deepspeed import INSTEAD
from swell._drawn import DrawnLoader
from swell._kept_types import keep_types
from swell._lock import run_name
from swell._noise import Noise
from swell._plain import plain
from swell._rates import say_rates_in
from swell._share import fails_on_one_sample, say_what_depends
from swell._stream import Stream, compare, is_stream, packed, unpacked
from swell._written import check_written
from swell.checkpoint import on_all, together, why_unsaved
from swell.integrations._converted import load_converted
from swell.integrations._leaving import Departure
from swell.integrations._loss import Passes, Scale
from swell.integrations._trainer import STATE, Folder, Moment, Shares, callback_states, make_readable, name_generators, restore_callbacks, unsaved_callbacks
from swell.integrations._unsaved import counts, frozen_weights, go_on_counting, load_buffers, load_given, save_buffers, save_given, why_averages_are_lost

__all__ = ["SwellCallback"]


class _Over(Exception):
    """An evaluation that was put off has ended training."""


def _own_workers(args: Any) -> int:
    """Workers on the job's own GPUs, also while fewer train; of a Trainer that is not distributed, itself alone."""
    here = _request.place()
    return here.basic_workers if args.world_size == here.world else min(here.basic_workers, args.world_size)


def _refuse(trainer: Any, global_batch: int) -> None:
    """Raises, before anything is lent, where a resized run would not be the same run."""
    args = trainer.args
    kind = type(trainer)
    own = next((name for name in ("_get_train_sampler", "get_train_dataloader") if getattr(kind, name) is not getattr(transformers.Trainer, name)), "")
    if own:
        raise TypeError(f"{kind.__name__}.{own}() chooses the samples of a step itself; SwellCallback would train on others: it takes Trainers, such as "
                        "TRL's SFTTrainer, that leave this to transformers")
    if args.train_sampling_strategy not in ("random", "sequential"):
        raise ValueError(f"train_sampling_strategy={args.train_sampling_strategy} makes the order of the samples depend on the number of workers: leave "
                         "it out, or give sequential")
    if args.deepspeed or getattr(trainer, "is_deepspeed_enabled", False):      # of the arguments, or of accelerate's configuration
        raise ValueError(f"SwellCallback cannot resize a Trainer with DeepSpeed: {INSTEAD}, by fsdp= of TrainingArguments or without it")
    sharded = next((name for name, parameter in trainer.model.named_parameters() if isinstance(parameter, DTensor)), None)
    if sharded is not None and not trainer.is_fsdp_enabled:
        raise TypeError(f"{sharded} is sharded, but not by the Trainer, whose first worker alone would gather the weights in a save, and wait for ever: "
                        "leave fully_shard() to it, by fsdp= and fsdp_config of TrainingArguments")
    accelerator = trainer.accelerator
    if trainer.is_fsdp_enabled and getattr(accelerator, "is_fsdp2", False) and "FULL_STATE_DICT" in str(accelerator.state.fsdp_plugin.state_dict_type):
        raise ValueError("SwellCallback cannot save under FSDP2 with FULL_STATE_DICT, where the first worker alone would gather the weights: give "
                         "SHARDED_STATE_DICT, by state_dict_type in fsdp_config or by FSDP_STATE_DICT_TYPE")
    if args.auto_find_batch_size:
        raise ValueError("auto_find_batch_size=True changes the global batch while training runs; SwellCallback keeps it: leave it out, and give "
                         "per_device_train_batch_size")
    if args.ddp_static_graph and args.gradient_accumulation_steps * args.world_size > _own_workers(args):
        raise ValueError("ddp_static_graph=True does not go with passes that share no gradients, which fewer workers than now would make: leave it out")
    if args.ignore_data_skip:
        raise ValueError("ignore_data_skip=True would train on an epoch's first samples again after each resize: leave it out")
    if not args.average_tokens_across_devices and (trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None):
        raise ValueError("average_tokens_across_devices=False makes the loss depend on the number of workers: leave it at True")
    if global_batch % args.world_size:
        raise ValueError(f"a global batch of {global_batch} samples does not divide over {args.world_size} workers; submit with --elastic=sizes="
                         f"{'/'.join(map(str, data.sizes(global_batch, _own_workers(args))))}")


@dataclasses.dataclass
class _Save:
    """The newest save of a training. is_asked: workers were to leave, and could not save. why: it did not succeed; empty before the first one, too."""

    is_asked: bool = False
    is_written: bool = False
    why: str = ""


class SwellCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Makes a Trainer elastic: ``SwellCallback.attach(trainer)`` before ``trainer.train()``.

    The global batch is what the script asks for on the job's own GPUs (per_device_train_batch_size x
    gradient_accumulation_steps x those workers) and stays so: the batch of a device and the accumulation
    are made to fit the workers that there are. Samples come in an order that depends on the seed alone.
    When swellrun asks, all workers save a checkpoint at the same step, also from within an evaluation,
    and leave with exit code 0; trainer.train() resumes from the newest whole checkpoint in output_dir. An
    evaluation that was due is made before the first step after that, of the weights that it was due for.
    """

    def __init__(self, trainer: Any, global_batch: int, micro_batch: int, state: Mapping[str, Any] | None = None) -> None:
        self.trainer, self._micro_batch = trainer, micro_batch      # samples of a pass at most, as the script says
        self.global_batch = global_batch    # samples of one optimizer step, over all workers
        self.folder = Folder(trainer.args.output_dir)
        self._given = dict(state or {})     # to save and load, by name
        self._steps_seen = 0        # by this process
        self._noise = Noise("the training step")
        self._stream = self._streamed()
        self._departure = Departure()
        needs_two = fails_on_one_sample(trainer.model, trains=True)
        self._departure.lending.listen(global_batch, lambda workers: not needs_two or self._has_two_each(workers))
        self._sampler: _EpochSampler | None = None      # of data with a length
        self._passes, self._changing = Passes(trainer, self._departure.lending.stop), Changing(
            {"the model": trainer.model, "the Trainer": trainer, **{f"callback {at}": each for at, each in enumerate(unsaved_callbacks(trainer.callback_handler), 1) if each not in self._given.values()}},
            remedy="make it a part of the model, or give SwellCallback.attach(trainer, state={\"name\": it})")
        self._shares = Shares(trainer, Scale(trainer, self._departure.lending.bar, lambda: self._departure.group).look, self._passes)
        self._leaving = False
        self._due: set[str] = set()         # actions that the workers before postponed when they left: "evaluation", "save"
        self._resumed: dict[str, Any] = {}  # values of the loaded checkpoint that are not in the Trainer's state
        self._path: str | None = None       # path of that checkpoint
        self._whole: int | None = None      # step of the newest complete checkpoint; equal on all workers, even if their folders differ
        self._between: int | None = None    # step of a checkpoint that the Trainer itself would not have saved
        self._is_over = False
        self._evaluating: Moment | None = None
        self._call: tuple[Any, Any] = (None, None)      # trial and ignored keys of train()
        self._live: _Live | None = None
        self._save = _Save()
        self._frozen: str | None = None     # a digest of what checkpoints leave to the script

    @classmethod
    def attach(cls, trainer: Any, *, global_batch: int | None = None, state: Mapping[str, Any] | None = None) -> SwellCallback:
        """Make a Trainer elastic, before its train().

        global_batch: samples of one optimizer step over all workers, in place of the script's own. state: other things to save and load, by
        name, the same on all workers, such as an average of the weights that a callback keeps. Raises where a resized run would
        not be the same: nothing has been lent yet.
        """
        args = trainer.args
        micro = args.per_device_train_batch_size
        batch = global_batch or micro * args.gradient_accumulation_steps * _own_workers(args)
        _refuse(trainer, batch)
        args.output_dir = _request.run_folder(args.output_dir)        # each start looks there
        share, accumulation = batch // args.world_size, _passes(batch // args.world_size, micro)
        args.per_device_train_batch_size, args.gradient_accumulation_steps = share // accumulation, accumulation
        trainer._train_batch_size = args.train_batch_size
        made = cls(trainer, batch, micro, state)
        trainer.add_callback(made)
        trainer.callback_handler.callbacks.insert(0, _Begins(made))
        loader = trainer.get_train_dataloader
        trainer.get_train_dataloader = lambda: made._loader(loader()) if made._stream is None else made._stream_loader(made._stream)
        made._wrap("_load_from_checkpoint")
        if _native.is_live():
            made._live = _Live(made)
        say_what_depends(trainer.model, trains=True, noise="neftune_noise_alpha" if args.neftune_noise_alpha is not None else "")
        for function in (trainer.compute_loss, trainer.compute_loss_func, trainer.model.forward):
            say_what_is_across_in(function)
        say_what_is_across_in(trainer.data_collator, takes_samples=True)
        for name in ("train", "_run_epoch", "_evaluate", "_save_checkpoint", "_load_optimizer_and_scheduler", "_load_rng_state"):
            made._wrap(name)
        return made

    def _wrap(self, name: str) -> None:
        """A method of the Trainer's becomes one of ours, which is given it."""
        method, ours = getattr(self.trainer, name), getattr(self, f"_around_{name.strip('_')}")
        setattr(self.trainer, name, lambda *arguments, **options: ours(method, *arguments, **options))

    # ---- data

    def _has_two_each(self, workers: int) -> bool:
        """Whether each pass of each of so many workers has two samples or more."""
        args, share = self.trainer.args, self.global_batch // workers
        each = share // _passes(share, self._micro_batch)
        rest = 0 if self._stream is not None or args.dataloader_drop_last or self.trainer.train_dataset is None else \
            len(self.trainer.train_dataset) % self.global_batch
        return each >= 2 and (not rest or data.smallest_pass(rest, workers, each) >= 2)

    def _loader(self, made: Any) -> Any:
        """The Trainer's own loader, with our order in place of its sampler."""
        args = self.trainer.args
        seed = args.seed if args.data_seed is None else args.data_seed
        sampler = _EpochSampler(made.dataset, self.global_batch, micro_batch=args.per_device_train_batch_size, seed=seed,
                                shuffle=args.train_sampling_strategy != "sequential", drop_last=args.dataloader_drop_last,
                                rank=args.process_index, world=args.world_size)
        if self._path is not None:
            sampler.order_version = _order_of(self._resumed)
        self._sampler = self._shares.sampler = sampler
        return _Loader(made.dataset, batch_sampler=sampler, collate_fn=made.collate_fn, num_workers=made.num_workers, worker_init_fn=made.worker_init_fn,
                       pin_memory=made.pin_memory, prefetch_factor=made.prefetch_factor, persistent_workers=made.persistent_workers)

    def _streamed(self) -> Stream | None:
        """Shares out a dataset that is read in an order of its own; None for another. Raises where a start could not go on in it."""
        trainer, args, dataset = self.trainer, self.trainer.args, self.trainer.train_dataset
        if dataset is None or not (is_stream(dataset) or not data.has_length(dataset)):
            return None
        if args.dataloader_num_workers and _request.place().rank == 0:
            print(f"swell: dataloader_num_workers={args.dataloader_num_workers}: {type(dataset).__name__} is read in the process that trains", file=sys.stderr,
                  flush=True)
        stream = Stream(dataset, self.global_batch, micro_batch=args.per_device_train_batch_size, rank=args.process_index, world=args.world_size,
                        collate=trainer._get_collator_with_removed_columns(trainer.data_collator, description="Training"))
        if stream.is_of_batches:
            raise TypeError(f"train_dataset is a {type(dataset).__name__}, which makes batches; give the Trainer its dataset")
        if _request.place().generation == 0 and self.newest() is None:
            stream.check()
        args.ignore_data_skip = True        # it is at its position already
        return stream

    def _stream_loader(self, stream: Stream) -> Any:
        if self._path is not None:
            self._go_on_in(stream)
        return _StreamLoader(stream, self._departure)

    def _go_on_in(self, stream: Stream) -> None:
        """The stream goes on at the position that the checkpoint, or the workers before, name."""
        text = self._resumed.get("stream")
        if text is None:
            raise ValueError(f"{self._path or 'the run so far'} names no position in a stream, and train_dataset is a {type(stream.source).__name__}: give "
                             "the dataset that it was trained on, or another output_dir")
        stream.load_state_dict(unpacked(text))

    # ---- resuming

    def newest(self) -> str | None:
        """Path of the newest whole checkpoint in output_dir; None where there is none."""
        return self.folder.newest()

    def _around_train(self, train: Any, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: Any = None) -> Any:
        resume = resume_from_checkpoint
        if self._live is None:
            self._departure.lock(self.folder.path)
        named, checks = resume if isinstance(resume, str) else None, self._live is None or _request.place().generation == 0
        chosen: list[Any] = [None, {}]

        def choose() -> None:
            path = self._newest_of_this_run() if resume is False else self.newest()
            if resume is not False and checks:
                self.folder.check(path, named)
            path = path or named
            chosen[:] = [path, (self.folder.about(path) or {}) if path is not None else {}]
        if checks:
            on_all(self._departure.group, choose if _request.place().rank == 0 else None)
        else:
            choose()
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.broadcast_object_list(chosen, src=0)       # rank 0's word: file systems may show a folder late
        self._path, self._resumed = chosen
        self._call, self._departure.trained = (trial, ignore_keys_for_eval), None
        if self._live is not None:      # which takes the folder once the state is taken over
            return self._live.train(train, self._path, trial, ignore_keys_for_eval)
        return train(self._path, trial, ignore_keys_for_eval)

    def _newest_of_this_run(self) -> str | None:
        """Where the script asks for a new training: what this job has trained by now, before resizes and requeues."""
        if run_name():
            return self.folder.newest(_is_of_this_run)
        return self.newest() if _request.place().generation else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        before = self._resumed
        if state.is_world_process_zero:
            self.folder.remove_unfinished()
            say_rates_in([self.trainer, *self.trainer.callback_handler.callbacks])
        self._due = {name for name in ("evaluation", "save") if before.get(f"{name}_due")}
        self._whole, self._between = before.get("whole"), before.get("between_step")
        self._is_over = bool(state.global_step) and (state.global_step >= state.max_steps or
                                                     bool(before.get("stopped") and _is_of_this_run(before)) or
                                                     state.max_steps <= int(before.get("ended") or 0))
        _identity.check_same(before.get("identity"), **self._numbers())
        assert self._departure.trained is not None
        self._departure.trained.follow()        # callbacks that freeze layers as training begins have done so again
        others = "" if self.trainer.is_fsdp_enabled else _identity.why_not_the_models(self.trainer.model_wrapped, [self._optimizer()])
        if why := make_readable(self._optimizer(), self.trainer.lr_scheduler) or others:
            self._departure.lending.bar(why)
        if not state.global_step:
            self._due = set()
        else:
            args.eval_on_start = False      # training has started
            restore_callbacks(self.trainer.callback_handler, state.stateful_callbacks)
            self._go_on_with_the_mean(before.get("loss"))
            go_on_counting(self.trainer, before.get("counts") or {})
            if self._path is not None:
                load_buffers(self.trainer.model, self._path)
                load_given(self._given, self._path)
        if self._path is not None and state.is_world_process_zero:
            said = _identity.continues(before.get("identity"), state.global_step, self._path)
            print(f"swell: {said}{self._why_over(state)}", file=sys.stderr, flush=True)
        if self._is_over and "evaluation" in self._due:
            self._evaluate_what_was_due()

        self._look_at_callbacks()

    def _look_at_callbacks(self) -> None:
        """Be lent nothing where a callback keeps what each start would make anew."""
        if why := why_averages_are_lost(unsaved_callbacks(self.trainer.callback_handler), self.trainer.model, self._given.values(),
                                        "give attach() what keeps them, as state={\"average\": average}"):
            self._departure.lending.bar(why)

    def _why_over(self, state: Any) -> str:
        if not self._is_over:
            return ""
        if max(state.global_step, int(self._resumed.get("ended") or 0)) >= state.max_steps:
            return f": nothing is left to train of max_steps={state.max_steps}; for more, raise max_steps or num_train_epochs"
        return ": a callback has ended training there, nothing is left to train; for more, give another output_dir"

    def _around_load_from_checkpoint(self, load: Any, path: Any, *rest: Any, **options: Any) -> None:
        load(path, *rest, **options)
        if not self.trainer.is_fsdp_enabled:
            load_converted(self.trainer.model, path)

    def _around_load_optimizer_and_scheduler(self, load: Any, checkpoint: Any) -> None:
        before = self._resumed.get("identity")
        _identity.check_same(before, kinds=self._kinds())
        with self.note_trained().following(before):
            load(checkpoint)

    def note_trained(self) -> _identity.Trained:
        """The model and its optimizer are as the script has made them; callbacks may change what is trained from now on."""
        if self._departure.trained is None:
            self._departure.trained = _identity.Trained(self.trainer.model_wrapped, [self._optimizer()])
            keep_types(self._optimizer())
            self._departure.averaged = average_what_is_trained(self.trainer.model_wrapped)
        return self._departure.trained

    def _around_load_rng_state(self, load: Any, checkpoint: Any) -> None:
        load(checkpoint)
        # Training goes on from here: its random numbers are those of the step that the evaluation was due at.
        if "evaluation" in self._due:
            self._evaluate_what_was_due()
            if self.trainer.control.should_training_stop:
                raise _Over

    def _evaluate_what_was_due(self) -> None:
        """As the Trainer does after the step at which workers left: the evaluation, and what it decides."""
        trainer, (trial, ignored) = self.trainer, self._call
        args, state = trainer.args, trainer.state
        is_best = trainer._determine_best_metric(metrics=trainer._evaluate(trial, ignored), trial=trial)
        saves = is_best if args.save_strategy == SaveStrategy.BEST else "save" in self._due
        self._due = set()
        if saves and self._whole != state.global_step:
            trainer._save_checkpoint(trainer.model_wrapped, trial)
            trainer.control = trainer.callback_handler.on_save(args, state, trainer.control)
        elif saves:
            self._between = None
            if args.save_strategy != SaveStrategy.NO and state.best_global_step == state.global_step:
                state.best_model_checkpoint = self.folder.of_step(state.global_step)
            if state.is_world_process_zero:     # a start from it makes the evaluation again
                self.folder.tidy(lambda: self.folder.change(state.global_step, between=False, between_step=None))
            self._rotate()

    def _around_run_epoch(self, run_epoch: Any, **options: Any) -> None:
        trainer = self.trainer
        if self._is_over:       # the Trainer itself would train one step more
            trainer.control.should_training_stop = True
            return
        try:
            with _skipping():
                run_epoch(**options)
        except _Over:
            if self._is_within_an_epoch():      # which ends then
                trainer.control = trainer.callback_handler.on_epoch_end(trainer.args, trainer.state, trainer.control)
                trainer._maybe_log_save_evaluate(trainer._tr_loss, None, options["model"], options["trial"], options["epoch"],
                                                 options["ignore_keys_for_eval"], options["start_time"])
        if trainer.control.should_training_stop or trainer.state.global_step >= trainer.state.max_steps:
            self._save_the_end()
            trainer._tr_loss.fill_(self._mean_so_far()["held"])     # the Trainer takes this worker's for the mean of all steps

    def _save_the_end(self) -> None:
        """Saves the end of training: a start after a late request to leave must find that training has ended."""
        trainer = self.trainer
        if self._whole != trainer.state.global_step:
            self._due = {"end"}
            trainer._save_checkpoint(trainer.model_wrapped, self._call[0])
            self.on_save(trainer.args, trainer.state, trainer.control)
            self._due = set()
        elif self._has_stopped() and trainer.state.is_world_process_zero:
            self.folder.tidy(lambda: self.folder.change(trainer.state.global_step, stopped=True))

    def _has_stopped(self) -> bool:
        """Whether a callback has ended training before its last step."""
        return bool(self.trainer.control.should_training_stop) and not self._leaving and self.trainer.state.global_step < self.trainer.state.max_steps

    # ---- leaving

    def step_begins(self) -> None:
        """Before any callback knows of it: whoever takes the training over here has them begin the step."""
        self._departure.begin()
        _request.made_step(self.trainer.state.global_step, self.trainer.state.max_steps)
        if self._steps_seen == 1:       # some callbacks have no state of their own before their first step
            self._look_at_callbacks()
        self._steps_seen += 1
        # Not at a step's end: by now it has been logged, and what was due after it is done.
        if self._live is not None:
            self._live.pass_boundary(self._about)
        self._noise.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passes.close()
        self._changing.stepped()
        self._noise.end(self.trainer.model, is_named=args.neftune_noise_alpha is not None)
        asked = self._departure.agreed()
        # The Trainer counts passes, of which there are more or fewer with other workers.
        if self._stream is not None:
            self._stream.advance()
            state.epoch = self._stream.epoch + self._stream.steps_of_epoch / state.max_steps
            ends_epoch = state.global_step < state.max_steps and self._stream.is_at_end()
        else:
            assert self._sampler is not None
            state.epoch = state.global_step / self._sampler.steps_per_epoch
            ends_epoch = state.global_step % self._sampler.steps_per_epoch == 0
        if not asked or control.should_training_stop or state.global_step >= state.max_steps:
            return      # where training ends, a request comes too late
        self._leaving = True
        self._put_off(control)
        if not ends_epoch:
            control.should_save = control.should_training_stop = True

    def _is_within_an_epoch(self) -> bool:
        if self._stream is not None:
            return self._stream.steps_of_epoch > 0
        assert self._sampler is not None
        step: int = self.trainer.state.global_step
        return step % self._sampler.steps_per_epoch > 0

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._leaving:       # after an epoch's last step: what is due at its end is known now
            self._put_off(control)
            control.should_save = control.should_training_stop = True

    def _put_off(self, control: Any) -> None:
        self._due |= {name for name, is_due in (("evaluation", control.should_evaluate), ("save", control.should_save)) if is_due}
        control.should_evaluate = control.should_save = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.begin_optimizer()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._departure.profile is not None:
            self._departure.profile.end_optimizer()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer, moment = self.trainer, self._evaluating
        if not trainer.is_in_train:
            if self._departure.agreed():
                self._departure.leave(state.global_step)
            return
        if moment is None:
            return      # a callback evaluates: what it has done before that is not known
        due, self._due = self._due, self._due | {"evaluation"} | ({"save"} if control.should_save else set())
        with moment.restored(trainer):
            if self._live is not None:
                self._live.pass_boundary(self._about)
            if self._departure.agreed():
                self._leave_the_evaluation(args, state, control)
        self._due = due

    def _leave_the_evaluation(self, args: Any, state: Any, control: Any) -> None:
        if state.global_step and self._whole != state.global_step:
            self._leaving = True
            self.trainer._save_checkpoint(self.trainer.model_wrapped, self._call[0])
            if self._save.is_asked:
                self._save.is_asked = False
                return
            self.on_save(args, state, control)
        self._departure.leave(state.global_step)

    def _around_evaluate(self, evaluate: Any, *arguments: Any, **options: Any) -> Any:
        self._evaluating = Moment(self.trainer)
        try:
            return evaluate(*arguments, **options)
        finally:
            self._evaluating = None

    # ---- checkpoints

    def _around_save_checkpoint(self, save: Any, model: Any, trial: Any) -> None:
        args, state = self.trainer.args, self.trainer.state
        limit, only, best = args.save_total_limit, args.save_only_model, state.best_global_step
        args.save_total_limit = None        # see on_save(): others are removed once this one is whole
        if self._leaving or self._is_between():
            args.save_only_model = False    # it is there to go on from
        if best is not None and best == self._between:
            state.best_global_step = None   # the run that is not resized has no such checkpoint
        before = self._whole, self._between, state.best_model_checkpoint
        try:
            unreadable = make_readable(self._optimizer(), self.trainer.lr_scheduler)
            why = self._write(lambda: save(model, trial), (unreadable or self._departure.why_not()) if self._leaving else "", marks=not unreadable)
        finally:
            args.save_total_limit, args.save_only_model, state.best_global_step = limit, only, best
        self._save.is_written = not why
        if not why:
            self._save.why = ""
            return
        self._whole, self._between, state.best_model_checkpoint = before
        if state.is_world_process_zero:
            shutil.rmtree(self.folder.of_step(state.global_step), ignore_errors=True)
            if not self._leaving and not self._save.why:
                print(f"swell: {why}; training goes on", file=sys.stderr, flush=True)
        if self._leaving:
            self._leaving, self._save.is_asked = False, True
            self._departure.lending.decline(why)
        self._save.why = why

    def _write(self, save: Callable[[], None], why: str, marks: bool) -> str:
        """Save, and say what makes it whole if a start could read it. Returns why that failed on any worker, the same on all; empty: it did not."""
        trainer, group, before, step = self.trainer, self._departure.group, self._whole, self.trainer.state.global_step
        leads = trainer.state.is_world_process_zero
        save_model, on_each = trainer.save_model, together if trainer.is_fsdp_enabled else on_all
        trainer.save_model = lambda *arguments, **options: on_each(group, lambda: save_model(*arguments, **options))    # a barrier follows
        try:
            if not why:
                on_all(group, (lambda: self.folder.begin(step)) if leads else None)
                on_each(group, save)
                on_all(group, (lambda: check_written(self.folder.of_step(step))) if leads else None)
                if marks:
                    self._mark()
                on_all(group, (lambda: self.folder.finish(step)) if leads else None)
        except Exception as error:      # safetensors, torch and json have errors of their own
            why = why_unsaved(self.folder.path, step, before, error)
        finally:
            trainer.save_model = save_model
        return why

    def _mark(self) -> None:
        """Marks the checkpoint of this step as complete, unless no later start could continue from it."""
        trainer, state = self.trainer, self.trainer.state
        if trainer.args.save_only_model:
            return
        self._whole, self._between = state.global_step, state.global_step if self._is_between() else None
        about = {**self._about(), "identity": _identity.record(state.global_step, **self._numbers())}
        folder = self.folder.of_step(state.global_step)

        def write() -> None:
            name_generators(folder)
            save_buffers(trainer.model, folder)
            save_given(self._given, folder)
            self.folder.mark(state.global_step, about)
        on_all(self._departure.group, write if state.is_world_process_zero and os.path.isdir(folder) else None)

    def _train_on(self, control: Any) -> None:
        """Workers could not leave: what they have put off is done now."""
        due, self._save.is_asked, control.should_training_stop = self._due, False, False
        if "evaluation" in due:
            self._evaluate_what_was_due()
        self._due = set()

    def _is_between(self) -> bool:
        """Whether the Trainer itself would not save now, as far as is known."""
        return "evaluation" in self._due or "end" in self._due or (self._leaving and "save" not in self._due)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._save.is_asked:
            self._train_on(control)
            return
        if self._save.is_written:
            if self._whole == state.global_step:
                self._departure.lending.saved()
            self._rotate()
        if self._leaving:
            self._departure.leave(state.global_step)

    def _rotate(self) -> None:
        """Removes the checkpoints that this step's one makes needless."""
        args, state = self.trainer.args, self.trainer.state
        if args.should_save:
            self.folder.tidy(lambda: self.folder.rotate(state.global_step, args.save_total_limit, state.best_model_checkpoint))

    def _about(self) -> dict[str, Any]:
        """Returns the state to save beside the Trainer's. Every worker calls it."""
        return {"evaluation_due": "evaluation" in self._due, "save_due": "save" in self._due, "between": self._is_between(),
                "whole": self._whole, "between_step": self._between, "stopped": self._has_stopped(), "loss": self._mean_so_far(),
                "counts": counts(self.trainer), "order": self._numbers_of_data().get("order"),
                **({"stream": packed(self._stream.state_dict())} if self._stream is not None else {})}

    def _optimizer(self) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = getattr(self.trainer.optimizer, "optimizer", self.trainer.optimizer)
        return optimizer

    def _kinds(self) -> dict[str, str]:
        return _identity.kinds({"optimizer": self._optimizer(), "scheduler": getattr(self.trainer.lr_scheduler, "scheduler", self.trainer.lr_scheduler),
                                "scaler": self.trainer.accelerator.scaler})

    def _told(self) -> dict[str, Any]:
        """Returns the options that a start may change, by name; one line says a change."""
        args = self.trainer.args
        found = {name: plain(getattr(args, name, None)) for name in (
            "max_grad_norm", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "label_smoothing_factor", "neftune_noise_alpha")}
        return {**{name: str(getattr(value, "value", value)) if name.startswith("lr_") else value for name, value in found.items()},
                "mixed_precision": self.trainer.accelerator.mixed_precision}

    def _numbers_of_data(self) -> dict[str, Any]:
        if self._stream is not None:
            return self._stream.numbers()
        assert self._sampler is not None
        return {**self._sampler.state_dict(), "stream": False}

    def _numbers(self) -> dict[str, Any]:
        """Returns the values that every start of this run must share."""
        if self._frozen is None:
            self._frozen = frozen_weights(self.trainer.model)
        assert self._departure.trained is not None
        return {"data": self._numbers_of_data(), "trained": self._departure.trained, "kinds": self._kinds(), "told": self._told(),
                "global_batch": self.global_batch, "frozen_weights": self._frozen}

    def _mean_so_far(self) -> dict[str, Any]:
        """Returns the sums behind the next logged loss, and the mean of the whole training."""
        trainer = self.trainer
        held = trainer._tr_loss.detach().clone()
        if trainer.state.global_step == trainer._globalstep_last_logged:
            held.zero_()
        elif dist.is_initialized() and trainer.args.world_size > 1:
            dist.all_reduce(held)
            held /= trainer.args.world_size
        return {"held": float(held), "logged": trainer._globalstep_last_logged, "sum": trainer._total_loss_scalar, "began": trainer._initial_global_step}

    def _go_on_with_the_mean(self, loss: dict[str, Any] | None) -> None:
        trainer = self.trainer
        if loss is not None:
            trainer._tr_loss += loss["held"]
            trainer._globalstep_last_logged, trainer._total_loss_scalar, trainer._initial_global_step = loss["logged"], loss["sum"], loss["began"]

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        best, end = state.best_global_step, self.folder.of_step(state.global_step)
        ends_with_best = args.load_best_model_at_end and best and not os.path.isdir(end)
        if state.is_world_process_zero and ends_with_best and self.folder.about(self.folder.of_step(best)) is not None:
            self.folder.tidy(lambda: self.folder.change(best, ended=state.global_step))     # the Trainer has removed the end itself
        self._departure.end()


class _Begins(transformers.TrainerCallback):  # type: ignore[misc]
    """Comes before all other callbacks, as SwellCallback comes after them."""

    def __init__(self, elastic: SwellCallback) -> None:
        self._elastic = elastic

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._elastic.note_trained()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._elastic.step_begins()


def _passes(share: int, micro_batch: int) -> int:
    """Returns the passes of a worker's share of a global batch, all of one size, of which none has more than these samples."""
    return next(passes for passes in range(1, share + 1) if share % passes == 0 and share // passes <= micro_batch)


def _is_of_this_run(about: dict[str, Any]) -> bool:
    return bool((about.get("identity") or {}).get("run", "") == run_name())


def _order_of(about: dict[str, Any]) -> int:
    """The version of the samples' order in which a checkpoint's run has begun."""
    return int(about.get("order") or 1)


class _Live:
    """Live mode: the Trainer prepares model and optimizer before it reads where training stands, not after.

    The values beside the state are given to it as the trainer_state.json of a checkpoint that has nothing else.
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
        transformers.TrainerState(**state).save_to_json(os.path.join(self._folder.name, STATE))

    def _init_training_state(self, max_steps: int, steps_per_epoch: int, epochs: int, resume: Any, trial: Any) -> Any:
        begins = self._init(max_steps, steps_per_epoch, epochs, None if resume == self._folder.name else resume, trial)
        self._prepared = self._prepare(max_steps, self._loader, resume)
        trainer = self.trainer
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        scaler = trainer.accelerator.scaler
        taken = self.departure.go_live(trainer.model_wrapped, [optimizer],
                                       {"scheduler": trainer.lr_scheduler, **{f"state.{name}": thing for name, thing in self.callback._given.items()}, **({"scaler": scaler} if scaler is not None else {})})
        self.departure.time_calls(trainer.accelerator, "backward", "backward")
        self.departure.lock(self.callback.folder.path)
        if taken is None:
            return begins
        self._is_taken = True
        self.callback._resumed, self.callback._path = taken["about"], None
        if self.callback._stream is not None:
            self.callback._go_on_in(self.callback._stream)
        else:
            self._loader.batch_sampler.order_version = _order_of(taken["about"])
        self._write({**taken["state"], "train_batch_size": trainer._train_batch_size})
        return self._init(max_steps, steps_per_epoch, epochs, self._folder.name, trial)

    def _prepare_for_training(self, max_steps: int, loader: Any, resume: Any) -> Any:
        prepared, self._prepared = self._prepared, None
        return prepared if prepared is not None else self._prepare(max_steps, loader, resume)

    def pass_boundary(self, about: Callable[[], dict[str, Any]]) -> None:
        """Between two steps, or where an evaluation began: the state is whole. about: what goes beside the Trainer's state."""
        if not self.departure.is_live:
            return
        trainer = self.trainer
        state = {field.name: getattr(trainer.state, field.name) for field in dataclasses.fields(trainer.state)}
        state["log_history"] = state["log_history"][-self.HISTORY:]
        state["stateful_callbacks"] = {**state["stateful_callbacks"], **callback_states(trainer.callback_handler)}
        state["total_flos"] += trainer.current_flos * trainer.args.world_size       # not added up yet
        self.departure.pass_boundary({"state": state, "about": about()}, trainer.args.per_device_train_batch_size)


class _EpochSampler(data.ElasticSampler):
    """Begins each epoch at its beginning: the Trainer itself skips what it has trained on."""

    def set_epoch(self, epoch: int) -> None:
        self.samples = epoch * self.epoch_samples


class _Loader(DrawnLoader):
    def set_epoch(self, epoch: int) -> None:
        """The Trainer calls this at the beginning of each epoch."""
        assert isinstance(self.batch_sampler, _EpochSampler)
        self.batch_sampler.set_epoch(epoch)


@contextmanager
def _skipping() -> Iterator[None]:
    """Within this, skip_first_batches() as the Trainer calls it, which makes a plain DataLoader of one of ours, leaves that one of ours."""
    module: Any = transformers.trainer
    skip = module.skip_first_batches

    def skipped(loader: Any, num_batches: int = 0) -> Any:
        module.skip_first_batches = skip        # once an epoch: what evaluations and others call then is theirs
        made = skip(loader, num_batches)
        if isinstance(loader, DrawnLoader):
            made.__class__ = DrawnLoader
        return made
    module.skip_first_batches = skipped
    try:
        yield
    finally:
        module.skip_first_batches = skip


class _StreamLoader:
    """The passes of one epoch of a stream. A step is said to be done before the next one's are asked for."""

    def __init__(self, stream: Stream, departure: Departure) -> None:
        self.dataset, self._stream, self._departure, self._is_compared = stream.source, stream, departure, False

    def __iter__(self) -> Iterator[Any]:
        while self._stream.pull():
            if not self._is_compared:
                self._is_compared = True
                compare(self._stream, self._departure.group)
            yield from self._stream.share()
