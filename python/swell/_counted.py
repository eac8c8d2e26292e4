# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of things in sentences."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str) -> str:
    """Returns "1 worker", "2 workers", "2 passes": a number and what it counts, of which `one` is the singular."""
    return f"{number} {one}{'' if number == 1 else 'es' if one.endswith(('s', 'ch')) else 's'}"
