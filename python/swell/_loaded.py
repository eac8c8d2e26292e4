# SPDX-License-Identifier: BSD-3-Clause
"""The weights and the optimizer's values as a start has loaded them, until its loop begins: a script may put others in their place, as each start would do."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

__all__ = ["Loaded"]

_SMALL = 1 << 28        # bytes that are copied in any case, in a tenth of a second
_LOOKED_AT = 64         # values of each tensor beside the sum of all
_SUMMED = 1 << 22       # values that are added at once
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Loaded:
    """The values as they are now.

    is_live: they are to be put back without a checkpoint, for which they are copied to the host if they are few, or `keeps`.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, is_live: bool, keeps: bool) -> None:
        self._model, self._optimizer, self._state = model, optimizer, optimizer.state
        self._digests = self._digests_now()
        self._groups = [{name: copy.deepcopy(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        tensors = list(self._tensors())
        self._copies = [each.detach().to("cpu", copy=True) for each in tensors] if is_live and (keeps or sum(each.numel() * each.itemsize for each in tensors) <= _SMALL) else None
        self._values = {parameter: {key: value for key, value in kept.items() if not isinstance(value, torch.Tensor)} for parameter, kept in optimizer.state.items() if isinstance(kept, Mapping)}

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
        theirs = list(self._tensors())
        if [each.shape for each in theirs] != [each.shape for each in self._copies]:
            return False
        with torch.no_grad():
            for there, copied in zip(theirs, self._copies, strict=True):
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
                for _, value in sorted(self._optimizer.state.get(parameter, {}).items(), key=lambda item: str(item[0])) if isinstance(value, torch.Tensor)]
        for each in (*self._model.parameters(), *buffers, *kept):
            yield getattr(each, "_local_tensor", each)

    def _digests_now(self) -> list[Any]:
        return [_digest(each.detach()) for each in self._tensors()]


def _digest(tensor: torch.Tensor) -> Any:
    """Returns what other values have otherwise: the sum of their bits, and some of them. Takes little memory beside a dense tensor's.

    A version does not tell: what is written through `.data` has another's.
    """
    if tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta":
        with suppress(RuntimeError, NotImplementedError, TypeError):        # a kind of tensor that shows no bits
            return _digest_of_bits(tensor.resolve_conj().resolve_neg())
    return None if tensor.is_inference() else tensor._version


def _digest_of_bits(tensor: torch.Tensor) -> Any:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    # In the order of memory, in which a dense tensor needs no copy to be one list.
    strides: tuple[int, ...] = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda at: -strides[at])
    bits = tensor.permute(order).reshape(-1).view(_INTEGERS[tensor.itemsize])
    some = bits[::max(1, bits.numel() // _LOOKED_AT)].tolist()
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for part in torch.split(bits, _SUMMED):        # each is widened to 64 bits for its sum
        total += part.sum(dtype=torch.int64)
    return tuple(tensor.shape), int(total.item()), some
