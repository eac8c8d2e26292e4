# SPDX-License-Identifier: BSD-3-Clause
"""One worker's share of a model: its chunks' layers, its shard of them, and nothing else.

The model's own forward pass runs in every chunk, so that masks, positions and scales are transformers' own:
modules of other chunks are stand-ins, the chunk's first layer takes its input from the chunk before, and a
chunk that is not the last ends the pass behind its last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from swell.engine import tensor_parallel
from swell.engine.layout import Parameter
from swell.engine.plan import Part, Place, Plan
from swell.engine.skeleton import Skeleton

__all__ = ["Share", "StageModel"]


class _Elsewhere(nn.Module):
    """Stands where a module of another chunk is; what it returns is never used."""

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        first: torch.Tensor = args[0] if args else next(iter(kwargs.values()))
        return first if first.is_floating_point() and first.dim() == 3 else torch.zeros((), device=first.device)


class _Done(Exception):
    """The chunk's last layer has its output: the rest of the model is elsewhere."""


class StageModel:
    """A worker's shard of one chunk. Its parameters have no memory before hold().

    skeleton: its model becomes this chunk's. shards: the tensor parallel group; None where there is but one shard.
    first, last: whether it has the embedding, and the head.
    """

    def __init__(self, skeleton: Skeleton, part: Part, tp: int, shards: tensor_parallel.Shards | None) -> None:
        self.skeleton, self.model, self.tp = skeleton, skeleton.model, tp
        self.first, self.last, self.layers = part.embedding, part.head, part.layers
        tensor_parallel.check(skeleton.family, skeleton.config, self.tp)
        self.own: dict[str, Parameter] = {name: one for name, one in skeleton.parameters.items() if self._is_own(name)}
        # A tied head is a parameter of its own with a gradient of its own: sums are the same on one stage and on two.
        self.heads: dict[str, str] = {head: embedding for head, embedding in skeleton.tied.items() if self.last}
        for one in self.own.values():
            one.check(self.tp)
        self.parameters: dict[str, nn.Parameter] = {}
        self._is_proven = shards is None or not skeleton.is_of_user     # whether shards are known to compute what is described
        self._received: torch.Tensor | None = None
        self._made: torch.Tensor | None = None
        self._prune()
        if shards is not None:
            self._split(shards)
        self.model.train()

    def _is_own(self, name: str) -> bool:
        layer = self.skeleton.layer_of(name)
        if self.skeleton.family.is_whole:
            return True
        if layer is not None:
            return layer in self.layers
        if any(name.startswith(path + ".") for path in self.skeleton.output_paths):
            return self.last
        if any(name.startswith(path + ".") for path in self.skeleton.input_paths):
            return self.first or (self.last and name in self.skeleton.tied.values())
        raise ValueError(f"{name} is neither of a layer nor of an input or output module; the description of "
                         f"{self.skeleton.config.model_type} must name its module")

    def _prune(self) -> None:
        elsewhere = [] if self.first else list(self.skeleton.input_paths)
        if not self.last:
            elsewhere += self.skeleton.output_paths
        elsewhere += [self.skeleton.layer_path(number) for number in range(self.skeleton.layers) if number not in self.layers]
        for path in elsewhere:
            parent, _, leaf = path.rpartition(".")
            owner = self.model.get_submodule(parent)
            if getattr(owner, leaf, None) is not None:
                setattr(owner, leaf, _Elsewhere())
        # A chunk without layers takes its input from a stand-in, or ends at one.
        if not self.first:
            self.layer(self.layers.start if self.layers else self.skeleton.layers - 1).register_forward_pre_hook(self._take, with_kwargs=True)
        if not self.last:
            ends = self.layer(self.layers.stop - 1 if self.layers else 0)
            ends.register_forward_hook(self._stop)

    def layer(self, number: int) -> nn.Module:
        """A layer of this chunk, by its number in the model."""
        return self.model.get_submodule(self.skeleton.layer_path(number))

    def head(self) -> nn.Module:
        """The output projection, in the last chunk."""
        return self.model.get_submodule(self.skeleton.head_path)

    def _take(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (self._received, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._received}

    def _stop(self, _: nn.Module, __: Any, output: Any) -> None:
        self._made = output[0] if isinstance(output, tuple) else output
        raise _Done

    def _split(self, shards: tensor_parallel.Shards) -> None:
        for path, module in list(self.model.named_modules()):
            if self.skeleton.layer_of(path) is None or isinstance(module, _Elsewhere):
                continue
            below = path.removeprefix(f"{self.skeleton.base_path}.")
            found = self.skeleton.family.style(below)
            if found is not None:
                tensor_parallel.split(module, found[0], shards)
            for name in self.skeleton.family.divides(below):
                setattr(module, name, getattr(module, name) // shards.count)

    # ---- memory

    def hold(self, tensors: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Give the share its memory: for each own parameter, and a gradient for each of them and of the heads."""
        for module in self.model.modules():     # before there are parameters: _init_weights() makes those, too
            if any(buffer is not None and buffer.is_meta for buffer in module.buffers(recurse=False)):
                self._make_buffers(module, device)
        for name, one in self.own.items():
            if not (self.last and not self.first and name in self.heads.values()):
                self._set(name, tensors[name], gradients[name])
            assert tuple(tensors[name].shape) == one.local_shape(self.tp)
        for head, embedding in self.heads.items():
            self._set(head, tensors[embedding], gradients[head])
        left = [name for name, one in self.model.named_parameters() if one.is_meta]
        if left:
            raise ValueError(f"{left[0]} of {self.skeleton.config.model_type} is in no chunk; the description must name its module")

    def _set(self, name: str, tensor: torch.Tensor, gradient: torch.Tensor) -> None:
        path, _, leaf = name.rpartition(".")
        parameter = nn.Parameter(tensor)
        parameter.grad = gradient
        setattr(self.model.get_submodule(path), leaf, parameter)
        self.parameters[name] = parameter

    def _make_buffers(self, module: nn.Module, device: torch.device) -> None:
        """What a module computes once from the config (frequencies of positions)."""
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = torch.full_like(buffer, float("nan") if buffer.is_floating_point() else -1, device=device)
        with torch.no_grad():
            self.model._init_weights(module)        # type: ignore[operator]
        for name, buffer in module.named_buffers(recurse=False):
            if bool(buffer.isnan().any() if buffer.is_floating_point() else buffer.numel() and buffer.dtype != torch.bool and (buffer == -1).all()):
                raise ValueError(f"{type(module).__name__}.{name} of {self.skeleton.config.model_type} is not made by its _init_weights(); "
                                 "the model is not supported")

    # ---- passes

    def forward(self, inputs: Mapping[str, torch.Tensor], received: torch.Tensor | None) -> torch.Tensor:
        """Hidden states for the next chunk, or logits.

        inputs: what the model's forward takes ("input_ids", "attention_mask", "position_ids"), of this worker's samples.
        received: hidden states of the chunk before; None in the first.
        """
        given = dict(inputs)
        if received is not None:
            given.pop("input_ids", None)
            given["inputs_embeds"] = received.detach()
            self._received = received
        run: Callable[..., Any] = self.model if self.last else self.model.base_model    # type: ignore[assignment]
        try:
            with nullcontext() if self._is_proven else self._proving(inputs["input_ids"].shape[1]):
                out = run(**given, use_cache=False)
        except _Done:
            made, self._made = self._made, None
            assert made is not None
            return made
        finally:
            self._received = None
        return out.logits   # type: ignore[no-any-return]


    @contextmanager
    def _proving(self, length: int) -> Iterator[None]:
        """Stands around the first pass: where a shard computes something else than its part, the description is wrong."""
        try:
            with tensor_parallel.Lengths(length):
                yield
        except _Done:
            self._is_proven = True
            raise
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ValueError(f"a layer of {self.skeleton.config.model_type} cannot be computed in {self.tp} shards as its description says ({error}): let \"tp\" name "
                             "each module that is split, and \"divided\" the numbers in modules that are of all shards, such as {\"h.*.attn\": [\"split_size\"]}; "
                             "see docs/engine.md") from error
        self._is_proven = True


class Share:
    """What a worker holds of a model: a StageModel for each chunk of its stage, None for one without units.

    own: the parameters of all. heads: tied heads, by the embedding's name. first, last: whether it has the embedding, and the head.
    """

    def __init__(self, skeleton: Skeleton, plan: Plan, place: Place, shards: tensor_parallel.Shards | None) -> None:
        self.skeleton, self.tp, parts = skeleton, plan.stages[place.stage].tp, plan.parts[place.stage]
        filled = [number for number, part in enumerate(parts) if not part.is_empty]
        self.chunks: list[StageModel | None] = [
            None if part.is_empty else StageModel(skeleton if number == filled[0] else skeleton.again(), part, self.tp, shards)
            for number, part in enumerate(parts)]
        self.first, self.last = any(part.embedding for part in parts), any(part.head for part in parts)
        self.own: dict[str, Parameter] = {}
        self.heads: dict[str, str] = {}
        for one in self.models():
            self.own.update(one.own)
            self.heads.update(one.heads)

    def models(self) -> Iterator[StageModel]:
        """The chunks that have units."""
        return (one for one in self.chunks if one is not None)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """All chunks' parameters, by name."""
        return {name: parameter for one in self.models() for name, parameter in one.parameters.items()}

    def hold(self, tensors: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Give the share its memory, see StageModel."""
        for one in self.models():
            one.hold(tensors, gradients, device)

    def train(self, mode: bool) -> None:
        """Sets all chunks to training or to evaluation."""
        for one in self.models():
            one.model.train(mode)
