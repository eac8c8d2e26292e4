# SPDX-License-Identifier: BSD-3-Clause
"""One worker's share of a model: its chunks' layers, its shard of them, and nothing else.

The model's own forward pass runs in every chunk, so that masks, positions and scales are transformers' own:
modules of other chunks are stand-ins, the chunk's first layer takes its input from the chunk before, and a
chunk that is not the last ends the pass behind its last layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from swell.engine import tensor_parallel
from swell.engine.contents import Part
from swell.engine.layout import Parameter
from swell.engine.plan import Place, Plan
from swell.engine.skeleton import Skeleton

__all__ = ["Chunk", "MtpStage", "Share", "StageModel"]


class _Elsewhere(nn.Module):
    """Stands where a module of another chunk is; what it returns is never used. in_tuple: as layers of some families return it."""

    def __init__(self, in_tuple: bool = False) -> None:
        super().__init__()
        self._in_tuple = in_tuple

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor | tuple[torch.Tensor, None]:
        first: torch.Tensor = args[0] if args else next(iter(kwargs.values()))
        made = first if first.is_floating_point() and first.dim() == 3 else torch.zeros((), device=first.device)
        return (made, None) if self._in_tuple else made


class _Done(Exception):
    """The chunk's last layer has its output: the rest of the model is elsewhere."""


