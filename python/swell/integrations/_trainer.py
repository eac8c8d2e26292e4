# SPDX-License-Identifier: BSD-3-Clause
"""Parts of SwellCallback: the folder of a Trainer's checkpoints, the weights of an unequal batch, and where an evaluation began."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import torch
from transformers.trainer_callback import ExportableState, TrainerControl
from transformers.trainer_utils import sort_checkpoints

from swell import _plain, data
from swell._generators import generators, restore_generators
from swell.integrations._loss import Passes
from swell.integrations._unsaved import BUFFERS, GIVEN

__all__ = ["STATE", "Folder", "Moment", "Shares", "callback_states", "make_readable", "name_generators", "restore_callbacks", "unsaved_callbacks"]

STATE = "trainer_state.json"
_WHOLE = "swell.json"       # in a checkpoint folder: all workers have written their part
_UNFINISHED = "swell.unfinished"        # in one that is being written
_NAME = re.compile(r"checkpoint-(\d+)")
# Each start reads these; others are removed and made smaller by callbacks that come after Swell's, and by users.
_READ = re.compile(rf"optimizer\.(pt|bin)|optimizer_\d+/(\.metadata|__\d+_\d+\.distcp)|scheduler\.pt|{re.escape(STATE)}|{re.escape(BUFFERS)}|{re.escape(GIVEN)}")


class Folder:
    """The checkpoints in a Trainer's output_dir: which are whole, and which are kept.

    One that is written between the Trainer's own, as by workers that leave, does not count against save_total_limit, and is removed
    once there is a newer whole one.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def of_step(self, step: int) -> str:
        return os.path.join(self.path, f"checkpoint-{step}")

    def about(self, path: str) -> dict[str, Any] | None:
        """Returns what was said of a checkpoint when it was whole; None where it is not, nothing where that is damaged."""
        try:
            with open(os.path.join(path, _WHOLE)) as file:
                said: dict[str, Any] = json.load(file)
                return said
        except FileNotFoundError:
            return None
        except ValueError:
            return {}

    def damage(self, path: str) -> str:
        """Returns which file that a start reads is gone or cut off since a checkpoint was whole; empty: none, or it never was whole."""
        about = self.about(path)
        if about == {}:
            return f"{_WHOLE} cannot be read"
        for name, size in ((about or {}).get("files") or {}).items():
            if not _READ.fullmatch(name):       # of a version that had marked all of them
                continue
            try:
                with open(os.path.join(path, name), "rb") as file:      # open() makes NFS ask the server
                    found = os.fstat(file.fileno()).st_size
                    if found < size and not (name == STATE and _is_json(file)):     # a callback may have written it anew
                        return f"{name} has {found} of {size} bytes"
            except FileNotFoundError:
                return f"{name} is gone"
        return ""

    def check(self, newest: str | None, other: str | None = None) -> None:
        """Says which checkpoints newer than the newest whole one are damaged. Raises ValueError where there is no whole one.

        other: the path of a checkpoint that the script has named, which a start takes then.
        """
        first = int(os.path.basename(newest).partition("-")[2]) if newest else -1
        damaged = [(step, why) for step in sorted(self._steps(), reverse=True) if step > first and (why := self.damage(self.of_step(step)))]
        if damaged and newest is None and other is None:
            all_of_them = ", ".join(f"the checkpoint {self.of_step(step)} is damaged ({why})" for step, why in damaged)
            raise ValueError(f"{all_of_them}, and there is no whole one before it: move {'them' if len(damaged) > 1 else 'it'} away to begin anew, or give another output_dir")
        takes = "the one before it" if newest is not None else other
        for step, why in damaged:
            print(f"swell: the checkpoint {self.of_step(step)} is damaged ({why}): this start takes {takes}", file=sys.stderr, flush=True)

    def _steps(self) -> list[int]:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [int(match[1]) for match in map(_NAME.fullmatch, names) if match]

    def newest(self, accepts: Callable[[dict[str, Any]], bool] = lambda about: True) -> str | None:
        """Returns the path of the newest whole checkpoint that is accepted by what was said of it; None where there is none.

        Where none is whole it is the newest that a Trainer without Swell has written, if that has an optimizer's state.
        """
        found: list[tuple[bool, int, str]] = []
        for step in self._steps():
            path = self.of_step(step)
            about = self.about(path)
            if os.path.exists(os.path.join(path, STATE)) and accepts(about or {}) and not os.path.exists(os.path.join(path, _UNFINISHED)) and not self.damage(path):
                if about is not None or any(name.startswith("optimizer") for name in os.listdir(path)):
                    found.append((about is not None, step, path))
        return max(found)[2] if found else None

    def is_between(self, step: int) -> bool:
        return bool((self.about(self.of_step(step)) or {}).get("between"))

    def begin(self, step: int) -> None:
        """The checkpoint of a step is about to be written."""
        os.makedirs(self.of_step(step), exist_ok=True)
        with open(os.path.join(self.of_step(step), _UNFINISHED), "w"):
            pass
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.of_step(step), _WHOLE))

    def finish(self, step: int) -> None:
        """The checkpoint of a step is written."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.of_step(step), _UNFINISHED))

    def remove_unfinished(self) -> None:
        """Remove what workers have left that were killed as they wrote. REQUIRES: nobody writes."""
        for step in self._steps():
            if os.path.exists(os.path.join(self.of_step(step), _UNFINISHED)):
                shutil.rmtree(self.of_step(step), ignore_errors=True)

    def mark(self, step: int, about: dict[str, Any]) -> None:
        """The checkpoint of a step is whole; about: said of it."""
        folder = self.of_step(step)
        path = os.path.join(folder, _WHOLE)
        files = [os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names]
        about = {"files": {name: os.path.getsize(os.path.join(folder, name)) for name in files if _READ.fullmatch(name)}, **about}
        with open(path + ".new", "w") as file:
            json.dump(about, file)
        os.replace(file.name, path)

    def change(self, step: int, **about: Any) -> None:
        """Changes facts recorded of a whole checkpoint."""
        self.mark(step, {**(self.about(self.of_step(step)) or {}), **about})

    def tidy(self, act: Callable[[], None]) -> None:
        """Change what no start depends on; one line says where that fails, as on a disk that is full or broken."""
        try:
            act()
        except OSError as error:
            print(f"swell: checkpoints in {self.path} cannot be tidied up: {error.strerror or error}", file=sys.stderr, flush=True)

    def rotate(self, step: int, limit: int | None, best: str | None) -> None:
        """Remove what the checkpoint of a step makes needless; the newest whole one stays, which a start goes on from."""
        newest = self.newest()
        kept = {os.path.basename(os.fspath(path)) for path in (self.of_step(step), newest, best) if path}
        for other in self._steps():
            if self.is_between(other) and os.path.basename(self.of_step(other)) not in kept:
                shutil.rmtree(self.of_step(other), ignore_errors=True)
        if not limit or limit < 0 or self.is_between(step):
            return
        names = [os.path.basename(path) for path in sort_checkpoints(self.path, use_mtime=True)]
        if newest and newest != best and (self.about(newest) or {}).get("between"):
            names.remove(os.path.basename(newest))      # it comes beside those that are asked for
        needless = [name for name in names if name not in kept]
        for name in needless[:max(0, len(names) - limit)]:
            shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)


def _is_json(file: IO[bytes]) -> bool:
    try:
        json.load(file)
    except ValueError:
        return False
    return True


# ---- callbacks with a state


def _stateful(handler: Any) -> Iterator[tuple[str, list[Any]]]:
    """The callbacks that have a state, by the name of their class."""
    found: dict[str, list[Any]] = {}
    for callback in handler.callbacks:
        if isinstance(callback, ExportableState) and not isinstance(callback, TrainerControl):
            found.setdefault(type(callback).__name__, []).append(callback)
    yield from found.items()


def callback_states(handler: Any) -> dict[str, list[dict[str, Any]]]:
    return {name: [callback.state() for callback in callbacks] for name, callbacks in _stateful(handler)}


def unsaved_callbacks(handler: Any) -> list[Any]:
    """The callbacks of the script's whose state no checkpoint has."""
    return [callback for callback in handler.callbacks if not isinstance(callback, ExportableState) and not type(callback).__module__.startswith(("transformers.", "swell."))]


