# SPDX-License-Identifier: BSD-3-Clause
"""Actions of a script behind each of several loops, as behind that of an epoch: a start comes by the loops that are over, and does these again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["Replayed"]


class Replayed:
    """Takes back what is done behind loops that were over before this start, where the checkpoint holds what that had changed: a schedule that is stepped there, or a rate that is set.

    state: things that checkpoints hold, by name. optimizer: whose groups' options are looked at, too.
    """

    def __init__(self, state: Mapping[str, Any], optimizer: Any) -> None:
        self._state, self._optimizer = state, optimizer
        self._ended = self._before = 0      # loops that this start has come by, and those behind which the run so far has done what is done there
        self._kept: tuple[dict[str, Any], list[dict[str, Any]]] | None = None

    def count(self) -> int:
        """Returns behind how many loops the present state has what is done there."""
        return max(self._ended, self._before)

    def restore(self, count: int) -> None:
        """The state of a run is loaded that had come so far."""
        if not self._ended:     # else it is this process's own
            self._before = count

    def begin(self, *, is_over: bool) -> None:
        """A loop begins; is_over: with nothing to train."""
        if self._kept is not None:
            self._take_back(*self._kept)
        if not is_over or self._ended >= self._before:
            self._kept = None
        elif self._kept is None:
            self._kept = copy.deepcopy({name: thing.state_dict() for name, thing in self._state.items()}), copy.deepcopy([_options(group) for group in self._optimizer.param_groups])

    def end(self) -> None:
        """A loop is over."""
        self._ended += 1

    def _take_back(self, states: dict[str, Any], groups: list[dict[str, Any]]) -> None:
        for name, state in copy.deepcopy(states).items():
            self._state[name].load_state_dict(state)
        for group, options in zip(self._optimizer.param_groups, groups):
            for name, value in options.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(name), torch.Tensor):
                    group[name].copy_(value)
                else:
                    group[name] = copy.deepcopy(value)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
