# SPDX-License-Identifier: GPL-2.0-or-later
"""A loop with Accelerate. Arguments: `profile`: what was seen of its steps is written at the end; `saves`: it saves its state itself each 4 steps,
numbered; `alone`: the first process alone does, in a folder that it names; EIO: common.fail_with()."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

import common
from swell.integrations import AccelerateElastic


def main(arguments):
    common.fail_as_told(arguments)
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(common.path("checkpoints/own"), automatic_checkpoint_naming="alone" not in arguments))
    model = common.network()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"),
                                global_batch=common.GLOBAL_BATCH, micro_batch=4, max_grad_norm=1.0, checkpoint_every=0 if "no-checkpoints" in arguments else 10)
    for x, y in elastic.batches(common.regression(), steps=common.steps()):
        if elastic.step(torch.nn.functional.mse_loss(model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            if "profile" in arguments and elastic.steps == common.steps():
                common.write_profile(elastic._profile.session)
            if "saves" in arguments and elastic.steps % 4 == 0:
                accelerator.save_state()
            if "alone" in arguments and elastic.steps % 4 == 0 and accelerator.is_main_process:
                accelerator.save_state(common.path("last"))


if __name__ == "__main__":
    main(sys.argv[1:])
