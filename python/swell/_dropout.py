# SPDX-License-Identifier: BSD-3-Clause
"""Dropout masks that do not depend on the number of workers: drawn by seed, step, sample in the global batch, module and number of the module's call."""

from __future__ import annotations

import copyreg
import hashlib
import sys
from typing import Any

import torch
from torch import nn
from torch._jit_internal import is_scripting

from swell._identity import bare

__all__ = ["Draws", "draws_by_sample", "is_compiled"]

_SMALL = 1 << 16    # maximum values of a sample for masks of several samples at once; for more, a generator draws the mask of each sample
_AT_ONCE = {"cpu": 1 << 16}     # values computed at once; each takes 24 bytes
_MOST_AT_ONCE = 1 << 22     # on a GPU
_LOW = 0xFFFFFFFF
_OTHERS = ", so that another number of workers draws other masks"


class Draws:
    """Draws the masks of a model's nn.Dropout modules, whose classes are replaced by those that ask this object for masks.

    torch draws the mask of a module that is called outside of a pass, within torch.compile() or a CUDA graph's capture, or with a tensor whose
    rows are not, or may not be, the samples of the pass.
    """

    now: Draws | None = None        # the object whose pass runs

    def __init__(self, model: nn.Module, seed: int, *, must: bool = False) -> None:
        """must: raise if the mask of a recomputed call is not known, instead of drawing one by torch."""
        self._seed, self._step, self._samples, self._must = seed, 0, range(0), must
        self._calls: dict[str, int] = {}    # calls of each module in this pass
        self.numbers = 0    # how many numbers this pass took from torch's generator by number_from()
        self._drawn: dict[tuple[str, int], tuple[range, int]] = {}      # calls of this step: samples and number of each, by module and the number that torch's generator gave
        self._has_said = False
        self._generators: dict[torch.device, torch.Generator] = {}
        for name, module in model.named_modules():
            if type(module) in _KINDS:
                module.__class__ = _KINDS[type(module)]
                vars(module).update(swell_name=bare(f"{name}.").removesuffix("."))      # without the prefixes of wrappers

    def begin(self, step: int, samples: range) -> None:
        """Begins a pass over these samples of the global batch of a step."""
        if step != self._step:
            self._drawn.clear()     # passes of one step may be recomputed by one backward pass
        self._step, self._samples = step, samples
        self._calls.clear()
        self.numbers = 0
        Draws.now = self

    def end(self) -> None:
        """Ends the pass. torch draws the masks of calls after it."""
        if Draws.now is self:
            Draws.now = None

    def kept(self, module: Any, value: torch.Tensor, by_channel: bool) -> torch.Tensor | None:
        """Returns the mask of a call; None if it is not known which rows of the tensor belong to which samples."""
        shape = value.shape[:2] + (1,) * (value.dim() - 2) if by_channel else value.shape
        if torch._C._current_graph_task_id() < 0:
            if not self._has_rows_of(self._samples, module, value):
                return None
            call = self._called(module)
        else:       # a part of a pass is recomputed, within a backward pass
            before = torch.get_rng_state()
            again = self._recomputed(module)
            if again is None:
                self.say(module, "several of its calls in a pass are recomputed, with other random numbers, so that their gradients are of other masks; "
                         "leave torch.utils.checkpoint's preserve_rng_state as it is")
                return torch.empty(shape, dtype=torch.bool, device=value.device).bernoulli_(1 - module.p)
            call = again
            if not self._has_rows_of(call[0], module, value):
                torch.set_rng_state(before)     # as when the call that is recomputed drew its mask
                return None
        samples, number = call
        count = len(samples)
        size = shape.numel() // count
        key = _number(f"{self._seed} {self._step} {module.swell_name} {number}")
        kept = torch.empty(count, size, dtype=torch.bool, device=value.device)
        if size <= _SMALL:
            rows = _mix(torch.arange(samples.start, samples.stop, device=value.device) * 0x9E3779B1 + key & _LOW)
            columns = _mix(torch.arange(size, device=value.device) * 0x85EBCA77 + (key >> 7) & _LOW)
            some = max(1, _AT_ONCE.get(value.device.type, _MOST_AT_ONCE) // size)
            for part, its in zip(torch.split(kept, some), torch.split(rows, some), strict=True):
                torch.ge(_mix(its[:, None] ^ columns), int(module.p * (_LOW + 1)), out=part)
        else:
            generator = self._generators.setdefault(value.device, torch.Generator(value.device))
            for row, sample in enumerate(samples):
                generator.manual_seed(_number(f"{key} {sample}"))      # a generator of the CPU uses only 32 bits of a seed
                kept[row].bernoulli_(1 - module.p, generator=generator)
        return kept.view(shape)

    def _has_rows_of(self, samples: range, module: Any, value: torch.Tensor) -> bool:
        count, shape = len(samples), value.shape
        each, left = divmod(shape[0], max(1, count))
        is_other = each > 1 < count and count in shape[1:]      # time may come first, as in (time, samples, features)
        if each and not left and value.numel() and not is_other:
            return True
        self.say(module, (f"dimension {shape.index(count, 1)} of its input, of shape {tuple(shape)}, may be that of the {count} samples" if is_other else
                          f"the {shape[0]} rows of its input are not those of {count} samples") + _OTHERS)
        return False

    @staticmethod
    def number_from(generator: torch.Generator) -> int:
        """Draws a number from a generator of the CPU."""
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator))

    @property
    def has_said(self) -> bool:
        """Returns whether say() has named a module whose masks torch draws."""
        return self._has_said

    def _key(self, module: Any) -> tuple[str, int]:
        """Returns the module's name and a number of torch's generator: equal for a call and for its recomputation, for which the generator's state is restored."""
        return module.swell_name, self.number_from(torch.default_generator)

    def _called(self, module: Any) -> tuple[range, int]:
        """Returns the samples of this call, and its number among the calls of the module in this pass."""
        key = self._key(module)
        self.numbers += 1
        number = self._calls[key[0]] = self._calls.get(key[0], -1) + 1
        self._drawn[key] = self._samples, number
        return self._samples, number

    def _recomputed(self, module: Any) -> tuple[range, int] | None:
        """Returns samples and number of the call that this call recomputes; None if they are not known."""
        key = self._key(module)
        if key in self._drawn:
            return self._drawn[key]
        count = self._calls.get(key[0], 0) + 1
        if count == 1:
            return self._samples, 0
        if self._must:
            raise RuntimeError(f"{module.swell_name} ({type(module).__name__}) is called {count} times in a pass and recomputed in backward with other random numbers, so that "
                               "which of the masks is to be drawn again is not known; leave torch.utils.checkpoint's preserve_rng_state as it is, or give Elastic(dropout_by_sample=False)")
        return None

    def say(self, module: Any, why: str) -> None:
        """Prints, once, why torch draws the masks of a module."""
        if not self._has_said:
            self._has_said = True
            print(f"swell: {module.swell_name} ({type(module).__name__}): {why}; losses differ within their noise", file=sys.stderr, flush=True)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _mix(number: torch.Tensor) -> torch.Tensor:
    """Applies the last step of Murmur3, in place."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        number ^= number >> shift
        number *= factor
        number &= _LOW
    number ^= number >> 16
    return number


def _drawn(module: Any, value: torch.Tensor, plain: Any, dim: int) -> torch.Tensor:
    """Returns the result of forward(). dim: dimensions of a batch if whole channels are dropped; 0: each value is dropped by itself."""
    kept = _kept(module, value, dim)
    if kept is None:
        return plain(value, module.p, module.training, module.inplace)      # type: ignore[no-any-return]
    return (value.mul_(kept) if module.inplace else value * kept).mul_(1 / (1 - module.p))


def _kept(module: Any, value: torch.Tensor, dim: int) -> torch.Tensor | None:
    """Returns the mask of a call; None if torch is to draw it."""
    draws = Draws.now
    if not module.training or not 0 < module.p < 1 or torch.compiler.is_compiling() or draws is None:
        return None
    kind = type(value).__name__ if type(value) not in (torch.Tensor, nn.Parameter) else "nested tensor" if value.is_nested else \
        "tensor of torch.func" if torch._C._functorch.is_functorch_wrapped_tensor(value) else ""
    if kind:
        draws.say(module, f"which rows of its input, a {kind}, are those of a sample is not known" + _OTHERS)
        return None
    if value.dim() < 1 or (dim and value.dim() != dim) or (value.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    return draws.kept(module, value, dim > 0)


class _Plain:
    """Makes a module pickled, copied and, by torch.fx, traced as the class of torch."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = {name: value for name, value in vars(self).items() if name != "swell_name"}
        return copyreg._reconstructor, (_PLAIN[type(self)], object, None), state        # type: ignore[attr-defined]


