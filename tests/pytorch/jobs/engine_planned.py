# SPDX-License-Identifier: GPL-2.0-or-later
"""A GPT-2 or a LLaMA under the engine, by the plan that Swell decides, else by its own, on the bytes of this repository's documents.

Arguments: the family (llama or gpt2), the size (small, deep, or 10m for ten million parameters), and the initial plan, if there is one: then it keeps checkpoints,
and its batches go through a pipeline one by one. Ends with the step that the file `last` names.
Its plan is in `plan`, each worker's process in `pid.RANK`. TEST_TEXTS: a folder with other documents, which must stay as they are while it trains.
"""

import functools
import glob
import json
import os
import sys

import torch
import transformers

import common

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine"))

from swell.torch import Engine  # noqa: E402

transformers.utils.logging.set_verbosity_error()
BATCH, LENGTH = 12, 32
SIZES = {"small": (4, 64, 1e-3), "deep": (8, 64, 1e-3), "10m": (8, 320, 3e-4)}     # layers, width, and a rate at which rounding is not amplified step by step


def config(family, size):
    layers, width, _ = SIZES[size]
    if family == "gpt2":
        return transformers.GPT2Config(vocab_size=256, n_embd=width, n_layer=layers, n_head=4, n_positions=LENGTH, embd_pdrop=0.0,
                                       attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=1, eos_token_id=2)
    return transformers.LlamaConfig(vocab_size=256, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
                                    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH, tie_word_embeddings=True)


@functools.cache
def text():
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs")
    parts = [open(path, "rb").read() for path in sorted(glob.glob(os.path.join(os.environ.get("TEST_TEXTS", docs), "*.md")))]
    return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8).long()


def batch(step):
    begins = torch.randint(len(text()) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step)).tolist()
    ids = torch.stack([text()[begin:begin + LENGTH] for begin in begins])
    return {"input_ids": ids, "labels": ids}


def last():
    try:
        with open(common.path("last")) as file:
            return int(file.read())
    except FileNotFoundError:
        return 1 << 30


def write(name, text):
    with open(common.path(name + ".new"), "w") as file:
        file.write(text)
    os.replace(common.path(name + ".new"), common.path(name))


def main(arguments):
    family, size, *initial = arguments
    kept = {"initial_plan": initial[0], "directory": common.path("checkpoints"), "checkpoint_every": 4} if initial else {}
    engine = Engine(config(family, size), lambda p: torch.optim.AdamW(p, lr=SIZES[size][2]), global_batch=BATCH, micro_batch=1 if initial else 2, max_grad_norm=1.0,
                    scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / 20)), seed=3,
                    log=common.path("losses"), **kept)
    plan = None
    write(f"pid.{engine.rank}", str(os.getpid()))
    while engine.steps < last():
        if engine.rank == 0 and plan is not engine.plan:
            plan = engine.plan
            write("plan", json.dumps(plan.to_json()))
        engine.step(batch(engine.steps))
        if engine.rank == 0:
            write("step.0", str(engine.steps))
        if "SWELL_PACED" not in os.environ:
            common.pace()


if __name__ == "__main__":
    main(sys.argv[1:])
