# SPDX-License-Identifier: GPL-2.0-or-later
"""A training over samples that are changed at random as they are read. Arguments: elastic, trainer or lightning, and the number of readers."""

import os
import random

import numpy
import torch
import torch.distributed as dist
from torch import nn

import common


class Augmented(torch.utils.data.Dataset):
    def __init__(self, named=False):
        self.made, self.named = common.regression(), named

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        x, y = self.made[index]
        x = x * (0.5 + random.random()) + 0.3 * torch.randn(x.shape) + float(numpy.random.rand())
        return {"x": x, "labels": y} if self.named else (x, y)


def elastic(readers):
    from swell.torch import Elastic
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(common.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loop = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=common.GLOBAL_BATCH, micro_batch=4)
    for x, y in loop.batches(Augmented(), steps=common.steps(), num_workers=readers):
        if loop.step(nn.functional.mse_loss(model(x), y)):
            common.log(loop.steps, loop.mean_loss(), loop.world)


def trainer(readers):
    import transformers

    from hf import Log
    from swell.integrations import SwellCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = common.network()

        def forward(self, x, labels=None):
            return {"loss": nn.functional.mse_loss(self.net(x), labels)}
    args = transformers.TrainingArguments(
        output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=3e-3, logging_steps=1, save_steps=1000,
        use_cpu=True, report_to=[], disable_tqdm=True, dataloader_num_workers=readers, seed=5)
    made = transformers.Trainer(Model(), args, train_dataset=Augmented(named=True), callbacks=[Log()])
    SwellCallback.attach(made)
    made.train()


def lightning(readers):
    import lightning.pytorch as pl

    from swell.integrations import LightningElastic

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = common.network()

        def training_step(self, batch, _index):
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            mean = self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")
            common.log(self.global_step + 1, float(mean), self.trainer.world_size)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=3e-3)
    loop = LightningElastic(common.path("checkpoints"))
    made = pl.Trainer(accelerator="cpu", strategy="ddp", devices=loop.devices, num_nodes=loop.num_nodes, callbacks=[loop], use_distributed_sampler=False,
                      max_steps=common.steps(), enable_progress_bar=False, logger=False, enable_model_summary=False, enable_checkpointing=False, default_root_dir=common.path("."))
    made.fit(Module(), loop.loader(Augmented(), global_batch=common.GLOBAL_BATCH, num_workers=readers), ckpt_path=loop.newest())


def main(arguments):
    seed = 100 + int(os.environ.get("SWELL_GENERATION", "0"))      # a start's own
    torch.manual_seed(seed), random.seed(seed), numpy.random.seed(seed)
    {"elastic": elastic, "trainer": trainer, "lightning": lightning}[arguments[0]](int(arguments[1]))
