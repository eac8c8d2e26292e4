# SPDX-License-Identifier: GPL-2.0-or-later
"""LLaMA under the engine on one GPU.

Arguments: hidden=N layers=N length=N vocabulary=N: the model; micro=M micro-batches of samples=S; dtype=bfloat16 for autocast;
kernels=1: torch.profiler records steps 8 to 10, and `kernels` gets its times and Swell's; unpaced=1: no pause between steps.
"""

import contextlib
import json
import sys

import torch

import common
import gpu_llama
import gpu_place
from swell.torch import Engine

RECORDED = range(8, 11)


def main(arguments):
    wish = {key: value for key, value in (one.split("=", 1) for one in arguments)}
    number = {key: int(wish[key]) for key in ("hidden", "layers", "length", "vocabulary", "micro", "samples")}
    place = gpu_place.Place(wish.get("allocator", "native"))
    gpu_llama.serve()
    config = gpu_llama.config(**{key: number[key] for key in ("hidden", "layers", "length", "vocabulary")})
    batch, records, seen = number["micro"] * number["samples"], wish.get("kernels") == "1", {}
    engine = Engine(config, lambda p: torch.optim.AdamW(p, lr=1e-4), global_batch=batch, micro_batch=number["samples"], seed=3, profile=records,
                    description=gpu_llama.DESCRIPTION, autocast=torch.bfloat16 if wish.get("dtype") == "bfloat16" else None)
    with contextlib.ExitStack() as recording:
        while engine.steps < common.steps():
            if records and engine.steps + 1 == RECORDED[0]:
                seen = recording.enter_context(gpu_place.kernels(len(RECORDED)))
            tokens = torch.randint(3, number["vocabulary"], (batch, number["length"]), generator=torch.Generator().manual_seed(engine.steps))
            loss = engine.step({"input_ids": tokens, "labels": tokens})
            gpu_place.log(place, engine.steps, float(loss), engine.world)
            if engine.steps == RECORDED[-1]:
                recording.close()
            if wish.get("unpaced") != "1":
                gpu_place.pace()
    if records:
        with open(common.path("kernels"), "w") as file:
            json.dump({"kernels": seen, "profile": engine.profile()._asdict()}, file)


if __name__ == "__main__":
    main(sys.argv[1:])
