# SPDX-License-Identifier: BSD-3-Clause
"""Room for checkpoints: older ones of this run give way before a save fails, its own or one of the script's."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

__all__ = ["is_out_of_room", "make_room", "save_beside"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PROBE = 1 << 20


def _size(path: str) -> int:
    names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files] if os.path.isdir(path) else [path]
    return sum(os.stat(name).st_blocks * 512 for name in names)


def _free(path: str) -> int:
    found = os.statvfs(os.path.dirname(path))
    return found.f_bavail * found.f_frsize


def _remove(path: str, why: str) -> None:
    """Other workers may do so at the same time."""
    if not os.path.exists(path):
        return
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
    print(f"swell: {why}: the older checkpoint {path} is removed", file=sys.stderr, flush=True)


def make_room(whole: Sequence[str]) -> None:
    """Remove the oldest checkpoints while another one like the newest does not fit; the newest stays. whole: their paths, newest first."""
    try:
        while len(whole) > 1 and _free(whole[0]) < _size(whole[0]):
            _remove(whole[-1], "there is no room for another checkpoint")
            whole = whole[:-1]
    except OSError:     # a file system that cannot say so, or one that is read alone: the save itself shows what is wrong
        pass


def is_out_of_room(error: BaseException, folder: str) -> bool:
    """Whether a save into a folder failed for want of space, or of quota: libraries hide the number of the error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _NO_ROOM:
            return True
        if any(f"os error {number}" in str(seen) or os.strerror(number) in str(seen) for number in _NO_ROOM):
            return True
        seen = seen.__cause__ or seen.__context__
    if not isinstance(error, RuntimeError):     # torch's writer of files
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as found:
        return found.errno in _NO_ROOM
    return False


def save_beside(save: Callable[[], Any], path: str, whole: Callable[[], Sequence[str]], left_out: Callable[[], None] = lambda: None) -> Any:
    """Make a save of the script's, or of its framework, for which the checkpoints of this run may have left no room.

    whole: returns the paths of these, newest first. Where there is no room the older ones give way. Where the newest, which stays, still
    takes the room on the same file system, the save is left out, which is said, and None returned. Else raises what save() raises.
    left_out: called then; a file is removed, but what a folder has of it is the caller's to remove.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    try:
        return save()
    except Exception as error:
        first = error
    held: list[str] = []
    with suppress(OSError):     # of one that cannot be looked at now: what failed is the save
        held = list(whole()) if is_out_of_room(first, folder) else []
    if not held or not _is_on_one_device(held[0], folder):
        raise first
    if len(held) > 1:
        for older in held[1:]:
            _remove(older, f"there is no room for {path}")
        try:
            return save()
        except Exception as error:
            if not is_out_of_room(error, folder):
                raise
    if os.path.isfile(path):
        with suppress(FileNotFoundError):
            os.unlink(path)     # a part of it
    print(f"swell: {path} could not be written, as there is no room beside the checkpoint {held[0]}; training goes on without it", file=sys.stderr, flush=True)
    left_out()
    return None


def _is_on_one_device(path: str, folder: str) -> bool:
    try:
        return os.stat(path).st_dev == os.stat(folder).st_dev
    except OSError:
        return False
