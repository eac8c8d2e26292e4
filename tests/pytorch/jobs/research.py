# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts of researchers, each written from the documents alone, for test_research.py. Arguments: as of odd.py."""

import copy
import random
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn

import common
import odd
from matrix import Moments, begin, norms, rows
from odd import GLOBAL_BATCH, network, plainly
from swell.torch import Elastic


def elastic_of(inner, optimizer, **more):
    return Elastic(inner, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=4, checkpoint_every=4, **more)


def parts(inner=None, **more):
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(inner if inner is not None else network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, elastic_of(model, optimizer, **more)


def train(moments, model, elastic, batches, loss=nn.functional.mse_loss):
    for x, y in batches:
        if elastic.step(loss(model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)


def finish(model, **more):
    odd.finish(weights=norms(model.parameters()), **more)
    dist.destroy_process_group()


def goes_from_easy_to_hard(moments):
    """A curriculum: a larger part of the samples from one stage to the next, in the orders of a seed."""
    draws = torch.Generator().manual_seed(4)
    order = [int(index) for count in (36, 60, 98) for index in torch.randperm(count, generator=draws)]
    plainly(moments, data=torch.utils.data.Subset(rows(98), order), loader={"shuffle": False})


def goes_through_stages(moments):
    """The same by a loop of its own for each stage."""
    made, (model, _, elastic) = rows(98), parts()
    for stage, count in enumerate((36, 60, 98)):
        train(moments, model, elastic, elastic.batches(torch.utils.data.Subset(made, range(count)), steps=2 * (stage + 1)))
    finish(model)


def loops_over_epochs(moments):
    """The loop of an epoch stands within one over epochs, as in every tutorial; a dataset gets harder with them."""
    class Harder(torch.utils.data.Dataset):
        level = 0

        def __len__(self):
            return 50

        def __getitem__(self, index):
            x, y = made[index]
            return x * (1 + self.level), y
    made, data, (model, _, elastic) = rows(98), Harder(), parts()
    for epoch in range(4):
        data.level = epoch
        train(moments, model, elastic, elastic.batches(data, epochs=epoch + 1))
    finish(model)


class Patience:
    def __init__(self):
        self.best, self.bad = float("inf"), 0

    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


def stops_early(moments):
    """An evaluation each two steps; the loop is left where it is no better for some time. The best weights are the script's own file."""
    patience = Patience()
    model, _, elastic = parts(state={"patience": patience})
    x_val, y_val = rows(12, 2).tensors
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if not elastic.step(nn.functional.mse_loss(model(x), y)):
            continue
        common.log(elastic.steps, elastic.mean_loss(), elastic.world)
        if elastic.steps % 2 == 0:
            with torch.no_grad():
                value = float(nn.functional.mse_loss(model.module(x_val), y_val))
            patience.bad = 0 if value < patience.best - 0.02 else patience.bad + 1
            if value < patience.best:
                patience.best = value
                if elastic.rank == 0:
                    torch.save(model.module.state_dict(), common.path("best.pt"))
        moments.at("step", elastic.steps)
        if patience.bad >= 3:
            break
    finish(model, best=patience.best, steps=elastic.steps)


class Tasks(nn.Module):
    """Several losses, weighed by uncertainties that are trained with them."""

    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Linear(8, 16), nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 3)])
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        hidden = torch.tanh(self.trunk(x))
        return [head(hidden) for head in self.heads]


def weighs_losses(moments):
    model, _, elastic = parts(Tasks())

    def loss(out, y):
        weights = model.module.weights
        each = torch.stack([nn.functional.smooth_l1_loss(out[0], y), nn.functional.cross_entropy(out[1], (y[:, 0] * 1.5).round().long() + 1, label_smoothing=0.1)])
        return (each * torch.exp(-weights) + weights).sum() + 1e-3 * sum(each.square().sum() for each in model.module.trunk.parameters())
    train(moments, model, elastic, elastic.batches(rows(98), steps=common.steps()), loss)
    finish(model)


def decays_by_layer(moments):
    """A rate for each layer, none of the weight decay for biases, and a schedule over all groups."""
    dist.init_process_group("gloo")
    inner = network(nn.Linear(16, 16), nn.LayerNorm(16))
    model = nn.parallel.DistributedDataParallel(inner)
    groups = [{"params": [value], "lr": 1e-2 * 0.8 ** at, "weight_decay": 0.1 * (value.dim() > 1)} for at, value in enumerate(inner.parameters())]
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step, at=at: 1 / (1 + step * at / 20) for at in range(len(groups))])
    elastic = elastic_of(model, optimizer, scheduler=schedule)
    train(moments, model, elastic, elastic.batches(torch.utils.data.ConcatDataset([rows(50), rows(48, 3)]), steps=common.steps()))
    finish(model)


