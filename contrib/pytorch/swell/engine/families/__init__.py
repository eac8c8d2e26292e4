# SPDX-License-Identifier: BSD-3-Clause
"""How a family of models is taken apart: from what transformers publishes, or from a small description.

A description is JSON, with paths below the base model:

    {"inputs": ["wte", "wpe"],            modules before the layers that have parameters, in order
     "layers": "h",                       the list of layers
     "outputs": ["ln_f"],                 modules behind them that have parameters
     "tp": {"h.*.attn.c_attn": "packed_colwise 3", ...},      how tensor parallelism splits modules
     "divided": {"h.*.attn": ["split_size"]}}                 numbers in modules that it divides

Styles are transformers' own: colwise, rowwise, colwise_gather_output, rowwise_split_input, packed_colwise
(with the number of equal parts that are split each, 2 where not given), replicated_with_grad_allreduce,
moe_tp_experts. Without "tp" a model runs under plans of tensor parallel degree 1.
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
    if isinstance(description, (str, os.PathLike)):
        with open(description) as file:
            found: Mapping[str, Any] | None = json.load(file)
    else:
        found = description or _published(config)
    if found is None:
        raise ValueError(f"{name} is not supported: transformers publishes no base_model_pp_plan for it, and Swell has descriptions of "
                         f"{', '.join(described())} alone; describe it by Engine(..., description=FILE), see docs/engine.md")
    if not {"inputs", "layers", "outputs"} <= set(found) <= {"inputs", "layers", "outputs", "tp", "divided"}:
        raise ValueError(f"the description of {name} has {sorted(found)}; it needs inputs, layers and outputs, and may have tp and divided")
    for path, style in found.get("tp", {}).items():
        if style.split(" ")[0] not in STYLES:
            raise ValueError(f"{name} splits {path} by {style!r}, which is not supported; describe it with {', '.join(STYLES)}")
    return Family(tuple(found["inputs"]), found["layers"], tuple(found["outputs"]), dict(found.get("tp", {})),
                  {path: tuple(names) for path, names in found.get("divided", {}).items()})


def _published(config: Any) -> dict[str, Any] | None:
    """What transformers says of it: the modules of base_model_pp_plan are in their order, the layers among them."""
    modules = getattr(config, "base_model_pp_plan", None)
    if not modules or "layers" not in modules:
        return None
    order = list(modules)
    at = order.index("layers")
    return {"inputs": order[:at], "layers": "layers", "outputs": order[at + 1:], "tp": getattr(config, "base_model_tp_plan", None) or {}}
