# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints by torch.distributed.checkpoint that load under any other plan.

Tensors are named by their layer's number in the model and saved as blocks of the whole; where a stage or a shard begins is
nowhere in them. A folder `step-000000120` is complete once its `.metadata` is there, which is written last and renamed into
place: a kill at any moment leaves the one before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from swell import _identity
from swell._lock import FolderLock
from swell._plain import Unreadable, decoded
from swell._room import make_room
from swell._written import check_written
from swell.checkpoint import complete_steps, is_complete, lock_together, newest_whole, on_all, why_unsaved, write_rest
from swell.engine.arena import Request

__all__ = ["REST", "Checkpoints"]

_NAME = re.compile(r"step-(\d{9})")
REST = "engine.pt"
_OLD_REST = "engine.json"       # of checkpoints that name no run


_Block = tuple[str, tuple[int, ...]]        # name and begin


def _held(requests: Sequence[Request], tensors: Mapping[str, torch.Tensor]) -> dict[_Block, tuple[Request, torch.Tensor]]:
    """The blocks that are held of these tensors."""
    return {(one.name, begin): (one, part) for one in requests for begin, _, part in one.blocks(tensors[one.name].detach())}


def _chunk(block: _Block, part: torch.Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(block[1]), sizes=part.shape)


def _block_of(index: MetadataIndex) -> _Block:
    return index.fqn, tuple(index.offset or ())


class _Saver(DefaultSavePlanner):
    """Writes blocks of tensors; of replicas the first."""

    def __init__(self, requests: Sequence[Request], tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(flatten_state_dict=False)
        self._blocks = _held(requests, tensors)

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([
            WriteItem(index=MetadataIndex(one.name, torch.Size(block[1])), type=WriteItemType.SHARD, tensor_data=TensorWriteData(
                chunk=_chunk(block, part), properties=TensorProperties.create_from_tensor(part), size=torch.Size(one.shape)))
            for block, (one, part) in self._blocks.items()])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self._blocks[_block_of(write_item.index)][1]


class _Loader(DefaultLoadPlanner):
    """Reads this worker's blocks out of whatever blocks were written."""

    def __init__(self, requests: Sequence[Request], tensors: Mapping[str, torch.Tensor], path: str) -> None:
        super().__init__(flatten_state_dict=False)
        self._blocks, self._path = _held(requests, tensors), path

    def create_local_plan(self) -> LoadPlan:
        items = []
        assert self.metadata is not None
        for block, (one, part) in self._blocks.items():
            there = self.metadata.state_dict_metadata.get(one.name)
            if not isinstance(there, TensorStorageMetadata) or tuple(there.size) != one.shape:
                has = f"of shape {tuple(there.size)}" if isinstance(there, TensorStorageMetadata) else "not at all"
                raise ValueError(f"the checkpoint {self._path} has {one.name} {has}, this run has it of shape {one.shape}; begin with another folder")
            items += create_read_items_for_chunk_list(one.name, there, [_chunk(block, part)])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self._blocks[_block_of(index)][1]


class Checkpoints:
    """The checkpoints of one run, in one folder that all workers see.

    keep: complete checkpoints that are kept. group: with a CPU backend; None: one worker alone. lock: this process's, of the folder.
    """

    def __init__(self, lock: FolderLock, group: dist.ProcessGroup | None, keep: int = 2) -> None:
        self.folder, self._group, self._keep, self._lock = lock.folder, group, keep, lock
        self._leads = group is None or dist.get_rank(group) == 0

    def take_folder(self) -> None:
        """These workers write to the folder from now on. Raises InUse on all of them where another run does."""
        if not self._leads:
            self._lock.release()
        lock_together(self._lock, self._group)
        if self._leads:
            self._remove_incomplete()

    def _remove_incomplete(self) -> None:
        """Removes what saves have left that were killed. REQUIRES: the lock, so that nobody is saving."""
        for name in os.listdir(self.folder):
            if not _NAME.fullmatch(name):
                continue
            path = os.path.join(self.folder, name)
            with suppress(OSError):     # as of a file system that is away: it may be whole
                if not is_complete(path):
                    shutil.rmtree(path, ignore_errors=True)

    def path(self, step: int) -> str:
        """Folder of a step's checkpoint."""
        return os.path.join(self.folder, f"step-{step:09d}")

    def complete(self) -> list[int]:
        """Steps of the complete checkpoints, newest first. Raises OSError where one cannot be looked at."""
        return list(complete_steps(self.folder))

    def newest(self) -> int | None:
        """The newest complete one, the same on every worker. Raises OSError on all of them where a newer one cannot be looked at."""
        found: list[int | None] = [None]

        def look() -> None:
            found[0] = next(complete_steps(self.folder), None)
        on_all(self._group, look if self._leads else None)
        if self._group is not None:
            dist.broadcast_object_list(found, group=self._group, group_src=0)
        return found[0]

    def newest_whole(self) -> int | None:
        """As newest(), of those that are not damaged, for a start. Raises ValueError on all workers where all are."""
        def look() -> None:
            newest_whole(self.folder, complete_steps(self.folder), REST, _OLD_REST)
        on_all(self._group, look if self._leads else None)
        return self.newest()

    def save(self, step: int, requests: Sequence[Request], tensors: Mapping[str, torch.Tensor], rest: Mapping[str, Any]) -> None:
        """Save what this worker alone is to write; every worker calls it after the same step. rest: small, plain, the same on all.

        Raises OSError or Unreadable on all of them where it cannot be written, or read back; the one before is whole then.
        """
        before = self.newest()
        if before == step:
            return
        path = self.path(step)

        def write() -> None:
            shutil.rmtree(path, ignore_errors=True)     # left by one that was killed
            with suppress(OSError):     # of one that cannot be looked at now: the save shows whether there is room
                make_room([self.path(each) for each in self.complete()])
            write_rest(os.path.join(path, REST), {**rest, "identity": _identity.record(step)})
        try:
            on_all(self._group, write if self._leads else None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # that there is one worker only
                state_dict_saver.save({}, checkpoint_id=path, planner=_Saver(requests, tensors), process_group=self._group,
                                      no_dist=self._group is None)
            on_all(self._group, (lambda: check_written(path)) if self._leads else None)
        except (Exception, CheckpointException) as error:
            if self._leads:
                shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, Unreadable):
                raise
            raise OSError(why_unsaved(self.folder, step, before, error)) from error
        if self._leads:
            try:
                for old in self.complete()[self._keep:]:
                    shutil.rmtree(self.path(old), ignore_errors=True)
            except OSError as error:    # of this worker alone, and the checkpoint is whole
                print(f"swell: older checkpoints in {self.folder} cannot be removed: {error.strerror or error}", file=sys.stderr, flush=True)

    def load(self, step: int, requests: Sequence[Request], tensors: Mapping[str, torch.Tensor], check: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        """Fill this worker's tensors; returns what save() was given as rest. check: raises, before that, where it is of another training."""
        path, rest = self.path(step), dict[str, Any]()

        def read() -> None:
            name = os.path.join(path, REST)
            if os.path.exists(name):
                rest.update(decoded(torch.load(name, map_location="cpu", weights_only=True)))
            else:
                with open(os.path.join(path, _OLD_REST)) as file:
                    rest.update(json.load(file))
        on_all(self._group, read)
        check(rest)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state_dict_loader.load(dict(tensors), checkpoint_id=path, planner=_Loader(requests, tensors, path), process_group=self._group,
                                   no_dist=self._group is None)
        if self._leads:
            print("swell: " + _identity.continues(rest.pop("identity", None), step, path), file=sys.stderr, flush=True)
        return rest
