# SPDX-License-Identifier: GPL-2.0-or-later
"""LLaMA under the engine on one GPU.

Arguments: hidden=N layers=N length=N vocabulary=N: the model; micro=M micro-batches of samples=S; dtype=bfloat16 for autocast;
kernels=1: torch.profiler records steps 8 to 10; unpaced=1: no pause between steps.
"""

import contextlib
import sys

import torch
import transformers

import common
import gpu_place
import models
from swell.torch import Engine

transformers.utils.logging.set_verbosity_error()
RECORDED = range(8, 11)


def main(arguments):
    wish = {key: value for key, value in (one.split("=", 1) for one in arguments)}
    number = {key: int(wish[key]) for key in ("hidden", "layers", "length", "vocabulary", "micro", "samples")}
    place = gpu_place.Place(wish.get("allocator", "native"))
    config = transformers.LlamaConfig(
        vocab_size=number["vocabulary"], hidden_size=number["hidden"], num_hidden_layers=number["layers"], intermediate_size=number["hidden"] * 11 // 4,
        num_attention_heads=max(1, number["hidden"] // 64), max_position_embeddings=number["length"], bos_token_id=1, eos_token_id=2, pad_token_id=0)
    batch = number["micro"] * number["samples"]
    engine = Engine(config, lambda p: torch.optim.AdamW(p, lr=1e-4), global_batch=batch,
                    plan=models.plan(number["micro"], (number["layers"], 1, [number["samples"]])), seed=3,
                    autocast=torch.bfloat16 if wish.get("dtype") == "bfloat16" else None)
    with contextlib.ExitStack() as recording:
        while engine.steps < common.steps():
            if wish.get("kernels") == "1" and engine.steps + 1 == RECORDED[0]:
                recording.enter_context(gpu_place.kernels_to("kernels", len(RECORDED)))
            tokens = torch.randint(3, number["vocabulary"], (batch, number["length"]), generator=torch.Generator().manual_seed(engine.steps))
            loss = engine.step({"input_ids": tokens, "labels": tokens})
            gpu_place.log(place, engine.steps, float(loss), engine.world)
            if engine.steps == RECORDED[-1]:
                recording.close()
            if wish.get("unpaced") != "1":
                common.pace()


if __name__ == "__main__":
    main(sys.argv[1:])
