# SPDX-License-Identifier: GPL-2.0-or-later
"""A loop with Accelerate. Argument: `profile`: what was seen of its steps is written at the end."""

import sys

import torch
from accelerate import Accelerator

import common
from swell.integrations import AccelerateElastic


def main(arguments):
    accelerator = Accelerator(cpu=True)
    model = common.network()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"),
                                global_batch=common.GLOBAL_BATCH, micro_batch=4, max_grad_norm=1.0, checkpoint_every=0 if "no-checkpoints" in arguments else 10)
    for x, y in elastic.batches(common.regression(), steps=common.steps()):
        if elastic.step(torch.nn.functional.mse_loss(model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            if "profile" in arguments and elastic.steps == common.steps():
                common.write_profile(elastic._profile.session)


if __name__ == "__main__":
    main(sys.argv[1:])
