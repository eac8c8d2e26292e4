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
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"gpt-{step:09d}.pt")
    with open(path + _UNFINISHED, "wb") as file:
        torch.save(state, file)
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
    """The state of the newest checkpoint that can be read; None if there is none."""
    import torch
    found = _all(folder)
    for _, path in found:
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:      # a damaged file: torch raises many types
            reason = str(error).split("\n")[0]
            sys.stderr.write(f"train_gpt: {path} cannot be read ({reason}); trying the one before it\n")
    if found:
        raise SystemExit(f"train_gpt: no checkpoint in {folder} can be read; "
                         "give another --checkpoint-dir to begin anew")
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
