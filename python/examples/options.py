# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line, and the place in the job that the launcher's environment gives."""

import argparse
import os
from dataclasses import dataclass

EPILOG = """\
environment (as torchrun sets it; nothing set: one worker alone):
  RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
  SWELL_GENERATION            which start of this job this is; goes into the log
  SWELL_RESTART_SIGNAL   the signal that asks for a restart, name or number (default USR1)
  SWELL_START_AFTER      do not begin before this file exists (imports are done while waiting)

signals, sent to any one worker or to all:
  restart signal   all workers agree on a step, write a checkpoint and leave with exit code 0
  TERM             the same, but exit code 143: the run has not finished. scancel, a time limit
                   and preemption send TERM and, KillWait or GraceTime later, KILL
Workers leave at the end of the step in flight, or of the one after it.

exit codes: 0 finished, or left for a restart with a checkpoint written; 143 left on TERM with
a checkpoint written; 2 wrong arguments; anything else: a failure. Start it again with the
same arguments, over any number of workers, and it goes on from the last checkpoint.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"train_gpt: {message} (--help lists the options)\n")


def _number(kind, least, what):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not {what}; give {least} or more")
        return value
    return convert


_whole = _number(int, 1, "a whole number")
_whole_or_0 = _number(int, 0, "a whole number")
_seconds = _number(float, 0.0, "a time in seconds")


def parse(arguments=None):
    parser = _Parser(
        prog="train_gpt.py", allow_abbrev=False, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a small GPT on bytes of real text; elastic by checkpoint and restart.")
    add = parser.add_argument
    add("--steps", type=_whole, default=200, help="train this many steps in all (default %(default)s)")
    add("--global-batch", type=_whole, default=12, metavar="N",
        help="samples a step over all workers, whatever their number (default %(default)s)")
    add("--micro-batch", type=_whole, default=8, metavar="N",
        help="most samples one worker computes at once (default %(default)s)")
    add("--seq", type=_whole, default=64, help="bytes a sample (default %(default)s)")
    add("--layers", type=_whole, default=2, help="(default %(default)s)")
    add("--hidden", type=_whole, default=64, help="(default %(default)s)")
    add("--heads", type=_whole, default=4, help="(default %(default)s)")
    add("--lr", type=_number(float, 0.0, "a learning rate"), default=3e-3, help="(default %(default)s)")
    add("--seed", type=_whole_or_0, default=1, help="(default %(default)s)")
    add("--text", metavar="FILE|DIR", help="train on this (default: licences, package documents or "
        "Python's own sources, the first found on this machine)")
    add("--checkpoint-dir", default="gpt-checkpoint", metavar="DIR",
        help="on a file system that all nodes share (default %(default)s)")
    add("--checkpoint-every", type=_whole_or_0, default=100, metavar="N",
        help="also checkpoint every N steps; 0: only at the end and when asked (default %(default)s)")
    add("--log", metavar="FILE", help="append one JSON line a step; lines of steps that are trained "
        "again after a failure are cut off first")
    add("--print-every", type=_whole_or_0, default=10, metavar="N",
        help="one line on stdout every N steps; 0: none (default %(default)s)")
    add("--step-time", type=_seconds, default=0.0, metavar="S",
        help="paced host device, not real speed: compute the step, then wait until the time has passed "
        "in which one device of this pace, needing S seconds for the whole global batch, would have "
        "done this worker's share. The log says so: paced_s (default: off)")
    add("--timeout", type=_number(float, 1.0, "a time in seconds"), default=60.0, metavar="S",
        help="give up when another worker is silent for this long; must exceed the time to write a "
        "checkpoint (default %(default)s)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(default %(default)s)")
    options = parser.parse_args(arguments)

    if options.hidden % options.heads:
        parser.error(f"--hidden {options.hidden} is not a multiple of --heads {options.heads}; "
                     f"give --hidden {options.hidden // options.heads * options.heads or options.heads}"
                     f" or {(options.hidden // options.heads + 1) * options.heads}")
    return options, _place(parser)


@dataclass(frozen=True)
class Place:
    """Which worker this is."""
    rank: int
    local_rank: int
    world: int
    generation: int
    address: str
    port: int


def _place(parser):
    def number(name, least, default=None):
        text = os.environ.get(name, default)
        if text is None:
            parser.error(f"RANK is set but {name} is not; start the workers with swellrun or torchrun")
        if not str(text).isdecimal() or int(text) < least:
            parser.error(f"{name}={text} in the environment is not a whole number from {least}")
        return int(text)

    generation = number("SWELL_GENERATION", 0, 0)
    if "RANK" not in os.environ:
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            parser.error(f"RANK is not set, but this is one of {os.environ['SLURM_STEP_NUM_TASKS']} tasks "
                         "of a Slurm step; start it with swellrun")
        return Place(0, 0, 1, generation, "127.0.0.1", 0)
    place = Place(number("RANK", 0), number("LOCAL_RANK", 0), number("WORLD_SIZE", 1), generation,
                  os.environ.get("MASTER_ADDR", "127.0.0.1"), number("MASTER_PORT", 1))
    if place.rank >= place.world:
        parser.error(f"RANK={place.rank} is not below WORLD_SIZE={place.world}")
    return place
