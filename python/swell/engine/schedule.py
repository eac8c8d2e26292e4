# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline schedules as data: for each stage the order of its passes. The rules and the text are those of src/core/schedule (docs/schedules.md)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from swell._counted import counted

__all__ = ["Pass", "Schedule", "check", "parse", "read", "splits_weights", "to_text"]

MAX_STAGES, MAX_CHUNKS, MAX_MICRO_BATCHES = 1024, 1024, 1 << 16
MAX_PASSES = 2 << 20        # of all stages, where groups repeat
MAX_DEPTH = 16              # of brackets
MAX_PERIOD = 128            # longest group that to_text() looks for


@dataclass(frozen=True)
class Pass:
    """One pass of a micro-batch through a chunk of a stage. Its messages follow from the plan.

    weights: the gradients of the weights alone; the backward pass of a schedule that has such passes makes those of the inputs.
    """

    backward: bool
    micro_batch: int
    chunk: int = 0
    weights: bool = False

    @property
    def letter(self) -> str:
        return "W" if self.weights else "B" if self.backward else "F"

    def __str__(self) -> str:
        return f"{self.letter} of chunk {self.chunk}, micro-batch {self.micro_batch}"


Schedule = Sequence[Sequence[Pass]]


def splits_weights(schedule: Schedule) -> bool:
    """Whether weight gradients are passes of their own."""
    return any(one.weights for passes in schedule for one in passes)


def read(text: str) -> list[list[Pass]]:
    """Reads a schedule's text, or the file of that name."""
    if not os.path.isfile(text):
        if re.fullmatch(r"[a-z][\w. /-]*", text):
            raise ValueError(f"no schedule is called \"{text}\", and no file; use 1f1b, gpipe, interleaved, zero-bubble, memory-minimised, a text such as "
                             "F*3(FB)*5B*3, or the name of a file with one")
        return parse(text)
    try:
        with open(text, encoding="utf-8") as file:
            return parse(file.read())
    except (OSError, ValueError) as error:
        raise ValueError(f"{text}: {error}") from None


def parse(text: str) -> list[list[Pass]]:
    """Reads a schedule: a line for each stage, a letter for each pass (F, B, W), the number of its chunk behind it, `*N` behind what repeats.

    Chunks and micro-batches are counted. Raises ValueError with the line, or with what check() finds.
    """
    schedule: list[list[Pass]] = []
    left = MAX_PASSES
    for number, line in enumerate(text.split("\n"), 1):
        for stage in line.split("#")[0].split(";"):
            if not stage.strip():
                continue
            try:
                names = _names(stage, left)
            except ValueError as error:
                raise ValueError(f"line {number} of the schedule: {error}") from None
            if len(schedule) == MAX_STAGES:
                raise ValueError(f"the schedule has more than {MAX_STAGES} stages")
            left -= len(names)
            schedule.append(_numbered(names))
    if not schedule:
        raise ValueError("the schedule is empty; give each stage a line like F*3(FB)*5B*3")
    _check(schedule, *shape_of(schedule)[1:])
    return schedule


