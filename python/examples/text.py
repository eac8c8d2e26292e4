# SPDX-License-Identifier: GPL-2.0-or-later
"""Real text to train on, and which pieces of it make up a step."""

import hashlib
import os
import random
import sysconfig

MAX_BYTES = 1 << 20
MIN_BYTES = 64 << 10      # less than this is too little to learn from; look further


def _files(root, wanted):
    """Regular files below root that are wanted, in an order that does not depend on the disk."""
    if os.path.isfile(root):
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if wanted(name) and os.path.isfile(path) and not os.path.islink(path):
                yield path


def _read(root, wanted):
    """Up to MAX_BYTES from the files below root."""
    parts, left = [], MAX_BYTES
    for path in _files(root, wanted):
        try:
            with open(path, "rb") as file:
                part = file.read(left)
        except OSError:
            continue
        if b"\0" in part:       # not a text
            continue
        parts.append(part)
        left -= len(part)
        if left <= 0:
            break
    return b"".join(parts)


def _is_text(name):
    return os.path.splitext(name)[1].lower() in ("", ".txt", ".md", ".rst", ".py", ".tex", ".html")


def load(where, seq):
    """Bytes to train on: from where (a file or folder) if given, else the first good place here.

    Raises SystemExit with one line that names what was looked for."""
    if where:
        data = _read(where, lambda name: True if os.path.isfile(where) else _is_text(name))
        if len(data) <= seq:
            raise SystemExit(f"train_gpt: --text {where}: {len(data)} bytes of text found, --seq {seq} needs "
                             f"{seq + 1} or more; give a text file, or a folder of text files")
        return data
    places = [("/usr/share/common-licenses", _is_text),
              ("/usr/share/doc", lambda name: name == "copyright" or name.endswith(".txt")),
              (sysconfig.get_path("stdlib"), lambda name: name.endswith(".py"))]
    for root, wanted in places:
        data = _read(root, wanted)
        if len(data) >= max(MIN_BYTES, seq + 1):
            return data
    raise SystemExit("train_gpt: no text to train on: looked for " + ", ".join(
        root for root, _ in places) + f", none with {max(MIN_BYTES, seq + 1)} bytes; give --text FILE|DIR")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def samples(seed, step, count, places):
    """Where the samples of a step begin: count numbers below places.

    Depends on seed and step alone, so that every world size trains on the same global batch."""
    draw = random.Random(f"{seed} {step}")
    return [draw.randrange(places) for _ in range(count)]


def share(rank, world, count):
    """The contiguous part of count samples that rank computes; empty where there are too few."""
    return range(rank * count // world, (rank + 1) * count // world)
