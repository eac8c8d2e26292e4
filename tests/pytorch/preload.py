# SPDX-License-Identifier: GPL-2.0-or-later
"""Imports that contrib/lib/warm.py makes once for the engine's jobs on a cluster."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "jobs"), os.path.join(HERE, "engine")]

import torch._dynamo  # noqa: E402,F401  optimizers import it when they are first used

import models  # noqa: E402
import swell.torch  # noqa: E402,F401

for family in ("llama_gqa_tied", "gpt2"):
    models.model(models.CONFIGS[family]())
