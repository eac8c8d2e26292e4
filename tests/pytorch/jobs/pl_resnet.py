# SPDX-License-Identifier: GPL-2.0-or-later
"""A small residual network on images, by Lightning. Arguments: `evaluate`: there are validations; `accumulates`: of two batches a step; `fewer`, `sgd`, `unscheduled`: another data set, optimizer, no schedule; `drops`: with dropout; `sharded`: by fully_shard() in Lightning's strategy for that; `unreadable`: a hyperparameter that no start could read; `unfreezes`: its first layer is trained from the second epoch on;
`profile`: what was seen of its steps is written at the end; `numpy`: with a learning rate and a hyperparameter of numpy's, and a path; `best`: with a
ModelCheckpoint beside Swell's checkpoints, and a logger that notes how it ends; `aside`: saves are written beside the training; EIO: common.fail_with()."""

import json
import os
import pathlib
import sys
import time

import lightning.pytorch as pl
import numpy
import torch
from lightning.pytorch.callbacks import BaseFinetuning, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard

import common
from swell.integrations import LightningElastic


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        # GroupNorm: statistics of a batch would depend on how it is shared out.
        self.layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(2, channels), nn.ReLU(),
                                    nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x):
        return torch.relu(x + self.layers(x))


class ResNet(pl.LightningModule):
    rate = 3e-3
    words = ()
    elastic = None      # whose profile is written

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(8, 4))

    def configure_model(self):
        if "sharded" in self.words:
            for layer in [each for each in self.net if isinstance(each, (Block, nn.Linear))] + [self.net]:
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.loss = loss.detach()
        return loss

    def validation_step(self, batch, _index):
        with open(common.path("evaluating"), "w"):
            pass
        if os.path.exists(common.path("slowly")):
            time.sleep(0.1)

    def on_train_batch_end(self, *_):
        common.fill()
        loss = self.trainer.strategy.reduce(self.loss.clone(), reduce_op="mean")
        common.log(self.trainer.global_step, float(loss), self.trainer.world_size)
        if self.elastic is not None and self.trainer.global_step == common.steps():
            common.write_profile(self.elastic._departure.profile.session)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW([each for each in self.parameters() if each.requires_grad], lr=self.rate)
        if "sgd" in self.words:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
        return [optimizer], [] if "unscheduled" in self.words else [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


class Ends(CSVLogger):
    def finalize(self, status):
        if os.environ["RANK"] == "0":
            with open(common.path("ended"), "a") as file:
                file.write(f"{status}\n")
        super().finalize(status)


class Begins(pl.Callback):
    def on_train_batch_start(self, trainer, *_):
        common.begins(trainer.global_step + 1)


class Unfreezes(BaseFinetuning):
    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.net[0])

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.net[0], optimizer)


def images(count):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 1, 8, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 0, 0] > 0).long())


def main(arguments):
    common.fail_as_told(arguments)
    elastic = LightningElastic(common.path("checkpoints"), every=0 if "no-checkpoints" in arguments else 10)
    passes = 2 if "accumulates" in arguments else 1
    own = [ModelCheckpoint(common.path("checkpoints/own"), every_n_train_steps=3, save_top_k=-1, save_on_exception=True, filename="{step}")]
    trainer = pl.Trainer(
        accelerator="cpu", devices=elastic.devices,
        strategy=ModelParallelStrategy(data_parallel_size=elastic.devices, tensor_parallel_size=1) if "sharded" in arguments else "ddp", num_nodes=elastic.num_nodes, callbacks=[Begins(), elastic, *(own if "best" in arguments else []), *([Unfreezes()] if "unfreezes" in arguments else [])],
        plugins=[AsyncCheckpointIO()] if "aside" in arguments else None,
        use_distributed_sampler=False, accumulate_grad_batches=passes, max_steps=common.steps(), logger=Ends(common.path("."), version=elastic.version) if "best" in arguments else False, enable_checkpointing="best" in arguments, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=20 if "evaluate" in arguments else 0, num_sanity_val_steps=0,
        default_root_dir=common.path("."))
    model = ResNet()
    model.words = arguments
    if "drops" in arguments:
        model.net.append(nn.Dropout(0.1))
    if "unreadable" in arguments:
        model.save_hyperparameters({"x": Ends})
    if "numpy" in arguments:
        model.rate = numpy.float64(3e-3)
        model.save_hyperparameters({"rate": model.rate, "folder": pathlib.Path("data")})
    if "profile" in arguments:
        model.elastic = elastic
    trainer.fit(model, elastic.loader(images(60 if "fewer" in arguments else common.SAMPLES), global_batch=common.GLOBAL_BATCH // passes),
                torch.utils.data.DataLoader(images(20)) if "evaluate" in arguments else None, ckpt_path=elastic.newest())
    if "numpy" in arguments and trainer.is_global_zero:
        with open(common.path("hyperparameters"), "w") as file:
            json.dump(torch.load(elastic.newest(), weights_only=True)["hyper_parameters"], file)


if __name__ == "__main__":
    main(sys.argv[1:])