def _names(stage: str, limit: int) -> list[str]:
    """The passes of one line, as letter and chunk."""
    open_groups: list[list[str]] = [[]]
    at = begin = 0      # begin: of the last item of the innermost group

    def wrong(what: str) -> ValueError:
        return ValueError(f"column {at + 1}: {what}; a stage reads like F*3(FB)*5B1*3")

    tokens = re.compile(r"\s*(?:(?P<one>[FBW]\d{0,5})|(?P<open>\()|(?P<close>\))|\*\s*(?P<times>\d{1,6}))")
    repeatable = False
    while stage[at:].strip():
        found = tokens.match(stage, at)
        if found is None:
            raise wrong(f"{stage[at:].strip()[0]!r} is not F, B, W, ( or )" if stage[at:].strip()[0] != "*" else "behind * a number is needed")
        now = open_groups[-1]
        if found["one"]:
            if int(found["one"][1:] or 0) > 1023:
                raise wrong("a chunk is not 0 to 1023")
            begin = len(now)
            now.append(found["one"][0] + (str(int(found["one"][1:])) if int(found["one"][1:] or 0) else ""))
        elif found["open"]:
            if len(open_groups) > MAX_DEPTH:
                raise wrong("more brackets within brackets than 16")
            open_groups.append([])
        elif found["close"]:
            if len(open_groups) == 1:
                raise wrong("a ) without its (")
            inner = open_groups.pop()
            begin = len(open_groups[-1])
            open_groups[-1].extend(inner)
        else:
            times = int(found["times"])
            if not repeatable or not 1 <= times <= 65536:
                raise wrong("behind * a number from 1 to 65536 is needed" if repeatable else "a * stands behind nothing")
            if (len(now) - begin) * times > limit:
                raise ValueError(f"the schedule has more than {counted(MAX_PASSES, 'operation')}")
            now.extend(now[begin:] * (times - 1))
        if sum(map(len, open_groups)) > limit:
            raise ValueError(f"the schedule has more than {counted(MAX_PASSES, 'operation')}")
        repeatable = not (found["open"] or found["times"])
        at = found.end()
    if len(open_groups) > 1:
        raise wrong("a ( without its )")
    return open_groups[0]


def _numbered(names: list[str]) -> list[Pass]:
    """Micro-batches rise, for each kind and chunk."""
    count: Counter[str] = Counter()
    passes = []
    for name in names:
        passes.append(Pass(name[0] != "F", count[name], int(name[1:] or 0), name[0] == "W"))
        count[name] += 1
    return passes


def to_text(schedule: Schedule) -> str:
    """Writes a schedule as parse() reads it, and as the core writes it."""
    return "".join(_shortened([one.letter + (str(one.chunk) if one.chunk else "") for one in passes]) + "\n" for passes in schedule)


def _shortened(items: list[str]) -> str:
    """Repeats become groups, then repeats of these."""
    for _ in range(MAX_DEPTH - 1):
        before, period = len(items), 1
        while period <= MAX_PERIOD and 2 * period <= len(items):
            items = _folded(items, period)
            period += 1
        if len(items) == before:
            break
    return "".join(items)


def _folded(items: list[str], period: int) -> list[str]:
    kept: list[str] = []
    at = 0
    while at < len(items):
        piece, times = items[at:at + period], 1
        while len(piece) == period and items[at + times * period:at + (times + 1) * period] == piece:
            times += 1
        text = "".join(piece)
        group = f"{text}*{times}" if period == 1 and not set("*(") & set(text) else f"({text})*{times}"
        if times > 1 and len(group) < len(text) * times:
            kept.append(group)
            at += times * period
        else:
            kept.append(items[at])
            at += 1
    return kept


