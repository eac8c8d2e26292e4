# SPDX-License-Identifier: BSD-3-Clause
"""A model without memory: its modules on the meta device, its parameters, and how they begin."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from swell.engine import families, tensor_parallel, weights
from swell.engine.layout import Parameter
from swell.engine.plan import Plan

__all__ = ["Skeleton"]


class Skeleton:
    """The facts of a model that are known before any worker holds a part of it.

    config: of transformers, for a causal language model. dtype: of its parameters.
    """

    def __init__(self, config: Any, description: Mapping[str, Any] | str | None = None, dtype: torch.dtype = torch.float32,
                 mtp_heads: int = 0) -> None:
        self.family = families.read(config, description)
        self.is_of_user = description is not None       # the description: its first pass is watched
        if getattr(config, "output_router_logits", False):
            raise ValueError("output_router_logits=True: the routers' own loss is not supported; set it to False")
        self.config = config
        self._dtype = dtype
        recorder = weights.Recorder()
        self.model = self._modules()
        with recorder, torch.no_grad():     # transformers itself leaves it out on meta
            self.model.apply(self.model._init_weights)      # type: ignore[arg-type]
        self.base_path = str(self.model.base_model_prefix)
        self.layers_path = self.base_path if self.family.is_whole else f"{self.base_path}.{self.family.layers}"
        try:
            layers = self.model.get_submodule(self.layers_path)
            self.layers = 1 if self.family.is_whole else len(layers)       # type: ignore[arg-type]
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{config.model_type} has no list of layers {self.layers_path!r}, which its description names") from error
        head = self.model.get_output_embeddings()      # type: ignore[operator]
        if head is None:
            raise ValueError(f"{config.model_type} names no output projection (get_output_embeddings()), which the engine needs; train it by swell.torch.Elastic")
        self.head_path = self._path_of(head)
        embedding: Any = self.model.get_input_embeddings() if self.family.tp else None      # type: ignore[operator]
        self.embedding_path = self._path_of(embedding) if isinstance(embedding, nn.Embedding) else ""
        self._rows = {path: int(one.weight.shape[0]) for path, one, kind in ((self.embedding_path, embedding, nn.Embedding), (self.head_path, head, nn.Linear))
                      if isinstance(one, kind)}     # of what can be divided by vocabulary
        self.input_paths = [f"{self.base_path}.{path}" for path in self.family.inputs]
        self.output_paths = [f"{self.base_path}.{path}" for path in self.family.outputs] + [self.head_path]
        self.tied: dict[str, str] = {}      # the other name of a matrix that stands at both ends: head, embedding
        self.parameters: dict[str, Parameter] = {}
        self.beginnings: dict[str, weights.Beginning | str] = {}
        self._read(recorder)
        self.mtp_heads = mtp_heads
        self.shared: dict[str, list[tuple[str, tuple[str, int]]]] = {}      # with MTP heads: where a matrix is used, in the model's order, and by what unit
        self.norm_path = ""
        self._origins: dict[str, str] = {}      # parameters of MTP heads: the one of the model that each is made like
        if mtp_heads:
            self._add_mtp()

    def _add_mtp(self) -> None:
        """Adds the parameters of MTP heads: a layer with two norms and a projection, and the norm before the shared head.

        Raises ValueError where the family cannot have any.
        """
        norms = [path for path in self.output_paths[:-1] if self._has(path)]
        embedding = self.model.get_input_embeddings()       # type: ignore[operator]
        width, why = int(self.config.hidden_size), ""
        if self.family.is_whole:
            why = "nothing describes its layers"
        elif len(norms) != 1:
            why = f"there are {len(norms)} modules between its layers and its head, not one norm"
        elif not isinstance(embedding, nn.Embedding) or embedding.embedding_dim != width:
            why = f"its embedding does not have the layers' width of {width}"
        if why:
            raise ValueError(f"mtp_heads={self.mtp_heads}: {self.config.model_type} cannot have MTP heads, since {why}; leave mtp_heads out")
        self.norm_path, layer, last = norms[0], self.layer_path(self.layers - 1) + ".", self.layers - 1
        deviation = float(getattr(self.config, "initializer_range", None) or 0.02)
        table, head = self._path_of(embedding) + ".weight", [name for name, _ in self.model.named_parameters(remove_duplicate=False)
                                                             if name.startswith(self.head_path + ".")]
        self.shared = {table: [(table, ("embedding", 0))]}
        for name in head:
            self.shared.setdefault(self.tied.get(name, name), []).append((name, ("head", 0)))
        of_norm = {name.removeprefix(self.norm_path + "."): one for name, one in self.parameters.items() if name.startswith(self.norm_path + ".")}
        of_layer = {name.removeprefix(layer): one for name, one in self.parameters.items() if one.layer == last}
        for number in range(self.mtp_heads):
            at, of_module = f"mtp.{number}.", self.layers + number
            for kind, its, number_of_layer, origin in [("layer", of_layer, of_module, layer), ("hidden_norm", of_norm, of_module, self.norm_path + "."),
                                                       ("token_norm", of_norm, of_module, self.norm_path + "."), ("norm", of_norm, None, self.norm_path + ".")]:
                for name, one in its.items():
                    made = replace(one, name=f"{at}{kind}.{name}", layer=number_of_layer)
                    self.parameters[made.name], self.beginnings[made.name] = made, self.beginnings[origin + name]
                    self._origins[made.name] = origin + name
            made = Parameter(f"{at}projection.weight", of_module, (width, 2 * width), self._dtype)
            self.parameters[made.name], self.beginnings[made.name] = made, weights.Beginning("normal", (0.0, deviation))
            self.shared[table].append((f"{at}embedding.weight", ("module", number)))
            for name in head:
                self.shared[self.tied.get(name, name)].append((f"{at}head.{name.rpartition('.')[2]}", ("head", number + 1)))

    def _has(self, path: str) -> bool:
        try:
            return self.model.get_submodule(path) is not None
        except AttributeError:
            return False

    def of_others(self, plan: Plan, stage: int) -> set[str]:
        """Shared matrices of which another stage speaks, in norms and checkpoints."""
        if self.shared:
            return {owner for owner, uses in self.shared.items() if plan.contents.stage_of(*uses[0][1]) != stage}
        return set(self.tied.values()) if stage != plan.contents.embedding_stage else set()

    def stages_of_shared(self, plan: Plan) -> dict[str, tuple[int, ...]]:
        """The stages that use each shared matrix, with MTP heads."""
        return {owner: tuple(sorted({plan.contents.stage_of(*unit) for _, unit in uses})) for owner, uses in self.shared.items()}

    def by_vocabulary(self, plan: Plan, stage: int) -> frozenset[str]:
        """The paths of embedding and output projection where the shards of a stage divide them by vocabulary.

        A tied matrix is divided where both of its ends have the same degree: they exchange gradients shard by shard. Nothing is with MTP heads, whose stages
        share the matrices.
        """
        tp, ends = plan.stages[stage].tp, {plan.stages[one].tp for one in (plan.contents.embedding_stage, plan.contents.head_stage)}
        fits = frozenset(path for path, rows in self._rows.items() if rows % tp == 0)
        if tp == 1 or not self.family.tp or self.mtp_heads or (self.tied and (len(ends) > 1 or len(fits) < 2)):
            return frozenset()
        return fits

    def held(self, name: str, by_vocabulary: Collection[str]) -> Parameter:
        """A parameter as shards hold it that divide the modules at these paths by vocabulary."""
        one = self.parameters[name]
        return replace(one, dim=0) if one.dim is None and name.rpartition(".")[0] in by_vocabulary else one

    def _modules(self) -> nn.Module:
        from transformers import AutoModelForCausalLM
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
        name = str(getattr(self.config, "model_type", type(self.config).__name__))
        if type(self.config) not in AutoModelForCausalLM._model_mapping and name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            raise ValueError(f"{name} is not a causal language model to transformers (AutoModelForCausalLM); train it by swell.torch.Elastic")
        if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(self.config, "is_decoder", False):
            raise ValueError(f"{name} sees later tokens too, so that it cannot learn to predict them; set is_decoder=True in its config")
        with torch.device("meta"):
            made: nn.Module = AutoModelForCausalLM.from_config(self.config, dtype=self._dtype)
        return made

    def check(self, plan: Plan) -> None:
        """Raises ValueError where a plan cuts a model of whose parts nothing is known."""
        if self.family.is_whole and (plan.pp, plan.chunks, plan.stages[0].tp, plan.stages[0].layers) != (1, 1, 1, 1):
            raise ValueError(f"{self.config.model_type} is one layer to every plan, since neither transformers nor Swell describes its parts: it trains data parallel, "
                             f"not by {plan.summary()}; give plan=\"dpN\" or none, or describe it by Engine(..., description=FILE), see docs/engine.md")

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
            if not self.family.is_whole and not (one.startswith(self.head_path) and any(other.startswith(path) for path in self.input_paths)):
                raise ValueError(f"{one} is tied to {other}: only a head that is the embedding's own matrix is supported")

    def layer_path(self, number: int) -> str:
        """The path of a layer, by its number in the model."""
        return self.layers_path if self.family.is_whole else f"{self.layers_path}.{number}"

    def layer_of(self, name: str) -> int | None:
        """The layer that a parameter or module belongs to."""
        if not name.startswith(self.layers_path + "."):
            return None
        if self.family.is_whole:
            return 0
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
        found = self.family.style(self._origins.get(name, name).removeprefix(f"{self.base_path}.").rpartition(".")[0])
        return found is not None and found[0] == "replicated_with_grad_allreduce"
