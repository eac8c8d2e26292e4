# SPDX-License-Identifier: BSD-3-Clause
"""The weights and the optimizer's values as a start has loaded them, until its loop begins: a script may put others in their place, as each start would do."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["Loaded"]

_SMALL = 1 << 28        # bytes that are copied in any case, in a tenth of a second
_LOOKED_AT = 64         # values of each tensor beside the sum of all
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Loaded:
    """The values as they are now.

    keeps: they can be put back without a checkpoint, for which they are copied to the host. Else only if they are few.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, keeps: bool) -> None:
        self._model, self._optimizer, self._state = model, optimizer, optimizer.state
        self._digests = self._digests_now()
        self._groups = [{name: copy.deepcopy(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        tensors = list(self._tensors())
        self._copies = [each.detach().to("cpu", copy=True) for each in tensors] if keeps or sum(each.numel() * each.itemsize for each in tensors) <= _SMALL else None
        self._values = {parameter: {key: value for key, value in kept.items() if not isinstance(value, torch.Tensor)} for parameter, kept in optimizer.state.items()}

    @property
    def is_reloaded(self) -> bool:
        """Whether the optimizer has loaded a whole state since."""
        return self._optimizer.state is not self._state

    def are_others(self) -> bool:
        """Whether other values stand there now: the same ones that were written again are not."""
        return self._digests != self._digests_now()

    def put_back(self) -> bool:
        """Put the values back, and, where the optimizer has loaded a whole state, its options; returns whether there are copies of them."""
        if self._copies is None:
            return False
        state, groups = self._optimizer.state, [{name: value for name, value in group.items() if name != "params"} for group in self._optimizer.param_groups]
        if self.is_reloaded:        # the tensors themselves stand where live mode has them
            state.clear()
            state.update(self._state)
            groups = self._groups
        with torch.no_grad():
            for there, copied in zip(self._tensors(), self._copies, strict=True):
                there.copy_(copied)
        for parameter, values in self._values.items():
            state[parameter].update(values)
        for group, options in zip(self._optimizer.param_groups, groups, strict=True):
            group.update(options)
        return True

    def _tensors(self) -> Iterator[torch.Tensor]:
        """The values by their places, those of each worker's shard alone."""
        buffers = [buffer for module in self._model.modules() for name, buffer in module.named_buffers(recurse=False) if name not in module._non_persistent_buffers_set]
        kept = [value for parameters in self._optimizer.param_groups for parameter in parameters["params"]
                for _, value in sorted(self._optimizer.state.get(parameter, {}).items()) if isinstance(value, torch.Tensor)]
        for each in (*self._model.parameters(), *buffers, *kept):
            yield getattr(each, "_local_tensor", each)

    def _digests_now(self) -> list[Any]:
        return [_digest(each.detach()) for each in self._tensors()]


def _digest(tensor: torch.Tensor) -> Any:
    """Returns what other values have otherwise: the sum of their bits, and some of them. Takes no memory beside the tensor's.

    A version does not tell: what is written through `.data` has another's.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return tensor._version
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    bits = tensor.view(_INTEGERS[tensor.itemsize])
    step = max(1, tensor.numel() // _LOOKED_AT)
    some = torch.take(bits, torch.arange(0, tensor.numel(), step, device=bits.device)).tolist() if tensor.numel() else []
    return tuple(tensor.shape), int(bits.sum(dtype=torch.int64).item()), some