def restore_callbacks(handler: Any, states: dict[str, Any]) -> None:
    """Callbacks take up their states; the Trainer itself does so only when it is told to, and replaces the objects then."""
    for name, callbacks in _stateful(handler):
        saved = states.get(name, [])
        saved = saved if isinstance(saved, list) else [saved]
        for callback, state in zip(callbacks, saved[-len(callbacks):]):     # the Trainer appends where there are several
            for attribute, value in state.get("attributes", {}).items():
                setattr(callback, attribute, value)


class Moment:
    """Where training stands as an evaluation begins: what of it the evaluation changes."""

    def __init__(self, trainer: Any) -> None:
        self._logged = len(trainer.state.log_history)
        self._callbacks = callback_states(trainer.callback_handler)
        self._generators = generators()

    @contextmanager
    def restored(self, trainer: Any) -> Iterator[None]:
        """Training stands there again, within this."""
        handler, log = trainer.callback_handler, trainer.state.log_history
        callbacks, now = callback_states(handler), generators()
        trainer.state.log_history = log[:self._logged]
        restore_callbacks(handler, self._callbacks)
        restore_generators(self._generators)
        try:
            yield
        finally:
            trainer.state.log_history = log
            restore_callbacks(handler, callbacks)
            restore_generators(now)


# ---- an epoch's last, smaller batch


