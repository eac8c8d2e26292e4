# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints by torch.distributed.checkpoint: whole or not there, readable at any number of workers.

A folder `step-000000120` is complete once its `.metadata` is there, which is written last and
renamed into place; a kill at any moment leaves the one before.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)

from swell import _identity, _request
from swell._kept_types import keep_types
from swell._lock import FolderLock, InUse, run_name
from swell._plain import Unreadable, check_readable, decoded, encoded, why_not_pickled
from swell._room import make_room
from swell._uncaught import is_for_the_user
from swell._written import check_written, is_cut_off

__all__ = ["Checkpoints", "FolderLock", "InUse", "Unreadable", "check_readable", "complete_steps", "decoded", "encoded", "is_complete", "lock_together", "newest_whole",
           "on_all", "readable", "run_name", "set_aside", "together", "why_not_kept", "why_unsaved", "write_rest"]

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
        sent: Any = error if error is None or type(error) in _SENT else OSError(str(error))
        if error is not None:
            sent.is_foreign = not is_for_the_user(error)
        dist.all_gather_object(errors, sent, group=group)
        first: Any = next((each for each in errors if each is not None), None)
        if first is not None:
            first.of_all_workers = True
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
        self.folder = _request.run_folder(folder)       # a script that changes its own folder saves where each start looks
        self.model, self.optimizer, self.keep, self.group = model, optimizer, keep, group
        self.trained = _identity.Trained(model, [optimizer])
        keep_types(optimizer)
        self.lock = FolderLock(self.folder)
        self._saving: Future[Any] | None = None
        self._newest: int | None = None
        self.whole: int | None = None      # the newest that is known to be written
        self._before: int | None = None     # the one before, where it is kept
        self._checked: int | None = None    # the newest that was looked at, or loaded

    def _complete(self) -> list[int]:
        """Steps of the complete checkpoints, newest first. Raises OSError where one cannot be looked at."""
        return list(complete_steps(self.folder))

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
        there is no checkpoint. Raises ValueError, before anything is changed, where it is of another training or damaged, and InUse where
        another run writes to the folder. Every worker calls it at the same time, before any save.
        """
        lock_together(self.lock, self.group)
        found: list[int | None] = [None]

        def look() -> None:
            found[0] = newest_whole(self.folder, complete_steps(self.folder), _REST)
            self._tidy(incomplete=True)
        on_all(self.group, look if self._leads() else None)
        if self.group is not None:
            dist.broadcast_object_list(found, group=self.group, group_src=0)
        step = self._newest = self.whole = self._checked = found[0]
        if step is None:
            return None
        path, rest = self._path(step), dict[str, Any]()
        on_all(self.group, lambda: rest.update(_read_rest(path, _REST)))
        identity = rest.pop("identity", None)
        _identity.check_same(identity, trained=self.trained, **numbers)
        with self.trained.following(identity):
            state: dict[str, Any] = {"model": get_model_state_dict(self.model),
                                     "optimizer": get_optimizer_state_dict(self.model, self.optimizer)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # that there is one worker only, and of formats that torch itself wrote
                self._fill(state, path, set((identity or {}).get("tensors") or ()))
            set_model_state_dict(self.model, state["model"])
            set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        if self._leads():
            print("swell: " + _identity.continues(identity, step, path), file=sys.stderr, flush=True)
        return rest

    def _fill(self, state: dict[str, Any], path: str, began: Container[str]) -> None:
        """Read a checkpoint into the state of model and optimizer. began: tensors of the model as the run so far began."""
        def compare() -> None:
            metadata = _metadata(path)
            gone = _gone(state["model"], metadata)
            why = _why_not_of(state["model"], metadata) or next((f"the run so far had {name}, this start's model has not" for name in gone if name in began), "")
            if why:
                raise ValueError(f"{why}; give the same model, or another directory")
            if gone and self._leads():
                print(f"swell: {gone[0]} of {path} is left out: the model has made it in training, and begins without it", file=sys.stderr, flush=True)
        on_all(self.group, compare)
        try:
            state_dict_loader.load(state, checkpoint_id=path, process_group=self.group, no_dist=self.group is None)
        except CheckpointException as error:
            raise ValueError(f"the checkpoint {path} cannot be read: {_reason(error)}; if it is damaged, move it away to go on from the one before it") from error

    def save(self, step: int, rest: dict[str, Any], *, wait: bool, data: Mapping[str, Any] | None = None, **numbers: Any) -> None:
        """Save the present state as that of a step; with wait=False while training goes on.

        step: rises from call to call; one that is saved already is left as it is.
        rest: what is the same on all workers; values that swell._plain can encode, and tensors.
        data, numbers: of the run's identity, see swell._identity.record().
        Every worker calls it after the same step. Raises OSError or Unreadable on all of them where it cannot be written, or read
        back; the checkpoint before is whole then.
        """
        self.finish()
        path = self._path(step)
        if step == self._newest:
            if wait and self._checked != step:
                self.whole = self._before
                self._check(step)
                self.whole = step
            return
        self._newest = step
        whole = {**rest, "identity": _identity.record(step, data=data, trained=self.trained, **numbers)}

        def begin() -> None:
            with suppress(OSError):     # of one that cannot be looked at now: the save shows whether there is room
                make_room(self.paths())
            write_rest(os.path.join(path, _REST), whole)
        self._writing(lambda: on_all(self.group, begin if self._leads() else None))
        state: dict[str, Any] = {}

        def collect() -> None:
            if why := self.trained.replaced():
                raise ValueError(why)
            state.update(model=get_model_state_dict(self.model), optimizer=get_optimizer_state_dict(self.model, self.optimizer))
        self._writing(lambda: on_all(self.group, collect))      # else the others would wait for one that has failed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if wait:
                self._writing(lambda: state_dict_saver.save(state, checkpoint_id=path, process_group=self.group, no_dist=self.group is None))
                self._check(step)
                self._saved()
            else:
                saving = state_dict_saver.async_save(state, checkpoint_id=path, process_group=self.group,
                                                     no_dist=self.group is None)
                assert isinstance(saving, Future)
                self._saving = saving

    def _check(self, step: int) -> None:
        path = self._path(step)
        self._writing(lambda: on_all(self.group, (lambda: check_written(path)) if self._leads() else None))
        self._checked = step

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
        self._before, self.whole = self.whole if self.keep > 1 else None, self._newest
        if self._leads():
            self._tidy(incomplete=False)

    def _tidy(self, incomplete: bool) -> None:
        try:
            self._remove(incomplete)
        except OSError as error:    # of this worker alone, and the newest checkpoint is whole
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


def _read_rest(path: str, name: str) -> dict[str, Any]:
    rest: dict[str, Any] = decoded(torch.load(os.path.join(path, name), map_location="cpu", weights_only=True))
    return rest


def _metadata(path: str) -> Metadata:
    return FileSystemReader(path).read_metadata()


def complete_steps(folder: str) -> Iterator[int]:
    """Steps of the complete checkpoints in a folder, newest first. Raises OSError at one that cannot be looked at."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for step in sorted((int(match[1]) for match in map(_NAME.fullmatch, names) if match), reverse=True):
        if is_complete(os.path.join(folder, f"step-{step:09d}")):
            yield step


