# SPDX-License-Identifier: BSD-3-Clause
"""The table of Lightning's CSV logger over the starts of a run."""

from __future__ import annotations

import csv
import os
import sys
from contextlib import suppress
from typing import Any

from lightning.fabric.loggers import csv_logs

__all__ = ["keep_rows", "take_columns", "trim"]


def keep_rows() -> None:
    """Lightning's CSV logger deletes the rows that it finds in its version's folder: those of the starts before, which are kept."""
    check = csv_logs._ExperimentWriter._check_log_dir_exists
    if hasattr(check, "swell_keeps"):
        return

    def keep(writer: Any) -> None:
        if not os.path.isfile(writer.metrics_file_path):
            check(writer)
    setattr(keep, "swell_keeps", True)
    csv_logs._ExperimentWriter._check_log_dir_exists = keep


def take_columns(writer: Any) -> None:
    """Tell a CSV logger the columns of the file that it continues."""
    if os.path.isfile(writer.metrics_file_path):
        with open(writer.metrics_file_path, newline="") as file:
            writer.metrics_keys = next(csv.reader(file), [])


def trim(writer: Any, steps: int) -> None:
    """The rows of steps that are to be trained again, as after a kill, are no longer in a CSV logger's file."""
    if not os.path.isfile(writer.metrics_file_path):
        return
    with open(writer.metrics_file_path, newline="") as file:
        reader = csv.DictReader(file)
        rows, writer.metrics_keys = [row for row in reader if int(row["step"]) < steps], list(reader.fieldnames or [])
    new = writer.metrics_file_path + ".new"
    try:
        with open(new, "w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=writer.metrics_keys)
            table.writeheader()
            table.writerows(rows)
        os.replace(new, writer.metrics_file_path)
    except OSError as error:        # on a full disk: rows stand there twice then, which ends no training
        print(f"swell: {writer.metrics_file_path} keeps rows of steps that are trained again: {error.strerror or error}", file=sys.stderr, flush=True)
        with suppress(OSError):
            os.unlink(new)
