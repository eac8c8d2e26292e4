# SPDX-License-Identifier: BSD-3-Clause
"""How a family of models is taken apart: from what transformers publishes, or from a small description.

A description is JSON, with paths below the base model:

    {"inputs": ["wte", "wpe"],            modules before the layers that have parameters, in order
     "layers": "h",                       the list of layers
     "outputs": ["ln_f"],                 modules behind them that have parameters
     "tp": {"h.*.attn.c_attn": "packed_colwise 3", ...},      how tensor parallelism splits modules
     "divided": {"h.*.attn": ["split_size"]},                 numbers in modules that it divides
     "returns": "tuple"}                  what a layer returns, where that is not its hidden states alone; they are the first of it

Styles are transformers' own: colwise, rowwise, colwise_gather_output, rowwise_split_input, packed_colwise
(with the number of equal parts that are split each, 2 where not given), replicated_with_grad_allreduce,
moe_tp_experts. Without "tp" a model runs under plans of tensor parallel degree 1. A family that neither transformers nor a description takes
apart is one layer to every plan, which trains data parallel.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Family", "STYLES", "described", "read"]

STYLES = ("colwise", "rowwise", "colwise_gather_output", "rowwise_split_input", "packed_colwise", "replicated_with_grad_allreduce",
          "moe_tp_experts")
_FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Family:
    """A description that was read."""

    inputs: tuple[str, ...]
    layers: str
    outputs: tuple[str, ...]
    tp: Mapping[str, str] = field(default_factory=dict)
    divided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    returns_tuple: bool = False     # of which the first is a layer's hidden states

    @property
    def is_whole(self) -> bool:
        """Whether nothing is known of its parts."""
        return not self.layers

    def style(self, path: str) -> tuple[str, int] | None:
        """How tensor parallelism splits the module or parameter at this path, and in how many packs."""
        found = _match(self.tp, path)
        if found is None:
            return None
        style, _, packs = found.partition(" ")
        return style, int(packs) if packs else 2 if style == "packed_colwise" else 1

    def splits_heads(self) -> bool:
        """Whether each shard computes the attention of heads of its own."""
        return any(style == "colwise" or style.startswith("packed") for path, style in self.tp.items() if "att" in path)

    def divides(self, path: str) -> tuple[str, ...]:
        """Attributes of the module at this path that tensor parallelism divides."""
        return _match(self.divided, path) or ()


def _match(table: Mapping[str, Any], path: str) -> Any:
    return table.get(path, table.get(re.sub(r"\.\d+(?=\.|$)", ".*", path)))


def described() -> list[str]:
    """Model types for which a description is part of the package."""
    return sorted(name.removesuffix(".json") for name in os.listdir(_FOLDER) if name.endswith(".json"))


def read(config: Any, description: Mapping[str, Any] | str | os.PathLike[str] | None = None) -> Family:
    """The family of a transformers config. Raises ValueError that says what is supported.

    description: of the user's own; a mapping, or the path of a JSON file. It goes before what is known.
    """
    name = str(getattr(config, "model_type", type(config).__name__))
    if description is None and name in described():
        description = os.path.join(_FOLDER, f"{name}.json")
    found = _from_file(description) if isinstance(description, (str, os.PathLike)) else description if description is not None else _published(config)
    if found is None:
        return Family((), "", ())
    if not isinstance(found, Mapping):
        raise ValueError(f"the description of {name} is of type {type(found).__name__}; give an object with inputs, layers and outputs, see docs/engine.md")
    if not {"inputs", "layers", "outputs"} <= set(found) <= {"inputs", "layers", "outputs", "tp", "divided", "returns"}:
        raise ValueError(f"the description of {name} has {sorted(found)}; it needs inputs, layers and outputs, and may have tp, divided and returns")
    if found.get("returns", "tuple") != "tuple":
        raise ValueError(f"the description of {name} has returns={found['returns']!r}; give \"tuple\", or leave it out where layers return hidden states alone")
    if not (isinstance(found["layers"], str) and found["layers"]):
        raise ValueError(f"the description of {name} has layers={found['layers']!r}; give the path of its list of layers, such as \"h\"")
    for key in ("inputs", "outputs"):
        if not isinstance(found[key], (list, tuple)) or not all(isinstance(one, str) for one in found[key]):
            raise ValueError(f"the description of {name} has {key}={found[key]!r}; give a list of paths of modules")
    for key, of in (("tp", "styles"), ("divided", "lists of numbers' names")):
        if not isinstance(found.get(key, {}), Mapping):
            raise ValueError(f"the description of {name} has {key}={found[key]!r}; give an object of {of} by the module's path")
    for path, names in found.get("divided", {}).items():
        if not isinstance(names, (list, tuple)):
            raise ValueError(f"the description of {name} divides {path}: {names!r}; give a list of the numbers' names")
    for path, style in found.get("tp", {}).items():
        if not isinstance(style, str) or style.split(" ")[0] not in STYLES or not all(part.isdigit() for part in style.split(" ")[1:]):
            raise ValueError(f"{name} splits {path} by {style!r}, which is not supported; describe it with {', '.join(STYLES)}")
    return Family(tuple(found["inputs"]), found["layers"], tuple(found["outputs"]), dict(found.get("tp", {})),
                  {path: tuple(names) for path, names in found.get("divided", {}).items()}, "returns" in found)


def _from_file(path: str | os.PathLike[str]) -> Any:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return json.load(file)
    except OSError as error:
        raise ValueError(f"description={os.fspath(path)!r} cannot be read ({error.strerror}); give the path of a JSON file, or the object itself") from error
    except ValueError as error:
        raise ValueError(f"description={os.fspath(path)!r} is not JSON: {error}; docs/engine.md has an example") from error


def _published(config: Any) -> dict[str, Any] | None:
    """Reads the description in transformers' own config: the modules of base_model_pp_plan are in their order, the layers among them."""
    modules = getattr(config, "base_model_pp_plan", None)
    if not modules or "layers" not in modules:
        return None
    order = list(modules)
    at = order.index("layers")
    return {"inputs": order[:at], "layers": "layers", "outputs": order[at + 1:], "tp": getattr(config, "base_model_tp_plan", None) or {}}
