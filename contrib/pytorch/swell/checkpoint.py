# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints by torch.distributed.checkpoint: whole or not there, readable at any number of workers.

A folder `step-000000120` is complete once its `.metadata` is there, which is written last and
renamed into place; a kill at any moment leaves the one before.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import (get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-(\d{9})")
_REST = "rest.pt"       # what is the same on all workers, and small


class Checkpoints:
    """The checkpoints of one training run, in one folder that all workers see.

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
        self._saving: Future[Any] | None = None
        self._newest: int | None = None

    def _complete(self) -> list[int]:
        """Steps of the complete checkpoints, newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        steps = [int(match[1]) for match in map(_NAME.fullmatch, names) if match]
        return sorted((step for step in steps if os.path.exists(os.path.join(self._path(step), ".metadata"))), reverse=True)

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step:09d}")

    def _leads(self) -> bool:
        return self.group is None or dist.get_rank(self.group) == 0

    def load(self) -> dict[str, Any] | None:
        """Load the newest complete checkpoint into model and optimizer.

        Returns what save() was given as `rest`; None where there is no checkpoint. Every worker calls
        it at the same time, before any save.
        """
        found: list[int | None] = [None]
        if self._leads():
            os.makedirs(self.folder, exist_ok=True)
            complete = self._complete()
            found = [complete[0] if complete else None]
            self._remove(incomplete=True)
        if self.group is not None:
            dist.broadcast_object_list(found, group=self.group, group_src=0)
        step = self._newest = found[0]
        if step is None:
            return None
        state: dict[str, Any] = {"model": get_model_state_dict(self.model),
                                 "optimizer": get_optimizer_state_dict(self.model, self.optimizer)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # that there is one worker only, and of formats that torch itself wrote
            state_dict_loader.load(state, checkpoint_id=self._path(step), process_group=self.group, no_dist=self.group is None)
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        rest: dict[str, Any] = torch.load(os.path.join(self._path(step), _REST), map_location="cpu", weights_only=True)
        return rest

    def save(self, step: int, rest: dict[str, Any], *, wait: bool) -> None:
        """Save the present state as that of a step; with wait=False while training goes on.

        step: rises from call to call; one that is saved already is left as it is.
        rest: what is the same on all workers; plain values and tensors, to be read with weights_only.
        Every worker calls it after the same step.
        """
        self.finish()
        if step == self._newest:
            return
        path = self._path(step)
        state: dict[str, Any] = {"model": get_model_state_dict(self.model),
                                 "optimizer": get_optimizer_state_dict(self.model, self.optimizer)}
        if self._leads():
            os.makedirs(path, exist_ok=True)
            with open(os.path.join(path, _REST), "wb") as file:
                torch.save(rest, file)
                file.flush()
                os.fsync(file.fileno())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if wait:
                state_dict_saver.save(state, checkpoint_id=path, process_group=self.group, no_dist=self.group is None)
            else:
                saving = state_dict_saver.async_save(state, checkpoint_id=path, process_group=self.group,
                                                     no_dist=self.group is None)
                assert isinstance(saving, Future)
                self._saving = saving
        self._newest = step
        if wait:
            self._saved()

    def finish(self) -> None:
        """Wait for the save that is under way, if any; raises what went wrong with it."""
        saving, self._saving = self._saving, None
        if saving is not None:
            try:
                saving.result()
            except Exception as error:
                raise OSError(f"the checkpoint of step {self._newest} could not be written to {self.folder}: {error}; the one "
                              "before is whole") from error
            self._saved()

    def look(self) -> None:
        """Tidy up after a save that has ended meanwhile. Costs nothing where there is none."""
        if self._saving is not None and self._saving.done():
            self.finish()

    def _saved(self) -> None:
        if self._leads():
            self._remove(incomplete=False)

    def _remove(self, incomplete: bool) -> None:
        """Remove complete checkpoints but the newest few; incomplete ones if nobody can be writing."""
        complete = self._complete()
        gone = complete[self.keep:]
        if incomplete:
            there = [int(match[1]) for match in map(_NAME.fullmatch, os.listdir(self.folder)) if match]
            gone += [step for step in there if step not in complete]
        for step in gone:
            shutil.rmtree(self._path(step), ignore_errors=True)
