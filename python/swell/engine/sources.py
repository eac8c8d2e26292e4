# SPDX-License-Identifier: BSD-3-Clause
"""Where a model's first weights come from, part by part: a config, a folder or a model."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Protocol

import torch

from swell.engine import weights
from swell.engine.layout import Parameter
from swell.engine.skeleton import Skeleton

__all__ = ["Source", "fill", "read"]


class Source(Protocol):
    """A model's config and first weights."""

    config: Any

    def fill(self, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
        """Fill a shard's part of a parameter."""
        ...


class _Random:
    def __init__(self, config: Any) -> None:
        self.config = config

    def fill(self, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
        law = skeleton.beginnings[parameter.name]
        if isinstance(law, str):
            raise ValueError(law)
        begin, end = parameter.block(shard, shards)
        block = target.view(tuple(b - a for a, b in zip(begin, end, strict=True)))
        weights.fill(block, law, parameter.name, seed, parameter.global_shape, begin)


class _Model:
    def __init__(self, model: torch.nn.Module) -> None:
        self.config, self._model = model.config, model

    def fill(self, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
        with torch.no_grad():
            target.copy_(parameter.part(self._model.get_parameter(parameter.name), shard, shards))


class _Folder:
    """Weights in safetensors files, of which a worker reads its own parts alone."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoConfig
        self.config = AutoConfig.from_pretrained(folder)
        self._folder = folder
        self._files = self._where()

    def _where(self) -> dict[str, str]:
        from safetensors import safe_open
        index = os.path.join(self._folder, "model.safetensors.index.json")
        if os.path.exists(index):
            with open(index) as file:
                found: dict[str, str] = json.load(file)["weight_map"]
            return found
        names = {}
        for path in glob.glob(os.path.join(self._folder, "*.safetensors")):
            with safe_open(path, "pt") as file:
                names.update(dict.fromkeys(file.keys(), os.path.basename(path)))
        return names

    def fill(self, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
        from safetensors import safe_open
        name = next((one for one in (parameter.name, *(head for head, other in skeleton.tied.items() if other == parameter.name))
                     if one in self._files), None)
        if name is None:
            raise ValueError(f"{self._folder} has no {parameter.name} in safetensors files; write it anew by save_pretrained() of a model "
                             "that from_pretrained() loaded, or give that model")
        with safe_open(os.path.join(self._folder, self._files[name]), "pt") as file, torch.no_grad():
            if parameter.dim is None or parameter.packs > 1 or shards == 1:
                target.copy_(parameter.part(file.get_tensor(name), shard, shards))
            else:
                begin, end = parameter.block(shard, shards)
                target.copy_(file.get_slice(name)[tuple(slice(a, b) for a, b in zip(begin, end, strict=True))])


def fill(source: Source, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
    """Fill a shard's part of a parameter; MTP heads, which are in no model of transformers, begin at random."""
    its = _Random(source.config) if parameter.name.startswith("mtp.") else source
    its.fill(target, parameter, skeleton, shard, shards, seed)


def read(model_or_config: Any) -> Source:
    """A model, the path of a folder, or a config."""
    if isinstance(model_or_config, torch.nn.Module):
        if not hasattr(model_or_config, "config"):
            raise TypeError(f"the model is a {type(model_or_config).__name__}, not one of transformers; train it by swell.torch.Elastic")
        return _Model(model_or_config)
    if isinstance(model_or_config, (str, os.PathLike)):
        if not os.path.isfile(os.path.join(model_or_config, "config.json")):
            raise ValueError(f"{os.fspath(model_or_config)!r} is not a folder with a config.json; give one that save_pretrained() wrote, a config such as "
                             "AutoConfig.from_pretrained(NAME), or a model")
        return _Folder(os.fspath(model_or_config))
    if not hasattr(model_or_config, "model_type"):
        raise TypeError(f"{model_or_config!r} is of type {type(model_or_config).__name__}; give a config of transformers, a folder with weights, or a model")
    return _Random(model_or_config)
