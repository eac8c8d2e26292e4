# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts that keep, print and log values beside a training without changing it, for test_harmless.py. Arguments: as of odd.py."""

import collections
import json
import sys
import time

import torch
from torch import nn
from tqdm import tqdm

import common
from matrix import Moments, begin, rows
from research import elastic_of, finish
from varied import logs, of_lightning, parts_of

F = nn.functional


LOSSES = []
TIMES = {"step": []}
RECENT = collections.deque(maxlen=10)
BEST = {"loss": float("inf"), "step": 0}
COUNTS = collections.Counter()


def plots_losses(moments):
    """A loss function that keeps its values for a plot."""
    losses = []

    def loss_of(model, x, y):
        loss = F.mse_loss(model(x), y)
        losses.append(loss.item())
        return loss
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(loss_of(model, x, y)):
            logs(moments, elastic)
    with open(common.path("plot.json"), "w") as file:
        json.dump(losses, file)
    finish(model)


def timed(function, *arguments):
    begun = time.perf_counter()
    made = function(*arguments)
    TIMES["step"].append(time.perf_counter() - begun)
    COUNTS["calls"] += 1
    return made


def times_its_passes(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        made = timed(model, x)
        if elastic.step(F.mse_loss(made, y)):
            logs(moments, elastic)
    finish(model)


def smooth(value):
    RECENT.append(value)
    return sum(RECENT) / len(RECENT)


def prints_a_running_average(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = F.mse_loss(model(x), y)
        print(f"loss {smooth(loss.item()):.3f}")
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def names_a_running_average(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = F.mse_loss(model(x), y)
        average = smooth(loss.item())
        text = f"loss {average:.3f}"
        if elastic.steps % 2 == 0:
            print(text)
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def shows_a_bar(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    bar = tqdm(elastic.batches(rows(98), steps=common.steps()), disable=None)
    for x, y in bar:
        loss = F.mse_loss(model(x), y)
        bar.set_postfix(loss=f"{smooth(loss.item()):.3f}")
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def line(step, loss):
    LOSSES.append(loss)
    return json.dumps({"step": step, "loss": loss, "mean": sum(LOSSES) / len(LOSSES)})


def writes_lines_of_json(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    with open(common.path("lines.json"), "a") as file:
        for x, y in elastic.batches(rows(98), steps=common.steps()):
            loss = F.mse_loss(model(x), y)
            file.write(line(elastic.steps, loss.item()) + "\n")
            if elastic.step(loss):
                logs(moments, elastic)
    finish(model)


def loss_and_best(model, x, y):
    """Prints its smallest value so far."""
    loss = F.mse_loss(model(x), y)
    value = loss.item()
    if value < BEST["loss"]:
        BEST["loss"] = value
        BEST["step"] += 1
        print(f"best {BEST['loss']:.3f}")
    return loss


def prints_its_best_in_the_loss(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(loss_and_best(model, x, y)):
            logs(moments, elastic)
    finish(model)


def loss_and_mean(model, x, y):
    loss = F.mse_loss(model(x), y)
    LOSSES.append(loss.detach())
    if len(LOSSES) >= 2:
        mean = torch.stack(LOSSES).mean().item()
        print(f"mean loss {mean:.3f}")
        LOSSES.clear()
    return loss


def prints_a_mean_now_and_then(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(loss_and_mean(model, x, y)):
            logs(moments, elastic)
    finish(model)


class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value):
        self.sum, self.count = self.sum + value, self.count + 1

    def mean(self):
        return self.sum / self.count


def prints_a_meter(moments):
    model, optimizer, _ = parts_of()
    elastic, meter = elastic_of(model, optimizer), Meter()
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = F.mse_loss(model(x), y)
        meter.update(loss.item())
        print("mean", meter.mean())
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def lightning_logs_numbers(moments):
    """Numbers of Python that no sample has a part in."""
    begun = time.perf_counter()

    def numbers(module, loss, x):
        module.log("seconds", time.perf_counter() - begun)
        module.log("beta", min(1.0, (1 + module.global_step) / 10))
    of_lightning(moments, logs=numbers)


def lightning_keeps_losses(moments):
    kept = []

    def numbers(module, loss, x):
        kept.append(loss.item())
    of_lightning(moments, logs=numbers)


def lightning_logs_gradients(moments):
    def before(module, optimizer):
        module.log("gradients", torch.stack([each.grad.norm() for each in module.parameters()]).norm())
        module.log("weights", torch.stack([each.detach().norm() for each in module.parameters()]).norm())
    of_lightning(moments, hooks={"on_before_optimizer_step": before})


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