class Shares:
    """Weighs the losses of an epoch's last, smaller batch by the samples that count: workers may have unequal numbers of them.

    sampler: of the loader that is trained from. looks: called before each pass with what computes its loss, the model, the inputs and the
        number of items in the step. passes: looks at the losses of the first step.
    """

    def __init__(self, trainer: Any, looks: Callable[..., None], passes: Passes) -> None:
        self.trainer = trainer
        self.sampler: data.ElasticSampler | None = None
        self._pieces: list[data.Piece] = []     # of the present step; none where workers and passes have equal shares
        self._pass = 0
        self._scale, self._trains = 1.0, False      # _trains: within a pass of the training
        step, loss, items = trainer.training_step, trainer.compute_loss, trainer._get_num_items_in_batch

        def training_step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            self._scale = self._scale_of(self._pass, num_items_in_batch)
            self._pass += 1
            self._trains = True
            try:
                return step(model, inputs, num_items_in_batch)
            finally:
                self._scale, self._trains = 1.0, False

        def compute_loss(*arguments: Any, **options: Any) -> Any:
            if self._trains:
                looks(loss, *arguments[:2], options.get("num_items_in_batch"))
                passes.begin(arguments[0])
            made = loss(*arguments, **options)
            if self._trains and not self._pieces:
                passes.look(made, options.get("num_items_in_batch"), trainer.args.per_device_train_batch_size)
            if self._scale == 1.0:
                return made
            return (made[0] * self._scale, *made[1:]) if isinstance(made, tuple) else made * self._scale

        def get_num_items_in_batch(batches: list[Any], device: torch.device) -> Any:
            self._begin_step()
            return items([self._counted(batch, at) for at, batch in enumerate(batches)], device)
        trainer.training_step, trainer.compute_loss, trainer._get_num_items_in_batch = training_step, compute_loss, get_num_items_in_batch

    def _begin_step(self) -> None:
        sampler = self.sampler
        self._pieces, self._pass = [], 0
        if sampler is None:
            return
        rest = sampler.epoch_samples % sampler.global_batch
        if rest and self.trainer.state.global_step % sampler.steps_per_epoch == sampler.steps_per_epoch - 1:
            self._pieces = data.pieces(rest, sampler.world, sampler.rank, sampler.micro_batch)

    def _scale_of(self, number: int, items: Any) -> float:
        if number >= len(self._pieces):
            return 1.0
        counted, trainer = self._pieces[number].counted, self.trainer
        normalized = trainer.loss_is_scaled_for_ga      # by the number of items in the whole batch
        if normalized is None:
            normalized = (trainer.model_accepts_loss_kwargs and items is not None) or trainer.compute_loss_func is not None
        if normalized:
            return 1.0 if counted else 0.0
        # The Trainer divides by the passes, and gradients are averaged over the workers.
        assert self.sampler is not None
        rest = self.sampler.epoch_samples % self.sampler.global_batch
        return counted * len(self._pieces) * self.sampler.world / rest

    def _counted(self, batch: Any, number: int) -> Any:
        """A batch to count the items of: none of samples that another worker trains on."""
        if number >= len(self._pieces) or self._pieces[number].counted or not hasattr(batch, "items"):
            return batch
        return {name: torch.full_like(value, -100) if name in ("labels", "shift_labels") and isinstance(value, torch.Tensor) else value
                for name, value in batch.items()}


# ---- what the Trainer reads back with weights_only


def make_readable(optimizer: torch.optim.Optimizer, scheduler: Any) -> str:
    """Numpy's numbers in what the Trainer saves become Python's. Returns why a start could not read it all the same; empty: it can."""
    for group in optimizer.param_groups:
        group.update({name: _plain.plain(value) for name, value in group.items() if name != "params"})
    options = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    schedule = {}
    if scheduler is not None and hasattr(scheduler, "state_dict"):
        inner = getattr(scheduler, "scheduler", scheduler)      # Accelerate's has the schedule in it
        vars(inner).update({name: _plain.plain(value) for name, value in vars(inner).items() if name != "optimizer"})
        schedule = scheduler.state_dict()
    for name, value in [*schedule.items(), *(item for group in options for item in group.items())]:
        if why := _plain.why_not_read(value):
            return (f"the Trainer could not load its checkpoint: {name} of the schedule or the optimizer is a {type(value).__name__} ({why}); "
                    "give numbers, strings, lists or tensors")
    return ""


def name_generators(folder: str) -> None:
    """The first worker's random numbers are found by one worker and by several, for which the Trainer has two names."""
    names = [os.path.join(folder, name) for name in ("rng_state.pth", "rng_state_0.pth")]
    there = [name for name in names if os.path.exists(name)]
    if len(there) == 1:
        shutil.copyfile(there[0], names[1 - names.index(there[0])])
