# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints by torch.distributed.checkpoint: whole or not there, readable at any number of workers.

A folder `step-000000120` is complete once its `.metadata` is there, which is written last and
renamed into place; a kill at any moment leaves the one before.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)

from swell import _identity
from swell._lock import FolderLock, InUse, run_name
from swell._plain import Unreadable, check_readable, decoded, encoded, why_not_pickled
from swell._room import make_room

__all__ = ["Checkpoints", "FolderLock", "InUse", "Unreadable", "check_readable", "decoded", "encoded", "lock_together", "on_all", "readable",
           "run_name", "together", "why_not_kept", "why_unsaved", "write_rest"]

_NAME = re.compile(r"step-(\d{9})")
_REST = "rest.pt"       # what is the same on all workers, and small


def on_all(group: dist.ProcessGroup | None, act: Callable[[], None] | None) -> None:
    """Do something on some workers, or on one; where it fails on any of them, all raise what the first of those raised.

    act: None on those that have nothing to do. group: with a CPU backend; None: one worker alone. Every worker calls it.
    """
    error: Exception | None = None
    try:
        if act is not None:
            act()
    except Exception as raised:     # whatever it is, nobody may wait for this worker
        error = raised
    if group is not None:
        errors: list[Exception | None] = [None] * dist.get_world_size(group)
        dist.all_gather_object(errors, error if error is None or type(error) in _SENT else OSError(str(error)), group=group)
        first = next((each for each in errors if each is not None), None)
        if first is not None:
            raise first from error
    elif error is not None:
        raise error


def together(group: dist.ProcessGroup | None, act: Callable[[], None]) -> None:
    """As on_all(), on all workers, for a save in which a framework gathers shards.

    The others would wait in these gathers for a worker that fails within: it ends with code 1 after one line, and swellrun starts the run
    anew from the checkpoint before. A write that fails comes after the gathers, or is agreed on by torch.distributed.checkpoint.
    """
    def call() -> None:
        try:
            act()
        except Exception as error:
            if group is None or _is_of_a_write(error):
                raise
            sys.exit(f"swell: rank {dist.get_rank()}: a save that all workers make together failed: {error}; this worker ends, and the run goes on from the "
                     "checkpoint before")
    on_all(group, call)


def _is_of_a_write(error: Exception) -> bool:
    """Writers of torch and safetensors have errors of their own."""
    return isinstance(error, (OSError, Unreadable)) or type(error).__name__ == "SafetensorError" or "PytorchStreamWriter" in str(error)


_SENT = (InUse, Unreadable, OSError, ValueError)       # of which all workers raise the same kind


def lock_together(lock: FolderLock, group: dist.ProcessGroup | None) -> None:
    """Take a checkpoint folder for this run, by the first worker. Raises InUse on all where another run writes to it."""
    on_all(group, lock.acquire if group is None or dist.get_rank(group) == 0 else None)


