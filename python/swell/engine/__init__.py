# SPDX-License-Identifier: BSD-3-Clause
"""transformers models under any 3D plan: docs/engine.md."""

from swell.engine.engine import Engine
from swell.engine.plan import Group, Place, Plan, Stage

__all__ = ["Engine", "Group", "Place", "Plan", "Stage"]
