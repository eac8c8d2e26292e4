# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a step, read where it is used: what Engine(late_loss=True) returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LateLoss"]


class LateLoss:
    """A number that stands on the device until it is used; the first use waits for the step. Works like the float that it becomes in arithmetic,
    comparisons, formats and pickles; float() makes it one, as json.dumps() needs."""

    def __init__(self, value: torch.Tensor) -> None:
        self._tensor: torch.Tensor | None = value
        self._value = 0.0

    def __float__(self) -> float:
        if self._tensor is not None:
            self._value, self._tensor = float(self._tensor), None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)


def _as_float(name: str) -> Callable[..., Any]:
    def call(self: LateLoss, *others: Any) -> Any:
        return getattr(float(self), name)(*(float(one) if isinstance(one, LateLoss) else one for one in others))
    call.__name__ = name
    return call


for _name in ("add radd sub rsub mul rmul truediv rtruediv pow rpow mod rmod floordiv rfloordiv neg pos abs round trunc int bool lt le gt ge eq ne hash "
              "format repr str").split():
    setattr(LateLoss, f"__{_name}__", _as_float(f"__{_name}__"))