class StageModel:
    """A worker's shard of one chunk. Its parameters have no memory before hold().

    skeleton: its model becomes this chunk's. shards: the tensor parallel group; None where there is but one shard.
    first, last: whether it has the embedding, and the head. by_vocabulary: paths of those that shards divide so.
    """

    def __init__(self, skeleton: Skeleton, part: Part, tp: int, shards: tensor_parallel.Shards | None, by_vocabulary: Collection[str] = ()) -> None:
        self.skeleton, self.model, self.tp = skeleton, skeleton.model, tp
        self.first, self.last, self.layers = part.embedding, part.head, part.layers
        self.number = 0         # of the MTP head; 0: of the model itself
        self.extra: nn.ModuleDict | None = None         # modules that the family's model has not
        tensor_parallel.check(skeleton.family, skeleton.config, self.tp)
        self.own: dict[str, Parameter] = {name: skeleton.held(name, by_vocabulary) for name in skeleton.parameters if self._is_own(name)}
        # A tied head is a parameter of its own with a gradient of its own: sums are the same on one stage and on two.
        self.heads: dict[str, str] = {head: embedding for head, embedding in skeleton.tied.items() if self.last}
        for one in self.own.values():
            one.check(self.tp)
        self.parameters: dict[str, nn.Parameter] = {}
        # Each path has two things: the parameter, and the name under which this use of it has a gradient.
        self.places: dict[str, tuple[str, str]] = {name: (name, name) for name in self.own if not (self.last and not self.first and name in self.heads.values())}
        self.places.update({head: (embedding, head) for head, embedding in self.heads.items()})
        self._is_proven = shards is None or not skeleton.is_of_user     # whether shards are known to compute what is described
        self._received: torch.Tensor | None = None
        self._made: torch.Tensor | None = None
        self._prune()
        self.vocabulary: tensor_parallel.Shards | None = None       # the shards that each have logits of a part of it
        if shards is not None:
            self._split(shards)
            self._split_vocabulary(shards, by_vocabulary)
        self.model.train()

    def _is_own(self, name: str) -> bool:
        layer = self.skeleton.layer_of(name)
        if name.startswith("mtp."):
            return False
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
        layers = [self.skeleton.layer_path(number) for number in range(self.skeleton.layers) if number not in self.layers]
        for path in (*elsewhere, *layers):
            parent, _, leaf = path.rpartition(".")
            owner = self.model.get_submodule(parent)
            if getattr(owner, leaf, None) is not None:
                setattr(owner, leaf, _Elsewhere(path in layers and self.skeleton.family.returns_tuple))
        # A chunk without layers takes its input from a stand-in, or ends at one.
        if not self.first:
            self.layer(self.layers.start if self.layers else self.skeleton.layers - 1).register_forward_pre_hook(self._take, with_kwargs=True)
        if not self.last:
            ends = self.layer(self.layers.stop - 1 if self.layers else 0)
            ends.register_forward_hook(self._stop)
        elif self.skeleton.mtp_heads:
            self.layer(self.skeleton.layers - 1).register_forward_hook(self._note)

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

    def _note(self, _: nn.Module, __: Any, output: Any) -> None:
        self._made = output[0] if isinstance(output, tuple) else output

    def modules(self) -> Iterator[nn.Module]:
        """All modules."""
        yield from self.model.modules()
        if self.extra is not None:
            yield from self.extra.modules()

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

    def _split_vocabulary(self, shards: tensor_parallel.Shards, by_vocabulary: Collection[str]) -> None:
        skeleton = self.skeleton
        if self.first and skeleton.embedding_path in by_vocabulary:
            embedding = self.model.get_submodule(skeleton.embedding_path)
            assert isinstance(embedding, nn.Embedding)
            tensor_parallel.split_embedding(embedding, shards)
        if self.last and skeleton.head_path in by_vocabulary:
            tensor_parallel.split(self.head(), "colwise", shards)
            self.vocabulary = shards

    # ---- memory

    def hold(self, tensors: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Give the share its memory: for each own parameter, and a gradient for each of them and of the heads."""
        for module in self.modules():     # before there are parameters: _init_weights() makes those, too
            if any(buffer is not None and buffer.is_meta for buffer in module.buffers(recurse=False)):
                self._make_buffers(module, device)
        for name, one in self.own.items():
            assert tuple(tensors[name].shape) == one.local_shape(self.tp)
        for path, (name, use) in self.places.items():
            self._set(path, use, tensors[name], gradients[use])
        left = [name for name, one in self.model.named_parameters() if one.is_meta]
        if left:
            raise ValueError(f"{left[0]} of {self.skeleton.config.model_type} is in no chunk; the description must name its module")

    def _set(self, place: str, use: str, tensor: torch.Tensor, gradient: torch.Tensor) -> None:
        path, _, leaf = place.rpartition(".")
        parameter = nn.Parameter(tensor)
        parameter.grad = gradient
        of_extra = self.extra is not None and path.startswith("+")
        owner = self.extra.get_submodule(path[1:]) if of_extra and self.extra is not None else self.model.get_submodule(path)
        setattr(owner, leaf, parameter)
        self.parameters[use] = parameter

    def _make_buffers(self, module: nn.Module, device: torch.device) -> None:
        """Computes buffers that a module derives once from the config (frequencies of positions)."""
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = torch.full_like(buffer, float("nan") if buffer.is_floating_point() else -1, device=device)
        with torch.no_grad():
            self.model._init_weights(module)        # type: ignore[operator]
        for name, buffer in module.named_buffers(recurse=False):
            if bool(buffer.isnan().any() if buffer.is_floating_point() else buffer.numel() and buffer.dtype != torch.bool and (buffer == -1).all()):
                raise ValueError(f"{type(module).__name__}.{name} of {self.skeleton.config.model_type} is not made by its _init_weights(); "
                                 "the model is not supported")

    # ---- passes

    def run(self, inputs: Mapping[str, torch.Tensor], received: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Hidden states for what comes behind, and logits where this has a head. Hidden states beside logits are of models with MTP heads alone."""
        made = self.forward(inputs, received)
        if not self.last:
            return made, None
        hidden, self._made = self._made, None
        return hidden, made

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
        call: Callable[..., Any] = self.model if self.last else self.model.base_model    # type: ignore[assignment]
        try:
            with nullcontext() if self._is_proven else self._proving(inputs["input_ids"].shape[1]):
                out = call(**given, use_cache=False)
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


class MtpStage(StageModel):
    """A worker's shard of an MTP head: its module, a layer of the family over the projection of hidden states and of the embedding of a later token,
    or its head, or both. The family's own forward pass runs in it, with this layer in the place of the model's last one.

    number: from 0.
    """

    def __init__(self, skeleton: Skeleton, number: int, module: bool, head: bool, tp: int, shards: tensor_parallel.Shards | None) -> None:
        last, norm = skeleton.layers - 1, skeleton.norm_path
        embedding: nn.Module = skeleton.model.get_input_embeddings()        # type: ignore[operator]
        width = int(skeleton.config.hidden_size)
        extra = nn.ModuleDict({"embedding": embedding, "hidden_norm": copy.deepcopy(skeleton.model.get_submodule(norm)),
                               "token_norm": copy.deepcopy(skeleton.model.get_submodule(norm)),
                               "projection": nn.Linear(2 * width, width, bias=False, device="meta")}) if module else None
        super().__init__(skeleton, Part(False, range(last, last + 1) if module else range(0), head), tp, shards)
        self.number, self.extra, self.heads = number + 1, extra, {}
        mine = f"mtp.{number}."
        layer, self.places = skeleton.layer_path(last) + ".", {}
        if extra is not None:
            self.places.update({f"+{name}": (mine + name, mine + name) for name, _ in extra.named_parameters() if not name.startswith("embedding.")})
        for path in list(self.own):
            if path.startswith(layer):
                self.places[path] = (f"{mine}layer.{path.removeprefix(layer)}",) * 2
            elif path.startswith(norm + "."):
                self.places[path] = (f"{mine}norm.{path.removeprefix(norm + '.')}",) * 2
        for owner, uses in skeleton.shared.items():
            for use, (kind, at) in uses:
                if kind == "module" and at == number and module:
                    self.places["+embedding.weight"] = owner, use
                elif kind == "head" and at == number + 1 and head:
                    self.places[f"{skeleton.head_path}.{use.rpartition('.')[2]}"] = owner, use
        self.own = {owner: skeleton.parameters[owner] for owner, _ in self.places.values()}

    def run(self, inputs: Mapping[str, torch.Tensor], received: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """See StageModel."""
        assert received is not None
        if self.extra is not None:
            later = nn.functional.pad(inputs["input_ids"], (0, self.number))[:, self.number:]       # what stands behind the end is not predicted from
            token = self.extra["token_norm"](self.extra["embedding"](later))
            received = self.extra["projection"](torch.cat([self.extra["hidden_norm"](received), token.to(received.dtype)], -1))
        return super().run(inputs, received)


class Chunk:
    """The modules that a worker computes in one pass, one after the other. models: the model's own units, then MTP heads."""

    def __init__(self, models: Sequence[StageModel]) -> None:
        self.models = list(models)


class Share:
    """A worker's part of a model: a Chunk for each chunk of its stage, None for one without units.

    own: the parameters of all. uses: by the names under which they have gradients; matrices that stand at several places have one for each.
    first, last: whether it has the embedding, and the model's own head. predicts: whether it has any head.
    """

    def __init__(self, skeleton: Skeleton, plan: Plan, place: Place, shards: tensor_parallel.Shards | None) -> None:
        self.skeleton, self.tp, parts = skeleton, plan.stages[place.stage].tp, plan.contents.parts[place.stage]
        unused, by_vocabulary = [skeleton], skeleton.by_vocabulary(plan, place.stage)

        def own_modules() -> Skeleton:
            return unused.pop() if unused else skeleton.again()
        self.chunks: list[Chunk | None] = []
        for part in parts:
            models: list[StageModel] = [StageModel(own_modules(), part, self.tp, shards, by_vocabulary)] if part.embedding or part.layers or part.head else []
            models += [MtpStage(own_modules(), number, number in part.modules, number in part.heads, self.tp, shards)
                       for number in sorted({*part.modules, *part.heads})]
            self.chunks.append(Chunk(models) if models else None)
        self.first, self.last = any(part.embedding for part in parts), any(part.head for part in parts)
        self.predicts = bool(plan.contents.heads_of(place.stage))
        self.own: dict[str, Parameter] = {}
        for one in self.models():
            self.own.update(one.own)
        uses = {use: owner for one in self.models() for owner, use in one.places.values()}
        self.uses = {**{name: name for name in self.own if name in uses}, **{use: owner for use, owner in uses.items() if use != owner}}

    def models(self) -> Iterator[StageModel]:
        """All models of all chunks."""
        return (model for one in self.chunks if one is not None for model in one.models)

    @property
    def vocabulary_parts(self) -> int:
        """The number of shards that divide the output projection."""
        return max((one.vocabulary.count for one in self.models() if one.vocabulary is not None), default=1)

    def trained_as(self, name: str) -> str:
        """The use of a parameter of which the optimizer has the gradient."""
        return name if name in self.uses else next(use for use, owner in self.uses.items() if owner == name)

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