class Dropout(_Plain, nn.Dropout):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting():
            return nn.functional.dropout(input, self.p, self.training, self.inplace)
        return _drawn(self, input, nn.functional.dropout, 0)


class Dropout1d(_Plain, nn.Dropout1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting():
            return nn.functional.dropout1d(input, self.p, self.training, self.inplace)
        return _drawn(self, input, nn.functional.dropout1d, 3)


class Dropout2d(_Plain, nn.Dropout2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting():
            return nn.functional.dropout2d(input, self.p, self.training, self.inplace)
        return _drawn(self, input, nn.functional.dropout2d, 4)


class Dropout3d(_Plain, nn.Dropout3d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting():
            return nn.functional.dropout3d(input, self.p, self.training, self.inplace)
        return _drawn(self, input, nn.functional.dropout3d, 5)


_KINDS: dict[type[nn.Module], type[nn.Module]] = {nn.Dropout: Dropout, nn.Dropout1d: Dropout1d, nn.Dropout2d: Dropout2d, nn.Dropout3d: Dropout3d}
_PLAIN: dict[type, type[nn.Module]] = {ours: torchs for torchs, ours in _KINDS.items()}
for _torchs, _ours in _KINDS.items():
    _ours.__module__ = _torchs.__module__
_KINDS |= {kind: kind for kind in _KINDS.values()}      # modules whose class an earlier Elastic has replaced


def draws_by_sample(module: nn.Module) -> bool:
    """Returns whether the masks of a module are drawn by Draws."""
    return type(module) in _KINDS.values()


def is_compiled(model: nn.Module) -> bool:
    """Returns whether torch.compile() has compiled a part of a model."""
    return any(hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) is not None for each in model.modules())