def is_complete(path: str) -> bool:
    """Whether a checkpoint was written to its end. Raises OSError where nobody can say: it may be whole, and incomplete ones are removed."""
    try:
        os.stat(os.path.join(path, ".metadata"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def set_aside(path: str) -> str:
    """Rename a damaged checkpoint, which would count among those that are kept; returns its new path. REQUIRES: the lock."""
    folder, name = os.path.split(path)
    there, aside = os.listdir(folder), f"damaged-{name}"
    number = 1
    while aside in there:
        number += 1
        aside = f"damaged-{name}-{number}"
    os.rename(path, os.path.join(folder, aside))
    return os.path.join(folder, aside)


def newest_whole(folder: str, complete: Iterable[int], rest: str, old_rest: str = "", also: Iterable[str] = ()) -> int | None:
    """The step of the newest complete checkpoint that is not damaged; those that are newer are set aside, and said.

    complete: steps of the complete ones, newest first. rest: the name of the file with all values that are not tensors; old_rest: its name in earlier versions.
    also: names of further files without which it is not read, torch.save()'s or JSON.
    Raises ValueError where all are damaged: nobody has asked for a training that begins anew. If one may be whole, as where a file
    cannot be read now or was written by a newer version of a library, raises the reader's error.
    """
    def path(step: int) -> str:
        return os.path.join(folder, f"step-{step:09d}")
    damaged: dict[int, str] = {}
    for step in complete:
        why = _why_damaged(path(step), rest, old_rest, also)
        if not why:
            break
        damaged[step] = why
    else:
        if damaged:
            all_of_them = ", ".join(f"the checkpoint {path(each)} is damaged ({why})" for each, why in damaged.items())
            raise ValueError(f"{all_of_them}, and there is no whole one before it: move {'them' if len(damaged) > 1 else 'it'} away to begin anew, or give another directory")
        return None
    for newer, why in damaged.items():
        aside = set_aside(path(newer))
        print(f"swell: the checkpoint of step {newer} is damaged ({why}), and stands in {aside} now; this start takes the one before it", file=sys.stderr, flush=True)
    return step


def _why_damaged(path: str, rest: str, old_rest: str, also: Iterable[str]) -> str:
    """Returns which of a complete checkpoint's files is cut off or gone; empty: none as far as shows without reading tensors."""
    try:
        metadata = _metadata(path)
    except (EOFError, pickle.UnpicklingError) as error:
        if isinstance(error, EOFError) or re.search("truncated|exhausted before end|invalid load key", str(error)):
            return f".metadata cannot be read: {_reason(error)}"
        raise
    except FileNotFoundError:
        return ".metadata is gone"
    try:
        if is_cut_off(os.path.join(path, rest)):
            return f"{rest} is cut off"
    except FileNotFoundError:
        if not old_rest or old_rest not in os.listdir(path):
            return f"{rest} is gone"
    for name in also:
        try:
            if _is_broken_json(os.path.join(path, name)) if name.endswith(".json") else is_cut_off(os.path.join(path, name)):
                return f"{name} is cut off"
        except FileNotFoundError:
            return f"{name} is gone"
    ends: dict[str, int] = {}
    for place in (metadata.storage_data or {}).values():
        ends[place.relative_path] = max(ends.get(place.relative_path, 0), place.offset + place.length)
    for name, end in sorted(ends.items()):
        try:
            with open(os.path.join(path, name), "rb") as file:      # open() makes NFS ask the server
                if (size := os.fstat(file.fileno()).st_size) < end:
                    return f"{name} has {size} of {end} bytes"
        except FileNotFoundError:
            return f"{name} is gone"
    return ""


def _is_broken_json(name: str) -> bool:
    with open(name, "rb") as file:
        try:
            json.load(file)
        except ValueError:
            return True
    return False


def _why_not_of(model: Mapping[str, Any], metadata: Metadata) -> str:
    """Returns which tensor a model's state has, and a checkpoint has not, or in another shape; empty: none."""
    for name, value in model.items():
        saved = metadata.state_dict_metadata.get(f"model.{name}")
        if not isinstance(value, torch.Tensor):
            continue
        if saved is None:
            return f"this start's model has {name}, the run so far had not"
        if isinstance(saved, TensorStorageMetadata) and saved.size != value.shape:
            return f"the run so far had {name} of shape {tuple(saved.size)}, here it is {tuple(value.shape)}"
    return ""


def _gone(model: Mapping[str, Any], metadata: Metadata) -> list[str]:
    """Returns the names of tensors that a checkpoint has, and a model's state has not."""
    gone = [name.removeprefix("model.") for name, saved in metadata.state_dict_metadata.items()
            if isinstance(saved, TensorStorageMetadata) and name.startswith("model.") and name.removeprefix("model.") not in model]
    return [name for name in gone if not any(name.startswith(f"{kept}.") for kept, value in model.items() if not isinstance(value, torch.Tensor))]


def write_rest(name: str, rest: dict[str, Any]) -> None:
    """Write all values of model and optimizer that are not tensors to a file, and read it back as a start would.

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