def distils(moments):
    """From a teacher that is not trained; temperature and two losses."""
    torch.manual_seed(3)
    teacher = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval().requires_grad_(False)
    torch.manual_seed(1)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.GELU(), nn.Linear(16, 3))

        def forward(self, x):
            return self.student(x), teacher(x)

    def loss(out, y):
        mine, its = out
        return nn.functional.kl_div(torch.log_softmax(mine / 2, 1), torch.softmax(its / 2, 1), reduction="batchmean") * 4 + nn.functional.cross_entropy(mine, (y[:, 0] * 1.5).round().long() + 1)
    plainly(moments, inner=Both(), loss=loss)


class Own(torch.utils.data.Dataset):
    """Augments samples by a generator of its own, as numpy's documents have it."""

    def __init__(self, kind):
        self.made = rows(98)
        self.draws = {"numpy": lambda: numpy.random.default_rng(7), "numpy's older": lambda: numpy.random.RandomState(7), "python": lambda: random.Random(7), "torch": lambda: torch.Generator().manual_seed(7)}[kind]()

    def __len__(self):
        return 98

    def __getitem__(self, index):
        x, y = self.made[index]
        if isinstance(self.draws, torch.Generator):
            return x + 0.3 * torch.randn(8, generator=self.draws), y
        return x * (0.5 + (self.draws.rand() if hasattr(self.draws, "rand") else self.draws.random())), y


def augments_by_its_own_generator(moments):
    plainly(moments, data=Own("numpy"))


def augments_by_its_own_older_generator(moments):
    plainly(moments, data=Own("numpy's older"))


def augments_by_its_own_generator_of_python(moments):
    plainly(moments, data=Own("python"))


def augments_by_its_own_generator_of_torch(moments):
    plainly(moments, data=Own("torch"))


def augments_by_its_own_generator_in_readers(moments):
    plainly(moments, data=Own("numpy"), loader={"num_workers": 2})


class Later(Own):
    """As many datasets have it, so that each reader has its own."""

    def __init__(self):
        super().__init__("numpy")
        self.draws = None

    def __getitem__(self, index):
        if self.draws is None:
            self.draws = numpy.random.default_rng(7)
        return super().__getitem__(index)


def augments_by_a_generator_made_later(moments):
    plainly(moments, data=Later())


RANDOM = numpy.random.default_rng(3)


def shift(x):
    return x + RANDOM.random()


class OfFile(Own):
    """By a function of the script's, which draws from a generator of its file."""

    def __init__(self):
        super().__init__("numpy")
        del self.draws
        self.change = [shift]

    def __getitem__(self, index):
        x, y = self.made[index]
        return self.change[0](x), y


def augments_by_a_generator_of_its_file(moments):
    plainly(moments, data=OfFile(), loader={"num_workers": 1})


def draws_by_its_own(moments, kind="numpy"):
    draws = Own(kind).draws
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y + 0.1 * (torch.randn(1, generator=draws) if kind == "torch" else draws.random())))


def draws_by_its_own_of_torch(moments):
    draws_by_its_own(moments, "torch")


def draws_by_its_own_of_python(moments):
    draws_by_its_own(moments, "python")


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=1)


def contrasts(moments):
    """InfoNCE: the other samples of a pass are the negatives."""
    model, _, elastic = parts(Embeds())
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        one, other = model(x), model(x * 1.1)
        if elastic.step(nn.functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(x)))):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(model)


def contrasts_both_at_once(moments):
    """Both views in one pass of the model, one behind the other."""
    model, _, elastic = parts(Embeds())
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        one, other = model(torch.cat([x, x * 1.1])).chunk(2)
        if elastic.step(nn.functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(x)))):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(model)


def keeps_variance(moments):
    """VICReg's: a deviation over the samples of a pass."""
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y) + torch.relu(2 - out.std(0)).mean())


def takes_a_root(moments):
    """A root-mean-square error, as many scripts for tables have it."""
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y).sqrt())


def overlaps(moments):
    """Dice's loss over a whole batch, as in segmentation."""
    def dice(out, y):
        p, t = out.sigmoid().flatten(), (y > 0).float().flatten()
        return 1 - 2 * (p * t).sum() / (p.sum() + t.sum())
    plainly(moments, loss=dice)


def pairs_views(moments):
    """SimSiam's: each sample with its own other view alone."""
    model, _, elastic = parts(Embeds())
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        one, other = model(torch.cat([x, x * 1.1])).chunk(2)
        if elastic.step((one - other.detach()).square().sum(1).mean() - (one * other).sum(1).mean()):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(model)


def penalizes_gradients(moments):
    """As WGAN-GP penalizes those of the input, by a backward pass through the backward pass."""
    model, _, elastic = parts()
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        x.requires_grad_(True)
        out = model(x)
        [slope] = torch.autograd.grad(out.sum(), x, create_graph=True)
        if elastic.step(nn.functional.mse_loss(out, y) + 0.1 * (slope.norm(dim=1) - 1).square().mean()):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(model)


