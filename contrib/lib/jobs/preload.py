# SPDX-License-Identifier: GPL-2.0-or-later
"""Imports that contrib/lib/warm.py makes once for the quickstart's live jobs: on two cores each takes a quarter of a minute."""
import torch._dynamo  # noqa: F401  optimizers import it when they are first used
import accelerate  # noqa: F401
import transformers

import swell.torch  # noqa: F401
from swell.integrations import SwellCallback  # noqa: F401

torch.set_num_threads(1)
transformers.Trainer, transformers.TrainingArguments  # loaded when they are first named
transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1))
