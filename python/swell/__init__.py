# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with PyTorch under swellrun.

swell.torch: a plain DDP or FSDP2 loop. swell.integrations: Trainer, Accelerate, Lightning.
swell.data: samplers that resizes do not disturb. `python -m swell.check SCRIPT`: is it elastic?
"""

from swell import _uncaught
from swell._request import Place, asked_to_leave, listen, place, under_swellrun

__all__ = ["Place", "asked_to_leave", "listen", "place", "under_swellrun"]
__version__ = "0.1.0"

_uncaught.install()
