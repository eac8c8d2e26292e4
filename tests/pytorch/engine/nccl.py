# SPDX-License-Identifier: GPL-2.0-or-later
"""Gloo that behaves as NCCL on GPUs where the two differ. Messages: the first one from a worker to another blocks both until they have come to it,
and tags are ignored. Kernels: the first launch of each loads it, which waits for the messages under way (CUDA_MODULE_LOADING=LAZY). Ends: destroy_process_group() waits for all other workers, which are on one node."""

import contextlib
import datetime
import os
import time

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from swell.engine import comm
from swell.engine import messages as sent

PATIENCE = datetime.timedelta(seconds=20)       # a pair that does not meet within it never does


class Work:
    """A message that is under way, for which several may wait."""

    def __init__(self, work):
        self._work, self.is_over = work, False

    def wait(self, *limit):
        if not self.is_over:
            self._work.wait(*limit)
            self.is_over = True


class Loads(TorchDispatchMode):
    """Loads each kernel in its first launch."""

    def __init__(self, messages):
        super().__init__()
        self._messages, self._loaded = messages, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        kernel = f"{func} of {', '.join(str(one.dtype) for one in tensors)}"
        if func.namespace == "aten" and kernel not in self._loaded:
            self._loaded.add(kernel)
            for work in self._messages.under_way:
                try:
                    work.wait(PATIENCE)
                except RuntimeError as error:
                    raise AssertionError(f"loading {kernel} waits for a message, whose other end waits for ever") from error
        return func(*args, **(kwargs or {}))


class Messages:
    """Replaces isend() and irecv() of torch.distributed; for groups on the host they stay gloo's, as beside NCCL."""

    def __init__(self, blocks):
        self._blocks, self._counts = blocks, {}
        self._real = {name: getattr(dist, name) for name in ("isend", "irecv", "new_group")}
        self._met, self._groups, self._on_host, self._made = set(), {}, set(), 0
        self.order = []     # meetings of this worker
        self.senders = {}   # by group and pair: who sent, message by message
        self.under_way = []     # what runs on the GPU until its other end has come

    def new_group(self, *arguments, **options):
        made = self._real["new_group"](*arguments, **options)
        self._made += 1
        self._groups[id(made)] = self._made     # the same on all workers, which make all groups together
        if options.get("backend") == "gloo":
            self._on_host.add(id(made))
        return made

    def isend(self, tensor, peer, group=None, tag=0):
        if id(group) in self._on_host:
            return self._real["isend"](tensor, peer, group=group, tag=tag)
        self._meet(group, dist.get_rank(), peer, "sender")
        return self._launched(self._real["isend"](tensor, peer, group=group))

    def irecv(self, tensor, peer, group=None, tag=0):
        if id(group) in self._on_host:
            return self._real["irecv"](tensor, peer, group=group, tag=tag)
        self._meet(group, peer, dist.get_rank(), "receiver")
        return self._launched(self._real["irecv"](tensor, peer, group=group))

    def _launched(self, work):
        self.under_way = [one for one in self.under_way if not one.is_over]
        self.under_way.append(Work(work))
        return self.under_way[-1]

    def _meet(self, group, sender, receiver, role):
        # NCCL makes the messages of a pair one after the other: where the ends disagree on the next one, both wait for ever.
        self.senders.setdefault((self._groups.get(id(group)), *sorted((sender, receiver))), []).append(sender)
        name = f"group {self._groups.get(id(group), 'of all')}, {sender} to {receiver}"
        if self._blocks:
            self._counts[name] = self._counts.get(name, 0) + 1
            name += f", message {self._counts[name]}"
        if name in self._met:
            return
        self._met.add(name)
        self.order.append(name)
        store = dist.distributed_c10d._get_default_store()
        store.set(f"{name}: {role}", "here")
        other = "receiver" if role == "sender" else "sender"
        try:
            store.wait([f"{name}: {other}"], PATIENCE)
        except (dist.DistStoreError, RuntimeError) as error:
            raise AssertionError(f"the {role} of {name} waits for ever; before it came {self.order[:-1]}") from error


@contextlib.contextmanager
def messages(blocks=False):
    """Messages are as NCCL's within this. blocks: with CUDA_LAUNCH_BLOCKING=1, each ends before its call does."""
    made, loads_on_use, by_messages = Messages(blocks), sent._loads_on_use, comm._add_by_messages
    sent._loads_on_use = lambda _device: True
    comm._add_by_messages = comm._add_by_collectives    # as on a GPU
    try:
        for name in made._real:
            setattr(dist, name, getattr(made, name))
        with Loads(made):
            yield made
    finally:
        sent._loads_on_use, comm._add_by_messages = loads_on_use, by_messages
        for name, real in made._real.items():
            setattr(dist, name, real)


def ends_together(folder):
    """From now on destroy_process_group() of the default group waits for the other workers of the generation, and fails where one does not come."""
    real, generation = dist.destroy_process_group, os.environ["SWELL_GENERATION"]

    def destroy_process_group(group=None):
        nonlocal generation
        if group is None:
            ended = [os.path.join(folder, f"ended.{generation}.{rank}") for rank in range(dist.get_world_size())]
            open(ended[dist.get_rank()], "w").close()
            generation = os.environ["SWELL_GENERATION"]       # a worker that stays has taken its place in the next one
            deadline = time.monotonic() + PATIENCE.total_seconds()
            while not all(map(os.path.exists, ended)):
                if time.monotonic() > deadline:
                    left = [path for path in ended if not os.path.exists(path)]
                    raise AssertionError(f"waits for ever for workers that ended without destroy_process_group(): {left}")
                time.sleep(0.01)
        real(group)
    dist.destroy_process_group = destroy_process_group
