# SPDX-License-Identifier: BSD-3-Clause
"""Losses that are a mean over a number of values which does not go with the samples of a pass, as with a mask: another number of workers makes other passes."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Divided"]

_PASSES = 64        # of a start that are looked at
_MOST = 200         # functions that are looked at
_MEAN = 1           # of torch's reductions
_PASSED_ON = ("MulBackward1", "AddBackward1", "SubBackward1",      # with a number, as within torch's own losses
              "ToCopyBackward0", "AliasBackward0", "ViewBackward0", "SqueezeBackward0", "UnsqueezeBackward0", "CloneBackward0", "NegBackward0", "AddBackward0", "SubBackward0", "MulBackward0",
              "_DDPSinkBackward")


class Divided:
    """Compares the first passes of a start by the numbers of values that their losses are means over: for each sample, these are alike in a mean over samples."""

    def __init__(self) -> None:
        self._passes, self._first = 0, dict[tuple[int, str], tuple[int, list[float]]]()     # by what made the loss

    def why(self, loss: torch.Tensor, samples: int, at: int = 0) -> str:
        """Returns why the losses of passes so far are not means over their samples; empty: nothing is known to speak against it. Reads a few values of a GPU.

        at: the number of the loss among those of a step that has several.
        """
        if self._passes >= _PASSES or samples < 2:      # a sample alone may be divided by what is its own
            return ""
        self._passes += 1
        counts, made, chooses = _counts(loss)
        if chooses:
            return ("the loss is of some samples of a pass that are chosen by what the others are, as the largest losses of a batch: another number of workers makes other passes; "
                    "choose by what a sample is by itself")
        before, others = self._first.setdefault((at, made), (samples, counts))
        for now, was in zip(counts, others):
            if now != was and abs(now * before - was * samples) > 1e-6 * abs(was * samples):       # a penalty of the weights has as many in each
                return (f"the loss is divided by a number that does not go with the samples of a pass, such as that of a mask or of padded lengths ({was:g} for {before} samples, then {now:g} for {samples}), "
                        "so that it depends on how samples are divided: give the mean over the samples of what each one's is by itself, divided by a number that does not change")
        return ""


def _counts(loss: torch.Tensor) -> tuple[list[float], str, bool]:
    """Returns the numbers of values that a loss is made of means over, as the functions that made it say, the names of these, and whether one is over values that are chosen from those of all samples."""
    chooses, names = False, list[str]()
    found, open_, looked = [], [loss.grad_fn], 0
    while open_ and looked < _MOST:
        made: Any = open_.pop()
        looked += 1
        if made is None:
            continue
        name, before = made.name().rpartition(".")[2], [each for each, _ in made.next_functions]
        names.append(name)
        if name in _PASSED_ON:
            open_ += before
        elif name == "DivBackward0":
            divisor = made._saved_other if len(before) == 2 and before[1] is None else None
            if isinstance(divisor, torch.Tensor) and divisor.numel() == 1 and _is_sum(before[0]):
                found.append(float(divisor))
            else:
                open_.append(before[0])
        elif name.startswith("MeanBackward") and made._saved_self_sym_numel > 1:
            found.append(float(made._saved_self_sym_numel))
            chooses = chooses or _chooses(before[0])
        elif name.startswith("MeanBackward"):
            open_ += before
        elif getattr(made, "_saved_reduction", None) == _MEAN:
            found.append(_targets(made) if hasattr(made, "_saved_ignore_index") else float(made._saved_self.numel()))
    return found, " ".join(names), chooses


def _targets(made: Any) -> float:
    """Returns the number of targets that a loss over classes is a mean over, or the weights of their classes."""
    is_one = made._saved_target != made._saved_ignore_index
    return float(is_one.sum() if made._saved_weight is None else made._saved_weight[made._saved_target[is_one]].sum())


def _chooses(made: Any) -> bool:
    """Whether a function takes the largest of values, or orders them, over all samples."""
    for _ in range(_MOST):
        if made is None:
            return False
        name = made.name().rpartition(".")[2]
        if name in ("TopkBackward0", "SortBackward0", "SortBackward1"):
            return bool(len(made._saved_self_sym_sizes) == 1 or made._saved_dim == 0)
        if name not in _PASSED_ON and name not in ("SliceBackward0", "SelectBackward0", "IndexBackward0"):
            return False
        made = next((each for each, _ in made.next_functions if each is not None), None)
    return False


def _is_sum(made: Any) -> bool:
    for _ in range(_MOST):
        if made is None:
            return False
        name = made.name().rpartition(".")[2]
        if name not in _PASSED_ON:
            return bool(name.startswith("SumBackward"))
        made = next((each for each, _ in made.next_functions if each is not None), None)
    return False
