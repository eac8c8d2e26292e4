# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints that are either complete or not there.

A checkpoint is written under another name, forced to the disk, then renamed: a kill at any
moment leaves the one before. The step is in the name, so that asking how far the run is needs
no torch.
"""

import os
import re
import sys

KEEP = 2
_NAME = re.compile(r"gpt-(\d+)\.pt")
_UNFINISHED = ".unfinished"


def _all(folder):
    """(step, path) of each checkpoint, newest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [(int(match[1]), os.path.join(folder, match[0]))
             for match in map(_NAME.fullmatch, names) if match]
    return sorted(found, reverse=True)


def latest_step(folder):
    """The step of the newest checkpoint; 0 if there is none."""
    return next((step for step, _ in _all(folder)), 0)


def save(folder, step, state):
    """Write state as the checkpoint of step, and forget all but the newest few. Returns its path."""
    import torch
    path = os.path.join(folder, f"gpt-{step:09d}.pt")
    with open(path + _UNFINISHED, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:   # hides what went wrong: a full disk, a quota
            raise OSError(f"cannot write {path}: {error.__context__ or error}") from error
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + _UNFINISHED, path)
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)         # the name, too
    finally:
        os.close(entry)
    for _, old in _all(folder)[KEEP:]:
        os.unlink(old)
    return path


def load(folder):
    """The state of the newest checkpoint that can be read; None if there is none. For rank 0.

    Damaged ones are put aside once an older one has taken their place, and only then: a run must
    never begin anew unasked."""
    import torch
    os.makedirs(folder, exist_ok=True)      # fails now rather than when the work is done
    damaged = []
    for _, path in _all(folder):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:      # torch raises many types
            damaged.append((path, type(error).__name__))
            continue
        for bad, kind in damaged:
            os.rename(bad, bad + ".damaged")
            sys.stderr.write(f"train_gpt: {bad} is damaged ({kind}): renamed it to .damaged, using {path}\n")
        return state
    if damaged:
        raise SystemExit(f"train_gpt: {damaged[0][0]} is damaged ({damaged[0][1]}) and no older checkpoint can be "
                         "read; give another --checkpoint-dir to begin anew")
    return None


def clear_unfinished(folder):
    """Remove what a killed writer left. Only while no other worker of this job writes."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith("gpt-") and name.endswith(_UNFINISHED):
            os.unlink(os.path.join(folder, name))
