# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training in frameworks; each name imports its framework when it is first asked for.

SwellCallback: transformers' Trainer, and what is derived from it. AccelerateElastic: loops with
Accelerate. LightningElastic: a callback of Lightning's Trainer. Degrees, MegatronElastic: loops with Megatron-Core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell.integrations.accelerate import AccelerateElastic
    from swell.integrations.lightning import LightningElastic
    from swell.integrations.megatron import Degrees, MegatronElastic
    from swell.integrations.transformers import SwellCallback

__all__ = ["AccelerateElastic", "Degrees", "LightningElastic", "MegatronElastic", "SwellCallback"]

_HOMES = {"AccelerateElastic": "accelerate", "Degrees": "megatron", "LightningElastic": "lightning", "MegatronElastic": "megatron",
          "SwellCallback": "transformers"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no {name}; there are {', '.join(sorted(_HOMES))}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