class Checkpoints:
    """The checkpoints of one training run, in one folder that all workers see and no other run may write to meanwhile.

    model, optimizer: as they are trained, wrapped by DistributedDataParallel or fully_shard or not at
        all. Their state is saved as each worker holds it, and loaded as each then needs it.
    keep: complete checkpoints that are kept.
    group: a process group with a CPU backend that nobody else uses; None: one worker alone.
    """

    def __init__(self, folder: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer, *,
                 keep: int = 2, group: dist.ProcessGroup | None = None) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: it must be 1 or more")
        self.folder = os.fspath(folder)
        self.model, self.optimizer, self.keep, self.group = model, optimizer, keep, group
        self.trained = _identity.Trained(model, [optimizer])
        self.lock = FolderLock(self.folder)
        self._saving: Future[Any] | None = None
        self._newest: int | None = None
        self.whole: int | None = None      # the newest that is known to be written

    def _complete(self) -> list[int]:
        """Steps of the complete checkpoints, newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        steps = [int(match[1]) for match in map(_NAME.fullmatch, names) if match]
        return sorted((step for step in steps if os.path.exists(os.path.join(self._path(step), ".metadata"))), reverse=True)

    def paths(self) -> list[str]:
        """Paths of the complete checkpoints, newest first."""
        return [self._path(step) for step in self._complete()]

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step:09d}")

    def _leads(self) -> bool:
        return self.group is None or dist.get_rank(self.group) == 0

    def take_over(self, group: dist.ProcessGroup | None) -> None:
        """The workers of this group write to the folder from now on: a start in live mode, which loads nothing, or those that stay."""
        self.group = group
        if not self._leads():
            self.lock.release()
        lock_together(self.lock, group)

    def load(self, **numbers: Any) -> dict[str, Any] | None:
        """Take the folder for this run, and load the newest complete checkpoint into model and optimizer.

        numbers: what a start must have alike with the run that wrote it. Returns what save() was given as `rest`; None where
        there is no checkpoint. Raises ValueError, before anything is changed, where it is of another training, and InUse where
        another run writes to the folder. Every worker calls it at the same time, before any save.
        """
        lock_together(self.lock, self.group)
        found: list[int | None] = [None]
        if self._leads():
            complete = self._complete()
            found = [complete[0] if complete else None]
            self._remove(incomplete=True)
        if self.group is not None:
            dist.broadcast_object_list(found, group=self.group, group_src=0)
        step = self._newest = self.whole = found[0]
        if step is None:
            return None
        rest: dict[str, Any] = decoded(torch.load(os.path.join(self._path(step), _REST), map_location="cpu", weights_only=True))
        identity = rest.pop("identity", None)
        _identity.check_same(identity, trained=self.trained, **numbers)
        with self.trained.following(identity):
            state: dict[str, Any] = {"model": get_model_state_dict(self.model),
                                     "optimizer": get_optimizer_state_dict(self.model, self.optimizer)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # that there is one worker only, and of formats that torch itself wrote
                state_dict_loader.load(state, checkpoint_id=self._path(step), process_group=self.group, no_dist=self.group is None)
            set_model_state_dict(self.model, state["model"])
            set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        if self._leads():
            print("swell: " + _identity.continues(identity, step, self._path(step)), file=sys.stderr, flush=True)
        return rest

    def save(self, step: int, rest: dict[str, Any], *, wait: bool, data: Mapping[str, Any] | None = None, **numbers: Any) -> None:
        """Save the present state as that of a step; with wait=False while training goes on.

        step: rises from call to call; one that is saved already is left as it is.
        rest: what is the same on all workers; values that swell._plain can encode, and tensors.
        data, numbers: of the run's identity, see swell._identity.record().
        Every worker calls it after the same step. Raises OSError or Unreadable on all of them where it cannot be written, or read
        back; the checkpoint before is whole then.
        """
        self.finish()
        if step == self._newest:
            return
        path = self._path(step)
        self._newest = step
        whole = {**rest, "identity": _identity.record(step, data=data, trained=self.trained, **numbers)}

        def begin() -> None:
            make_room(self.paths())
            write_rest(os.path.join(path, _REST), whole)
        self._writing(lambda: on_all(self.group, begin if self._leads() else None))
        state: dict[str, Any] = {}

        def collect() -> None:
            state.update(model=get_model_state_dict(self.model), optimizer=get_optimizer_state_dict(self.model, self.optimizer))
        self._writing(lambda: on_all(self.group, collect))      # else the others would wait for one that has failed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if wait:
                self._writing(lambda: state_dict_saver.save(state, checkpoint_id=path, process_group=self.group, no_dist=self.group is None))
                self._saved()
            else:
                saving = state_dict_saver.async_save(state, checkpoint_id=path, process_group=self.group,
                                                     no_dist=self.group is None)
                assert isinstance(saving, Future)
                self._saving = saving

    def _writing(self, write: Callable[[], Any]) -> None:
        """Runs what writes a part of the newest checkpoint; where it fails nothing of that is left."""
        step = self._newest
        assert step is not None
        try:
            write()
        except (Exception, CheckpointException) as error:
            self._newest = self.whole
            if self._leads():
                shutil.rmtree(self._path(step), ignore_errors=True)     # what is not whole takes space
            if isinstance(error, Unreadable):
                raise
            raise OSError(why_unsaved(self.folder, step, self.whole, error)) from error

    def finish(self) -> None:
        """Wait for the save that is under way, if any; raises what went wrong with it."""
        saving, self._saving = self._saving, None
        if saving is not None:
            self._writing(saving.result)
            self._saved()

    def look(self) -> None:
        """Tidy up after a save that has ended meanwhile. Costs nothing where there is none."""
        if self._saving is not None and self._saving.done():
            self.finish()

    def _saved(self) -> None:
        self.whole = self._newest
        if self._leads():
            try:
                self._remove(incomplete=False)
            except OSError as error:    # of this worker alone, and the checkpoint is whole
                print(f"swell: older checkpoints in {self.folder} cannot be removed: {error.strerror or error}", file=sys.stderr, flush=True)

    def _remove(self, incomplete: bool) -> None:
        """Remove complete checkpoints but the newest few; incomplete ones if nobody can be writing."""
        complete = self._complete()
        gone = complete[self.keep:]
        if incomplete:
            there = [int(match[1]) for match in map(_NAME.fullmatch, os.listdir(self.folder)) if match]
            gone += [step for step in there if step not in complete]
        for step in gone:
            shutil.rmtree(self._path(step), ignore_errors=True)


def readable(state: Mapping[str, Any], where: str = "state") -> str:
    """Returns why a start could not read the states of things given to a loop, by name; empty: it can."""
    try:
        check_readable({f"{where}[{name!r}]" if name != "scheduler" else name: thing.state_dict() for name, thing in state.items()})
    except Unreadable as error:
        return str(error)
    return ""


def why_not_kept(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Returns why no checkpoint could hold what an optimizer is made of; empty: it can."""
    if why := _identity.why_not_the_models(model, [optimizer]):
        return why
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name != "params" and (why := why_not_pickled(value)):
                return f"{name} of the optimizer's groups is a {type(value).__name__}, which a checkpoint cannot hold ({why}); give numbers, strings, lists or tensors"
    return ""


