# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers that a step or a collate_fn draws for a worker's part of a batch: another number of workers draws others."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data

from swell._dropout import Draws
from swell._generators import generators, is_same
from swell._own import own_generators, standing
from swell._share import draws_masks, says_what_depends

__all__ = ["Noise", "watched"]

_OF = {"torch": "torch's", "cuda": "torch's", "python": "Python's", "numpy": "numpy's"}
_has_collated: list[bool] = []      # of this process: one collate_fn was given to a loader


class Noise:
    """Says once in a job, of its first start, that what is done between begin() and end() draws random numbers.

    what: its name in the sentence.
    """

    def __init__(self, what: str) -> None:
        self._what, self._is_open, self._before = what, says_what_depends(), dict[str, Any]()
        self._own: list[tuple[Any, Any]] = []       # the script's own generators, and where they stood

    def begin(self) -> None:
        if self._is_open:
            self._before = generators()
            self._own = [(each, standing(each)) for each in own_generators(_at_hand())]

    def end(self, model: torch.nn.Module | None = None, draws: Draws | None = None, *, is_named: bool = False) -> None:
        """model: where it has dropout that is named anyway, torch's numbers are not looked at. draws: takes some of them for masks by sample. is_named: whether other noise is named."""
        if not self._is_open or not self._before:
            return
        now, self._is_open = generators(), False
        own, self._own = [not is_same(place, standing(each)) for each, place in self._own], []
        if draws is not None:
            generator = torch.Generator()
            generator.set_state(self._before["torch"])
            for _ in range(draws.numbers):
                draws.number_from(generator)
            self._before["torch"] = generator.get_state()
            is_named = is_named or draws.has_said
        drawn = {of: True for name, of in _OF.items() if name in self._before and not is_same(self._before[name], now[name])}
        if is_named or model is not None and draws_masks(model):
            drawn.pop("torch's", None)
        if any(own):
            drawn["one of the script's own, which each start makes anew"] = True
        if drawn:
            print(f"swell: {self._what} draws random numbers ({', '.join(drawn)}) for the samples that a worker has, so losses differ within their noise on another number of workers; "
                  "draw them in the dataset's __getitem__(), where each sample has its own", file=sys.stderr, flush=True)


def _at_hand() -> list[Any]:
    """Returns what functions under way have in their variables, the innermost first, and the generators of Python and numpy that there are."""
    numpy: Any = sys.modules.get("numpy")
    kinds = (random.Random, *((numpy.random.Generator, numpy.random.RandomState) if numpy is not None else ()))
    found = [each for each in gc.get_objects() if type(each) in kinds]
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("swell", "torch"):
            found += list(frame.f_locals.values()) + ([each for each in frame.f_globals.values() if isinstance(each, torch.Generator)] if frame.f_locals is not frame.f_globals else [])
        frame = frame.f_back
    return found


class _Collates:
    """A collate_fn whose first batch is looked at, in the first reader alone."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate, self._noise = collate, Noise("collate_fn")

    def __call__(self, samples: Any) -> Any:
        reader = torch.utils.data.get_worker_info()
        if reader is not None and reader.id:
            return self._collate(samples)
        self._noise.begin()
        try:
            return self._collate(samples)
        finally:
            self._noise.end()


def watched(collate: Any) -> Any:
    """Returns a collate_fn that says once whether it draws; the same one where it does not, or where another one was watched."""
    if _has_collated or not says_what_depends() or collate is torch.utils.data.default_collate:
        return collate
    _has_collated.append(True)
    return _Collates(collate)
