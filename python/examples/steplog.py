# SPDX-License-Identifier: GPL-2.0-or-later
"""The log: one JSON line a step, in order of steps."""

import json
import os


class StepLog:
    def __init__(self, path, step):
        """Continue the log of a run that is at `step`: lines of later steps are of work that was
        lost and is done again, so they are cut off, as is a line that was never finished.
        self.lost_steps counts them. A run at step 0 only appends."""
        self.lost_steps = 0
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        self._file = open(path, "a+b")
        self._file.seek(0)
        keep, cut = 0, False
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            if step and self._step(line) > step:
                cut = True
                self.lost_steps += 1
            if not cut:
                keep += len(line)
        self._file.truncate(keep)

    @staticmethod
    def _step(line):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            return 0

    def write(self, **fields):
        self._file.write(json.dumps(fields).encode() + b"\n")
        self._file.flush()

    def sync(self):
        """Force the lines to the disk: before a checkpoint that they must not fall behind."""
        os.fsync(self._file.fileno())
