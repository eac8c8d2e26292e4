# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared by the elastic jobs of the tests: where they work, and the log of each step's loss.

A job is a module with main(arguments). TEST_FOLDER: where it works. TEST_STEPS: where it ends.
"""

import errno
import io
import json
import os
import resource
import shutil
import signal
import sys
import time

import torch

GLOBAL_BATCH = int(os.environ.get("TEST_GLOBAL_BATCH", "12"))
SAMPLES = 108           # 9 steps an epoch
# So long lasts a step until there is a file `fast`, so that requests meet a run and not its end.
PACE_S = float(os.environ.get("TEST_PACE", "0.1"))
LATE = 10 if "TEST_PACE" in os.environ else 1       # times as long from the half on: on a busy cluster GPUs may come late


def steps():
    return int(os.environ.get("TEST_STEPS", "60"))


def path(name):
    return os.path.join(os.environ.get("TEST_FOLDER", "."), name)


def log(step, loss, world):
    """One line a step, by rank 0 alone, and the step's number where tests look for it."""
    if int(os.environ.get("RANK", 0)) == 0:
        with open(path("losses"), "a") as file:
            file.write(json.dumps({"step": step, "loss": loss, "world": world,
                                   "generation": int(os.environ.get("SWELL_GENERATION", 0)), "pid": os.getpid()}) + "\n")
        with open(path("step.new"), "w") as file:
            file.write(str(step))
        os.replace(path("step.new"), path("step.0"))
    pace(LATE if 2 * step > steps() else 1)


def begins(step):
    """One line by rank 0 for each step that a callback is told of before it is trained."""
    if int(os.environ.get("RANK", 0)) == 0:
        with open(path("begun"), "a") as file:
            file.write(f"{step}\n")


def fail_with(number):
    """From now on nothing is saved to a disk without this error while there is a file `broken`."""
    def failing(act):
        def call(*arguments, **options):
            if os.path.exists(path("broken")) and not any(isinstance(each, io.BytesIO) for each in arguments):
                raise OSError(number, os.strerror(number))
            return act(*arguments, **options)
        return call
    torch.save, os.fsync, shutil.move = failing(torch.save), failing(os.fsync), failing(shutil.move)


def fail_as_told(arguments):
    """fail_with() the error that an argument names, as EIO."""
    for word in arguments:
        if hasattr(errno, word):
            fail_with(getattr(errno, word))


def cut_as_told(arguments):
    """With `cuts`: while there is a file of that name, a file with tensors loses its end when all of it has been written."""
    if "cuts" not in arguments:
        return
    from torch.distributed.checkpoint import FileSystemWriter

    def cutting(owner, name, folder):
        act = getattr(owner, name)

        def call(self, *given, **options):
            made = act(self, *given, **options)
            if os.path.exists(path("cuts")) and os.environ["RANK"] == "0":
                there = [os.path.join(where, each) for where, _, names in os.walk(folder(self, *given, **options)) for each in names if each.endswith((".distcp", ".safetensors"))]
                os.truncate(there[0], os.path.getsize(there[0]) - 40)
            return made
        setattr(owner, name, call)
    cutting(FileSystemWriter, "finish", lambda self, *_, **__: self.path)
    if "transformers" in sys.modules:
        import transformers
        cutting(transformers.Trainer, "_save", lambda _, output_dir=None, **__: output_dir)


def die_as_told():
    """With a file `dies` of two numbers: rank 0 is killed as it comes to touch the folder of that step's checkpoint for the second number of times, once; what it touches, up to there, goes to `touched`.
    To touch is to open a file for writing, to make a folder, to rename, to remove."""
    if os.environ.get("RANK", "0") != "0" or not os.path.exists(path("dies")):
        return
    with open(path("dies")) as file:
        step, at = map(int, file.read().split())
    touched, name, mine = [], f"step-{step:09d}", os.getpid()       # and not that of a process that writes for it

    def hear(event, arguments):
        if os.getpid() != mine or event not in ("open", "os.mkdir", "os.rename", "os.remove", "shutil.rmtree") or name not in str(arguments[0]) or (event == "open" and not set("wax+") & set(str(arguments[1]))):
            return
        touched.append(f"{event} {os.path.basename(str(arguments[0]))}")
        if len(touched) == at:
            os.rename(path("dies"), path("died"))
            with open(path("touched"), "w") as file:
                file.write("\n".join(touched))
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hear)


def fill():
    """While there is a file `full`, no longer file can be written than the logs of a test: as where the disk is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000 if os.path.exists(path("full")) else limits[1], limits[1]))


def pace(times=1):
    if not os.path.exists(path("fast")):
        time.sleep(PACE_S * times)
    until = time.monotonic() + 1
    while os.path.exists(path("switching")) and time.monotonic() < until:     # the next workers still start
        time.sleep(0.01)


def write_profile(session):
    """Writes the profiler's times of the first worker's steps to `profile`."""
    if int(os.environ.get("RANK", 0)) == 0:
        with open(path("profile"), "w") as file:
            json.dump(session.profiler.profile()._asdict(), file)


def regression():
    """Inputs [SAMPLES, 16] and targets [SAMPLES, 1] that a small network can learn."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, torch.sin(x.sum(1, keepdim=True)))


class Streamed(torch.utils.data.IterableDataset):
    """Samples one after the other, from a place that its state names."""

    def __init__(self, samples):
        self.samples, self.begin, self.at = samples, 0, 0

    def __iter__(self):
        begin, self.begin = self.begin, 0
        for self.at in range(begin + 1, len(self.samples) + 1):
            yield self.samples[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.begin = state["at"]


class StatefulLoader(torch.utils.data.DataLoader):
    """Batches in the dataset's order; its state counts those that were given."""

    given = begin = 0

    def __iter__(self):
        begin, self.begin = self.begin, 0
        for self.given, batch in enumerate(super().__iter__(), 1):
            if self.given > begin:
                yield batch

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.begin = state["given"]


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                               torch.nn.Linear(64, 1))


class Paced(torch.nn.Module):
    """A layer at whose passes a worker waits as long as an accelerator of its own would have computed on so many samples."""

    SAMPLE_S = 0.01     # a sample's forward pass; as much its backward pass

    class _Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            time.sleep(len(x) * Paced.SAMPLE_S)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(len(gradient) * Paced.SAMPLE_S)
            return gradient

    def forward(self, x):
        return Paced._Wait.apply(x)