def check(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> None:
    """Raises ValueError unless each stage makes each pass once, micro-batches rising, and none waits for ever: the rules of the core.

    Gradients are summed in one order so.
    """
    its = shape_of(schedule)
    if its != (stages, chunks, micro_batches):
        raise ValueError(f"the schedule is for {counted(its[0], 'stage')} of {counted(its[1], 'chunk')} and {counted(its[2], 'micro-batch')}, the plan has {stages} of {chunks} and "
                         f"{micro_batches}; use a schedule of this plan")
    _check(schedule, chunks, micro_batches)


def shape_of(schedule: Schedule) -> tuple[int, int, int]:
    """Returns the numbers of stages, chunks and micro-batches. The latter two are one more than the highest index in the schedule."""
    return (len(schedule), max((one.chunk for passes in schedule for one in passes), default=0) + 1,
            max((one.micro_batch for passes in schedule for one in passes), default=0) + 1)


def check_shape(stages: int, chunks: int, micro_batches: int) -> None:
    """Raises ValueError where no schedule is of this shape."""
    for count, most, what in ((stages, MAX_STAGES, "stages"), (chunks, MAX_CHUNKS, "chunks a stage"), (micro_batches, MAX_MICRO_BATCHES, "micro-batches")):
        if not 1 <= count <= most:
            raise ValueError(f"a schedule of {count} {what}; 1 to {most} are possible")
    if 3 * stages * chunks * micro_batches > MAX_PASSES:
        raise ValueError(f"{counted(stages, 'stage')} of {counted(chunks, 'chunk')} and {counted(micro_batches, 'micro-batch')} make {counted(3 * stages * chunks * micro_batches, 'operation')}; at most "
                         f"{MAX_PASSES} are possible, so use fewer chunks or micro-batches")


def _check(schedule: Schedule, chunks: int, micro_batches: int) -> None:
    check_shape(len(schedule), chunks, micro_batches)
    splits = splits_weights(schedule)
    for stage, passes in enumerate(schedule):
        _check_order(stage, passes, micro_batches, chunks, splits)
    _check_ends(schedule, chunks)


def _check_order(stage: int, passes: Sequence[Pass], micro_batches: int, chunks: int, splits: bool) -> None:
    due: Counter[tuple[str, int]] = Counter()
    for at, one in enumerate(passes):
        if not (0 <= one.chunk < chunks and 0 <= one.micro_batch < micro_batches):
            raise ValueError(f"stage {stage}: {one} is not a pass of {counted(chunks, 'chunk')} and {counted(micro_batches, 'micro-batch')}")
        now = due[one.letter, one.chunk]
        if one.micro_batch < now:
            raise ValueError(f"stage {stage}: the order repeats {one}; each pass is made once")
        if one.micro_batch > now:
            skipped = Pass(one.backward, now, one.chunk, one.weights)
            if skipped in passes[at:]:
                raise ValueError(f"stage {stage}: {one} stands before micro-batch {now}; the micro-batches of a chunk must rise")
            raise ValueError(f"stage {stage}: the order lacks {skipped}; each pass is made once")
        first = "B" if one.weights else "F"
        if one.backward and due[first, one.chunk] <= one.micro_batch:
            raise ValueError(f"stage {stage}: {one} stands before its {first}; put it behind")
        due[one.letter, one.chunk] += 1
    for letter in "FBW" if splits else "FB":
        for chunk in range(chunks):
            if due[letter, chunk] < micro_batches:
                missing = Pass(letter != "F", due[letter, chunk], chunk, letter == "W")
                raise ValueError(f"stage {stage}: the order lacks {missing}; each pass is made once"
                                 + (", and W by all stages or by none" if letter == "W" else ""))


def _check_ends(schedule: Schedule, chunks: int) -> None:
    """Raises ValueError where a stage waits for ever. REQUIRES: each order is right by itself."""
    stages = len(schedule)
    done: set[tuple[int, Pass]] = set()
    at = [0] * stages

    def need(stage: int, one: Pass) -> tuple[int, Pass] | None:
        """Returns the stage and the pass whose output `one` needs from another chunk, which its own stage cannot make beforehand."""
        step = 1 if one.backward else -1
        if one.weights:
            return None
        if 0 <= stage + step < stages:
            return stage + step, one
        other = one.chunk + step
        return (0 if one.backward else stages - 1, Pass(one.backward, one.micro_batch, other)) if 0 <= other < chunks else None

    moved = True
    while moved:
        moved = False
        for stage, passes in enumerate(schedule):
            while at[stage] < len(passes):
                wanted = need(stage, passes[at[stage]])
                if wanted is not None and wanted not in done:
                    break
                done.add((stage, passes[at[stage]]))
                at[stage] += 1
                moved = True
    for stage, passes in enumerate(schedule):
        if at[stage] < len(passes):
            wanted = need(stage, passes[at[stage]])
            assert wanted is not None
            raise ValueError(f"the schedule deadlocks: stage {stage} waits at its operation {at[stage]}, {passes[at[stage]]}, for "
                             f"{wanted[1]} on stage {wanted[0]}, which never comes; move that operation forward")