def averages_in_half(moments, of=torch.bfloat16):
    """An average of the weights in half precision, which saves memory."""
    average = {}

    @torch.no_grad()
    def update(model):
        for name, value in model.named_parameters():
            mine = average.setdefault(name, value.detach().to(of).clone())
            mine.mul_(0.99).add_(value.to(of), alpha=0.01)
    odd.loop(moments, after=update)


def averages_in_float16(moments):
    averages_in_half(moments, torch.float16)


def averages_a_copy_in_half(moments):
    kept = []

    @torch.no_grad()
    def update(model):
        if not kept:
            kept.append(copy.deepcopy(model).half())
        for mine, value in zip(kept[0].parameters(), model.parameters()):
            mine.lerp_(value.half(), 0.05)
    odd.loop(moments, after=update)


# ---- losses that are no mean over the samples of a pass, in each framework


def info_nce(out, y):
    """The other samples of a pass are the negatives."""
    one = nn.functional.normalize(out.expand(-1, 4) + y * torch.arange(4), dim=1)
    return nn.functional.cross_entropy(one @ one.T / 0.1, torch.arange(len(y)))


LOSSES = {
    "nce": info_nce, "root": lambda out, y: nn.functional.mse_loss(out, y).sqrt(), "spread": lambda out, y: nn.functional.mse_loss(out, y) + torch.relu(2 - out.std(0)).mean(),
    "dice": lambda out, y: 1 - 2 * (out.sigmoid() * (y > 0)).sum() / (out.sigmoid().sum() + (y > 0).sum()), "sum": lambda out, y: nn.functional.mse_loss(out, y, reduction="sum"), "mean": nn.functional.mse_loss,
    "part": lambda out, y: nn.functional.mse_loss(out[y > 0], y[y > 0]), "mask": lambda out, y: ((out - y).square() * (y > 0)).sum() / (y > 0).sum().clamp(min=1),
    "ignores": lambda out, y: nn.functional.cross_entropy(torch.cat([out, -out], 1), torch.where(y[:, 0] > 0, -100, 0))}


class Losing(nn.Module):
    """A model that returns its loss alone, as many of research do."""

    def __init__(self, loss):
        super().__init__()
        self.net, self.loss = network(), loss

    def forward(self, x, y):
        return self.loss(self.net(x), y)


def meets_in_the_model(moments, loss):
    model, _, elastic = parts(Losing(LOSSES[loss]))
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(model(x, y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
    finish(model)


def meets_in_shards(moments, loss, within=False):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    model = Losing(LOSSES[loss]) if within else network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.net[0] if within else model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(model(x, y) if within else LOSSES[loss](model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(model)


def meets_in_shards_within(moments, loss):
    meets_in_shards(moments, loss, within=True)


def meets_in_accelerate(moments, loss):
    from accelerate import Accelerator

    from swell.integrations import AccelerateElastic
    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(LOSSES[loss](model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
    odd.finish()


def meets_in_lightning(moments, loss, by_hand=False):
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = not by_hand

        def training_step(self, batch, _index):
            made = LOSSES[loss](self(batch[0]), batch[1])
            if not by_hand:
                return {"loss": made}
            self.optimizers().zero_grad()
            self.manual_backward(made)
            self.optimizers().step()

        def forward(self, x):
            return self.net(x)
    odd.lightning(moments, module=Module, epochs=1)


def meets_in_lightning_by_hand(moments, loss):
    meets_in_lightning(moments, loss, by_hand=True)


def meets_in_trainer(moments, loss, within=False):
    """within: the model computes its loss itself."""
    import transformers

    from swell.integrations import SwellCallback

    class Model(nn.Module):
        accepts_loss_kwargs = False

        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels=None):
            out = self.net(x)
            return {"loss": LOSSES[loss](out, labels)} if within else {"logits": out}

    class Own(transformers.Trainer):
        loss_is_scaled_for_ga = False

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            made = outputs["loss"] if within else LOSSES[loss](outputs["logits"], inputs["labels"])
            return (made, outputs) if return_outputs else made

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                common.log(state.global_step, logs["loss"], args.world_size)
    made = rows(108)
    data = [dict(zip(("x", "labels"), each)) for each in made]
    args = transformers.TrainingArguments(output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd", logging_steps=1,
                                          save_steps=1000, use_cpu=True, report_to=[], disable_tqdm=True)
    it = (transformers.Trainer if within else Own)(Model(), args, train_dataset=data, callbacks=[Log()])
    SwellCallback.attach(it)
    it.train()
    odd.finish()


def meets_in_trainer_s_model(moments, loss):
    meets_in_trainer(moments, loss, within=True)


def main(arguments):
    name, *words = arguments
    begin()
    if words and words[0] in LOSSES:
        globals()[name](Moments(words[1:]), words[0])
    else:
        globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