def write_rest(name: str, rest: dict[str, Any]) -> None:
    """Write what is no tensor of model and optimizer to a file, and read it back as a start would.

    Raises Unreadable where no start could; decoded() of what torch.load(weights_only=True) gives is what was written.
    """
    os.makedirs(os.path.dirname(name), exist_ok=True)
    try:
        with open(name, "wb") as file:
            torch.save(encoded(rest), file)
            file.flush()
            os.fsync(file.fileno())
        torch.load(name, map_location="cpu", weights_only=True, mmap=True)      # its tensors stay in the file
    except OSError:
        raise
    except Exception:
        check_readable({name: value for name, value in rest.items() if name != "state"})
        check_readable({f"state[{name!r}]" if name != "scheduler" else name: value for name, value in rest.get("state", {}).items()})
        raise


def why_unsaved(folder: str, step: int, before: int | None, error: BaseException) -> str:
    """Returns the sentence for a checkpoint that could not be written; before: the step of the newest whole one."""
    there = f"; the one before, of step {before}, is whole" if before is not None else ", and there is none before it"
    return f"the checkpoint of step {step} could not be written to {folder}: {_reason(error)}{there}"


def _reason(error: BaseException) -> str:
    """The last line of what went wrong on the first worker that failed."""
    failures = getattr(error, "failures", None)     # torch.distributed.checkpoint's, by rank
    if failures:
        error = next(iter(failures.values()))[0]
    while error.__cause__ is not None and not isinstance(error, OSError):
        error = error.__cause__
    return (error.strerror if isinstance(error, OSError) else "") or str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
