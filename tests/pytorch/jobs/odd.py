# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary scripts with something odd in each, for test_odd.py. Arguments: the script's name, which is that of a function here, and steps
after which the job is asked to leave, each once, as step@6.

Each start makes other weights: what is not gone on with shows. At the end rank 0 writes to `end` what every resize must leave as it is."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import common
from matrix import Moments, begin, norms, rows
from swell.torch import Elastic

GLOBAL_BATCH = 12


def network(*more):
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *more, nn.Linear(16, 1))


def finish(**found):
    if int(os.environ.get("RANK", "0")) == 0:
        with open(common.path("end"), "w") as file:
            json.dump(found, file)


# ---- plain loops


def loop(moments, *more, samples=108, parameters=lambda model: model.parameters(), after=lambda model: None, state=None):
    """parameters: what the optimizer is given. after: called with what is trained, after each optimizer step."""
    dist.init_process_group("gloo")
    inner = network(*more)
    model = nn.parallel.DistributedDataParallel(inner)
    elastic = Elastic(model, torch.optim.AdamW(parameters(inner), lr=1e-2), directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=4,
                      state=state)
    for x, y in elastic.batches(rows(samples), steps=common.steps()):
        if elastic.step(nn.functional.mse_loss(model(x), y)):
            after(inner)
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(weights=norms(model.parameters()), state={name: norms(thing.parameters()) for name, thing in (state or {}).items()})
    dist.destroy_process_group()


def averages(moments):
    """An average of weights that the script updates when a step is over; each 4 steps there is a checkpoint."""
    average = torch.optim.swa_utils.AveragedModel(network(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    loop(moments, after=average.update_parameters, state={"average": average})


def normalizes(moments):
    loop(moments, nn.BatchNorm1d(16))


def normalizes_a_rest(moments):
    """The last batch of an epoch has two samples."""
    loop(moments, nn.BatchNorm1d(16), samples=26)


def trains_more_than_the_model(moments):
    loop(moments, parameters=lambda model: [*model.parameters(), nn.Parameter(torch.ones(()))])


def notes_a_function(moments):
    loop(moments, parameters=lambda model: [{"params": model.parameters(), "decay": lambda step: 0.9 ** step}])


# ---- transformers' Trainer


def trainer(moments, of="mean", repaired=False):
    """The loss of each pass is a mean: of a model that takes other arguments, of a function, or of a Trainer's own method.

    repaired: as the package's sentence asks for."""
    import transformers

    from swell.integrations import SwellCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()
            if of == "model" and repaired:
                self.accepts_loss_kwargs = False

        def forward(self, x, labels=None, **more):
            out = self.net(x)
            return {"logits": out, **({"loss": nn.functional.mse_loss(out, labels)} if labels is not None else {})}

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 108

        def __getitem__(self, index):
            return dict(zip(("x", "labels"), made[index]))

    class Mean(transformers.Trainer):
        if repaired:
            loss_is_scaled_for_ga = False

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return nn.functional.mse_loss(model(x=inputs["x"])["logits"], inputs["labels"])

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                common.log(state.global_step, logs["loss"], args.world_size)
                moments.at("step", state.global_step)

    def function(outputs, labels, num_items_in_batch=None):
        if repaired:
            return nn.functional.mse_loss(outputs["logits"], labels, reduction="sum") / num_items_in_batch
        return nn.functional.mse_loss(outputs["logits"], labels)

    made = rows(108)
    args = transformers.TrainingArguments(
        output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd",
        logging_steps=1, save_steps=1000, use_cpu=True, report_to=[], disable_tqdm=True, logging_nan_inf_filter=False)
    kind = Mean if of == "method" else transformers.Trainer
    it = kind(Model(), args, train_dataset=Data(), callbacks=[Log()], compute_loss_func=function if of == "function" else None)
    SwellCallback.attach(it)
    it.train()
    finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()))


def trainer_mean_of_model(moments):
    trainer(moments, "model")


def trainer_mean_of_function(moments):
    trainer(moments, "function")


def trainer_mean_of_method(moments):
    trainer(moments, "method")


def trainer_repaired_model(moments):
    trainer(moments, "model", repaired=True)


def trainer_repaired_function(moments):
    trainer(moments, "function", repaired=True)


def trainer_repaired_method(moments):
    trainer(moments, "method", repaired=True)


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
