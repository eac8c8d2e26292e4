# SPDX-License-Identifier: GPL-2.0-or-later
"""A GPT-2 from its config under swell.torch's Engine, by whatever plan Swell decides, on texts of this machine.

    engine_gpt.py FOLDER [STEPS]      FOLDER/log.jsonl: a line a step
"""
import os
import sys

import torch
import transformers
from swell.torch import Engine

import texts

BATCH, LENGTH = 12, 64


def main(folder, steps=1 << 30):
    config = transformers.GPT2Config(vocab_size=256, n_embd=64, n_layer=4, n_head=4, n_positions=LENGTH, embd_pdrop=0.0, attn_pdrop=0.0,
                                     resid_pdrop=0.0, bos_token_id=1, eos_token_id=2)
    engine = Engine(config, lambda parameters: torch.optim.AdamW(parameters, lr=5e-4), global_batch=BATCH, micro_batch=2, max_grad_norm=1.0, seed=3,
                    scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10)),
                    directory=os.path.join(folder, "checkpoints"), log=os.path.join(folder, "log.jsonl"))
    while engine.steps < int(steps):
        ids = texts.batch(3, engine.steps, BATCH, LENGTH)
        engine.step({"input_ids": ids, "labels": ids})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
