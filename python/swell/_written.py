# SPDX-License-Identifier: BSD-3-Clause
"""Whether a checkpoint that was just written stands whole in its files: their sizes and ends, not their numbers, so that it costs little."""

from __future__ import annotations

import json
import os
import pickle
import re

from torch.distributed.checkpoint.filesystem import FileSystemReader

__all__ = ["CutOff", "check_written", "is_cut_off"]

_ZIP_BEGIN, _ZIP_END = b"PK\3\4", b"PK\5\6"
_END_BYTES = 22         # of the record at a zip file's end; a comment of up to 64 KiB may follow
_MOST_HEADER = 100 << 20        # bytes; what safetensors accepts


# Files that frameworks and this package write. Others in the folder are the script's, in formats of its own.
_WRITTEN = re.compile(r"(model|pytorch_model|adapter_model|optimizer|scheduler|scaler|training_args|rng_state|rest|engine|swell|common)([-_.0-9].*)?\.(safetensors|bin|pt|pth|ckpt)")


class CutOff(OSError):
    """A file is shorter than what was written to it."""

    def __str__(self) -> str:
        return str(self.args[0])


def is_cut_off(name: str) -> bool:
    """Whether a file that torch.save() has written ends before its end. Raises OSError where it cannot be read now."""
    with open(name, "rb") as file:      # open() makes NFS ask the server
        head = file.read(4)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES - (1 << 16)))
        tail = file.read()
    end = tail.rfind(_ZIP_END)
    if head != _ZIP_BEGIN:       # of another format, unless it was never written out
        return not any(head) or _ZIP_BEGIN.startswith(head)
    return end < 0 or len(tail) - end < _END_BYTES


def check_written(path: str) -> None:
    """Raises CutOff where a file of a checkpoint, or the one file that it is, is cut off.

    Looks at files that torch.save(), torch.distributed.checkpoint and safetensors wrote, in a folder by their names. A file that cannot be
    read now is left alone: its write has reported no error, and it may be whole.
    """
    if os.path.isfile(path):
        return _check_file(path, by_name=False)
    for where, _, names in os.walk(path):
        for name in sorted(names):
            _check_file(os.path.join(where, name), by_name=True)


def _check_file(name: str, *, by_name: bool) -> None:
    base = os.path.basename(name)
    try:
        if base == ".metadata":
            why = _why_not_items(os.path.dirname(name)) if any(each.endswith(".distcp") for each in os.listdir(os.path.dirname(name))) else ""
        elif by_name and not _WRITTEN.fullmatch(base):
            why = ""
        elif base.endswith(".safetensors"):
            why = _why_not_safetensors(name)
        else:
            why = f"{base} is cut off" if is_cut_off(name) else ""
    except (OSError, pickle.UnpicklingError):
        return
    except EOFError:
        why = f"{base} is cut off"
    if why:
        raise CutOff(why)


def _why_not_items(folder: str) -> str:
    """Returns which file of torch.distributed.checkpoint's is shorter than its items, or lacks the beginning of the first or the end of the last."""
    items: dict[str, list[tuple[int, int]]] = {}
    for place in (FileSystemReader(folder).read_metadata().storage_data or {}).values():
        items.setdefault(place.relative_path, []).append((place.offset, place.length))
    for name, places in sorted(items.items()):
        with open(os.path.join(folder, name), "rb") as file:
            size, (offset, length) = os.fstat(file.fileno()).st_size, max(places)
            if offset + length > size:
                return f"{name} has {size} bytes, and was written to byte {offset + length}"
            for offset, length in {min(places), max(places)}:
                file.seek(offset)
                head = file.read(4)
                file.seek(max(offset, offset + length - _END_BYTES))
                if (head == _ZIP_BEGIN) != (file.read(4) == _ZIP_END) or (length and not any(head)):
                    return f"{name} is not whole from byte {offset} on"
    return ""


def _why_not_safetensors(name: str) -> str:
    base = os.path.basename(name)
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _MOST_HEADER):
            return f"{base} is cut off"
        try:
            header = json.loads(file.read(length))
            end = 8 + length + max((each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{base} has no header"
    return f"{base} has {size} of {end} bytes" if size < end else ""
