# SPDX-License-Identifier: BSD-3-Clause
"""A model without memory: its modules on the meta device, its parameters, and how they begin."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from swell.engine import families, tensor_parallel, weights
from swell.engine.layout import Parameter

__all__ = ["Skeleton"]


class Skeleton:
    """What is known of a model before any worker holds a part of it.

    config: of transformers, for a causal language model. dtype: of its parameters.
    """

    def __init__(self, config: Any, description: Mapping[str, Any] | str | None = None, dtype: torch.dtype = torch.float32) -> None:
        self.family = families.read(config, description)
        if getattr(config, "output_router_logits", False):
            raise ValueError("output_router_logits=True: the routers' own loss is not supported; set it to False")
        self.config = config
        self._dtype = dtype
        recorder = weights.Recorder()
        self.model = self._modules()
        with recorder, torch.no_grad():     # transformers itself leaves it out on meta
            self.model.apply(self.model._init_weights)      # type: ignore[arg-type]
        self.base_path = self.model.base_model_prefix
        self.layers_path = f"{self.base_path}.{self.family.layers}"
        try:
            layers = self.model.get_submodule(self.layers_path)
        except AttributeError as error:
            raise ValueError(f"{config.model_type} has no {self.layers_path!r}, which its description names as its layers") from error
        self.layers = len(layers)       # type: ignore[arg-type]
        self.head_path = self._path_of(self.model.get_output_embeddings())      # type: ignore[operator]
        self.input_paths = [f"{self.base_path}.{path}" for path in self.family.inputs]
        self.output_paths = [f"{self.base_path}.{path}" for path in self.family.outputs] + [self.head_path]
        self.tied: dict[str, str] = {}      # the other name of a matrix that stands at both ends: head, embedding
        self.parameters: dict[str, Parameter] = {}
        self.beginnings: dict[str, weights.Beginning | str] = {}
        self._read(recorder)

    def _modules(self) -> nn.Module:
        from transformers import AutoModelForCausalLM
        with torch.device("meta"):
            made: nn.Module = AutoModelForCausalLM.from_config(self.config, dtype=self._dtype)
        return made

    def again(self) -> Skeleton:
        """Returns the same with modules of its own, for another chunk of this worker."""
        other = copy.copy(self)
        other.model = self._modules()
        return other

    def _path_of(self, module: nn.Module) -> str:
        return next(str(path) for path, one in self.model.named_modules() if one is module)

    def _read(self, recorder: weights.Recorder) -> None:
        names: dict[int, str] = {}
        for name, tensor in self.model.named_parameters(remove_duplicate=False):
            if id(tensor) in names:
                self.tied[name] = names[id(tensor)]
                continue
            names[id(tensor)] = name
            dim, packs = self._splits(name)
            self.parameters[name] = Parameter(name, self.layer_of(name), tuple(tensor.shape), tensor.dtype, dim, packs)
            try:
                self.beginnings[name] = recorder.of(name, tensor)
            except ValueError as error:
                self.beginnings[name] = str(error)      # matters only where there are no weights to load
        for one, other in self.tied.items():
            if not (one.startswith(self.head_path) and any(other.startswith(path) for path in self.input_paths)):
                raise ValueError(f"{one} is tied to {other}: only a head that is the embedding's own matrix is supported")

    def layer_of(self, name: str) -> int | None:
        """The layer that a parameter or module belongs to."""
        if not name.startswith(self.layers_path + "."):
            return None
        return int(name[len(self.layers_path) + 1:].split(".")[0])

    def _splits(self, name: str) -> tuple[int | None, int]:
        path = name.removeprefix(f"{self.base_path}.")
        own = self.family.style(path)
        if own is not None:     # a parameter with a style of its own: experts, (expert, out, in)
            style, packs = own
            return {"packed_colwise": (1, packs), "rowwise": (2, 1), "colwise": (1, 1)}.get(style, (None, 1))
        parent, _, leaf = path.rpartition(".")
        found = self.family.style(parent)
        if found is None:
            return None, 1
        style, packs = found
        return tensor_parallel.dims(self.model.get_submodule(f"{self.base_path}.{parent}"), style, leaf), packs

    def summed_over_shards(self, name: str) -> bool:
        """Whether a parameter that all shards hold has a gradient of which each computes a part (norms of a shard's own heads)."""
        found = self.family.style(name.removeprefix(f"{self.base_path}.").rpartition(".")[0])
        return found is not None and found[0] == "replicated_with_grad_allreduce"
