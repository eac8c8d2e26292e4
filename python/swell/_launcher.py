# SPDX-License-Identifier: BSD-3-Clause
"""Whether another launcher, such as torchrun, stands between swellrun and this process. Needs no torch."""

from __future__ import annotations

import os
import sys

__all__ = ["refuse_other_launchers"]


def _differs(name: str, given: str) -> bool:
    """Whether a variable is not what swellrun gave; False where one of them is missing."""
    value = os.environ.get(name)
    return given in os.environ and value is not None and value != os.environ[given]


def other_launcher() -> str:
    """Names the variables of swellrun that another launcher has changed; empty: none."""
    changed = [name for name, given in (("RANK", "SWELL_RANK"), ("WORLD_SIZE", "SWELL_WORLD_SIZE"), ("TORCHELASTIC_RUN_ID", "SWELL_JOB_ID"))
               if _differs(name, given)]
    return ", ".join(f"{name}={os.environ[name]}" for name in changed)


def refuse_other_launchers() -> None:
    """End this process with the sentence that swellrun has for torchrun, where there is one."""
    changed = other_launcher()
    if changed:
        sys.exit(f"swell: a launcher within the program gave this process {changed}; it starts workers of its own, and so does swellrun: every "
                 "worker would be a training by itself. Write the program alone: swellrun python SCRIPT [ARGUMENTS]")
