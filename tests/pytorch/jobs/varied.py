# SPDX-License-Identifier: GPL-2.0-or-later
"""More scripts of researchers, each of another kind, for test_varied.py. Arguments: as of odd.py."""

import collections
import copy
import itertools
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn

import common
import odd
from matrix import Moments, begin, norms, rows
from odd import GLOBAL_BATCH, network, plainly
from research import elastic_of, finish, train
from swell.torch import Elastic

F = nn.functional


def logs(moments, elastic):
    common.log(elastic.steps, elastic.mean_loss(), elastic.world)
    moments.at("step", elastic.steps)


def averages_stochastically(moments):
    """torch's SWA: an average from a step on, and a schedule of its own from there."""
    model, optimizer, _ = parts_of()
    average = torch.optim.swa_utils.AveragedModel(model.module)
    rates = torch.optim.swa_utils.SWALR(optimizer, swa_lr=5e-3, anneal_epochs=3)
    elastic = elastic_of(model, optimizer, state={"average": average, "rates": rates})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            if elastic.steps > 5:
                average.update_parameters(model.module)
                rates.step()
            logs(moments, elastic)
    torch.optim.swa_utils.update_bn(torch.utils.data.DataLoader(rows(12, 2), batch_size=4), average)
    finish(model, average=norms(average.parameters()), rate=optimizer.param_groups[0]["lr"])


def parts_of(inner=None, lr=1e-2):
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(inner if inner is not None else network())
    return model, torch.optim.AdamW(model.parameters(), lr=lr), None


def restarts_within_epochs(moments):
    """Cosine with warm restarts, stepped by the script by parts of an epoch."""
    model, optimizer, _ = parts_of()
    rates = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2)
    elastic = elastic_of(model, optimizer, state={"rates": rates})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            rates.step(elastic.steps / 9)
            logs(moments, elastic)
    finish(model, rate=optimizer.param_groups[0]["lr"])


def plateaus_on_a_validation(moments):
    """An evaluation each three steps, over a shuffled loader with readers, and a rate that follows it."""
    model, optimizer, _ = parts_of()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.2)
    elastic = elastic_of(model, optimizer, state={"plateau": plateau})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if not elastic.step(F.mse_loss(model(x), y)):
            continue
        logs(moments, elastic)
        if elastic.steps % 3 == 0:
            model.eval()
            with torch.no_grad():
                losses = [float(F.mse_loss(model.module(a), b)) for a, b in torch.utils.data.DataLoader(rows(12, 2), batch_size=4, shuffle=True)]
            model.train()
            plateau.step(sum(losses) / len(losses))
    finish(model, rate=optimizer.param_groups[0]["lr"])


class Lengths(torch.utils.data.Dataset):
    """Sequences of unlike lengths, sorted by these."""

    def __init__(self):
        draws = torch.Generator().manual_seed(5)
        lengths = sorted(torch.randint(2, 9, (98,), generator=draws).tolist())
        self.made = [(torch.randn(length, 4, generator=draws), torch.randn(length, generator=draws)) for length in lengths]

    def __len__(self):
        return 98

    def __getitem__(self, index):
        return self.made[index]


def pads(samples):
    return (*(nn.utils.rnn.pad_sequence([each[at] for each in samples], batch_first=True) for at in (0, 1)), torch.tensor([len(each[0]) for each in samples]))


class Recurs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x, lengths):
        out, _ = self.net(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
        return self.head(out)[..., 0]


def buckets(moments, loss="samples"):
    """Sequences of about one length in a batch, padded; loss: a mean over each sample's own values, or over all values of a pass that are no padding, or over all values."""
    model, optimizer, _ = parts_of(Recurs())
    data = Lengths()
    blocks = torch.randperm(49, generator=torch.Generator().manual_seed(2)).tolist()
    data = torch.utils.data.Subset(data, [2 * block + at for block in blocks for at in (0, 1)])
    elastic = elastic_of(model, optimizer, max_grad_norm=1.0)
    for x, y, lengths in elastic.batches(data, steps=common.steps(), shuffle=False, collate_fn=pads):
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        each = (model(x, lengths) - y).square() * mask
        made = {"samples": lambda: (each.sum(1) / lengths).mean(), "values": lambda: each.sum() / mask.sum(), "all": lambda: each.mean()}[loss]()
        if elastic.step(made):
            logs(moments, elastic)
    finish(model)


def buckets_over_values(moments):
    buckets(moments, "values")


def buckets_over_all(moments):
    buckets(moments, "all")


def keeps_readers(moments):
    """Readers that stay over epochs, read ahead, and draw."""
    class Draws(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            x, y = made[index]
            return x + 0.1 * torch.randn(8), y
    made = rows(98)
    plainly(moments, data=Draws(), loader={"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3})


def accumulates_unevenly(moments):
    """Passes of five samples, of which a global batch of twelve is no multiple."""
    model, optimizer, _ = parts_of()
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=5, checkpoint_every=4)
    train(moments, model, elastic, elastic.batches(rows(100), steps=common.steps(), drop_last=True))
    finish(model)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.other = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x):
        hidden = torch.tanh(self.trunk(x))
        return self.one(hidden), self.other(hidden)


def mixes_tasks(moments, by_sample=False):
    """Samples of two tasks in one dataset, a head for each. by_sample: a mean over all samples, and not over those of each task in a pass."""
    class Tasks(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            return (*made[index], index % 3 == 0)
    made = rows(98)
    model, optimizer, _ = parts_of(Both())
    elastic = elastic_of(model, optimizer)
    for x, y, is_first in elastic.batches(Tasks(), steps=common.steps()):
        one, other = model(x)
        if by_sample:
            loss = (F.mse_loss(one, y, reduction="none") * is_first[:, None] + F.mse_loss(other, y, reduction="none") * ~is_first[:, None]).mean()
        else:
            loss = F.mse_loss(one[is_first], y[is_first]) + F.mse_loss(other[~is_first], y[~is_first]) if is_first.any() and not is_first.all() else one.mean() * 0 + other.mean() * 0
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def mixes_tasks_by_sample(moments):
    mixes_tasks(moments, by_sample=True)


def queues(moments):
    """MoCo: negatives of a queue that the script keeps, and a slow copy that gives the keys."""
    model, optimizer, _ = parts_of(nn.Linear(8, 4))
    slow = copy.deepcopy(model.module).requires_grad_(False)
    queue = F.normalize(torch.randn(24, 4, generator=torch.Generator().manual_seed(3)), dim=1)
    at = 0
    elastic = elastic_of(model, optimizer, state={"slow": slow})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        one, keys = F.normalize(model(x), dim=1), F.normalize(slow(x * 1.1), dim=1)
        logits = torch.cat([(one * keys).sum(1, keepdim=True), one @ queue.T], 1) / 0.2
        if elastic.step(F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))):
            logs(moments, elastic)
        for key in keys:
            queue[at % 24] = key
            at += 1
        for mine, its in zip(slow.parameters(), model.module.parameters()):
            mine.lerp_(its.detach(), 0.1)
    finish(model)


def carries_a_state(moments):
    """Back-propagation through parts of a long sequence: the hidden state goes from one step to the next."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.head = nn.GRUCell(8, 8), nn.Linear(8, 1)

        def forward(self, x, hidden):
            hidden = self.net(x, hidden.expand(len(x), -1))
            return self.head(hidden), hidden
    model, optimizer, _ = parts_of(Net())
    elastic = elastic_of(model, optimizer)
    hidden = torch.zeros(1, 8)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        out, now = model(x, hidden)
        hidden = now.detach().mean(0, keepdim=True)
        if elastic.step(F.mse_loss(out, y)):
            logs(moments, elastic)
    finish(model)


def clips_by_history(moments):
    """A limit of the gradient from those of the steps before."""
    model, optimizer, _ = parts_of()
    history = collections.deque(maxlen=5)
    elastic = elastic_of(model, optimizer)

    def clip(*_):
        norm = float(torch.nn.utils.get_total_norm([each.grad for each in model.parameters()]))
        history.append(norm)
        torch.nn.utils.clip_grad_norm_(model.parameters(), sum(history) / len(history))
    optimizer.register_step_pre_hook(clip)
    train(moments, model, elastic, elastic.batches(rows(98), steps=common.steps()))
    finish(model)


class Ahead(torch.optim.Optimizer):
    """Lookahead around another optimizer, with its slow weights as an attribute, as scripts have it."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0
        self.slow = [[each.detach().clone() for each in group["params"]] for group in inner.param_groups]
        super().__init__([{"params": group["params"], "lr": group["lr"]} for group in inner.param_groups], {})

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        if self.count % 3 == 0:
            for group, slow in zip(self.inner.param_groups, self.slow):
                for mine, its in zip(group["params"], slow):
                    its.lerp_(mine, 0.5)
                    mine.copy_(its)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict)


def looks_ahead(moments):
    model, optimizer, _ = parts_of()
    ahead = Ahead(optimizer)
    elastic = elastic_of(model, ahead)
    train(moments, model, elastic, elastic.batches(rows(98), steps=common.steps()))
    finish(model)


class Counting(torch.optim.SGD):
    """An optimizer of the script's own, whose warm-up counts its steps by itself."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.done = 0

    def step(self, closure=None):
        self.done += 1
        for group in self.param_groups:
            group["lr"] = 0.02 * min(1, self.done / 10)
        return super().step(closure)


def counts_in_its_optimizer(moments):
    model, _, _ = parts_of()
    optimizer = Counting(model.parameters(), lr=0.02, momentum=0.9)
    elastic = elastic_of(model, optimizer)
    train(moments, model, elastic, elastic.batches(rows(98), steps=common.steps()))
    finish(model)


def adapts(moments):
    """LoRA by peft, in a loop of the script's own; two rates."""
    import peft

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x)))
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(peft.get_peft_model(Base(), peft.LoraConfig(r=2, target_modules=["first"], modules_to_save=["last"], lora_dropout=0.1)))
    groups = [{"params": [value for name, value in model.named_parameters() if value.requires_grad and ("lora_B" in name) == fast], "lr": 1e-2 * (1 + 3 * fast)} for fast in (False, True)]
    elastic = elastic_of(model, torch.optim.AdamW(groups))
    train(moments, model, elastic, elastic.batches(rows(98), steps=common.steps()))
    finish(model)


def plays(moments):
    """REINFORCE: a dataset of seeds, whose samples are actions drawn by the model there is; the baseline is a running mean."""
    class Seeds(torch.utils.data.Dataset):
        def __len__(self):
            return 96

        def __getitem__(self, index):
            draws = torch.Generator().manual_seed(index)
            return torch.randn(8, generator=draws), torch.rand(1, generator=draws)
    model, optimizer, _ = parts_of()
    baseline = 0.0
    elastic = elastic_of(model, optimizer)
    for x, chance in elastic.batches(Seeds(), steps=common.steps()):
        p = model(x).sigmoid()
        action = (chance < p.detach()).float()
        reward = action * x[:, :1]
        loss = -((reward - baseline) * (action * p + (1 - action) * (1 - p)).clamp(min=1e-4).log()).mean()
        baseline = 0.9 * baseline + 0.1 * float(reward.mean())
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def mines_the_hardest(moments):
    """The mean of the two largest losses of a pass."""
    plainly(moments, loss=lambda out, y: F.mse_loss(out, y, reduction="none").flatten().topk(2).values.mean())


def averages_its_own_norm(moments):
    """A norm over the samples of a pass that is not torch's."""
    class Norm(nn.Module):
        def forward(self, x):
            return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    plainly(moments, inner=nn.Sequential(nn.Linear(8, 16), Norm(), nn.Tanh(), nn.Linear(16, 1)))


def plays_a_gan(moments):
    """Two optimizers in Lightning, by hand."""
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.judge = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))

        def training_step(self, batch, _index):
            x, y = batch
            first, second = self.optimizers()
            self.toggle_optimizer(first)
            judged = self.judge(self.net(x))
            loss = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))
            self.manual_backward(loss)
            first.step()
            first.zero_grad()
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
            real, fake = self.judge(y), self.judge(self.net(x).detach())
            loss = (F.binary_cross_entropy_with_logits(real, torch.ones_like(real)) + F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))) / 2
            self.manual_backward(loss)
            second.step()
            second.zero_grad()
            self.untoggle_optimizer(second)

        def configure_optimizers(self):
            return [torch.optim.Adam(self.net.parameters(), lr=1e-2), torch.optim.Adam(self.judge.parameters(), lr=1e-2, betas=(0.5, 0.9))]
    odd.lightning(moments, module=Module, strategy="ddp_find_unused_parameters_true")


def lightning_decays_by_plateau(moments):
    """Several schedules and groups, and a rate that follows the validation."""
    class Module(odd.lightning_module()):
        def configure_optimizers(self):
            groups = [{"params": [each], "lr": 0.05 * 0.9 ** at} for at, each in enumerate(self.parameters())]
            optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
            return [optimizer], [{"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5), "monitor": "val"}]
    odd.lightning(moments, module=Module)


def lightning_counts_by_itself(moments):
    """A module that carries values from one step to the next."""
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.mean = 0.0

        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.mean = 0.9 * self.mean + 0.1 * float(loss)
            return loss / (1 + self.mean)
    odd.lightning(moments, module=Module)


def of_lightning(moments, *, logs=lambda module, loss, x: None, hooks=None, **more):
    """A module that logs what is given, with other methods."""
    class Module(odd.lightning_module()):
        def training_step(self, batch, _index):
            loss = F.mse_loss(self.net(batch[0]), batch[1])
            logs(self, loss, batch[0])
            return loss
    for name, each in (hooks or {}).items():
        setattr(Module, name, each)
    odd.lightning(moments, module=Module, **more)


def lightning_logs_of_samples(moments):
    """Extremes and sums of samples, which every number of workers has alike."""
    def logs(module, loss, x):
        each = module.net(x)
        for by, value in (("max", each.max()), ("min", each.amin()), ("sum", each.sum())):
            module.log(by, value, reduce_fx=by, sync_dist=True, on_step=False, on_epoch=True)
        module.log("count", torch.tensor(len(x)), reduce_fx=torch.sum, sync_dist=True, on_step=True, on_epoch=True)
        module.log_dict({"loss": loss}, sync_dist=True, on_step=True, on_epoch=True)
        module.log("rate", module.optimizers().param_groups[0]["lr"])
    of_lightning(moments, logs=logs)


def lightning_reduces_by_functions(moments):
    """Functions of Python and torch, and a process group, in place of names."""
    def logs(module, loss, x):
        each, group = module.net(x), torch.distributed.group.WORLD
        for name, by, value in (("max", max, each.max()), ("min", min, each.amin()), ("sum", sum, each.sum()), ("torch", torch.max, each.max())):
            module.log(name, value, reduce_fx=by, sync_dist=True, on_step=False, on_epoch=True)
        module.log("of_group", loss, sync_dist=True, sync_dist_group=group, on_step=False, on_epoch=True)
    of_lightning(moments, logs=logs)


def lightning_logs_of_workers(moments):
    def logs(module, loss, x):
        module.log("alone", loss)
        module.log_dict({"all": loss}, sync_dist=True)
        module.log("worst", loss, reduce_fx="max", sync_dist=True, on_epoch=True)
        module.log("total", loss, reduce_fx="sum", sync_dist=True, on_epoch=True)
    of_lightning(moments, logs=logs)


def follow(teacher, net):
    for one, other in zip(teacher.parameters(), net.parameters()):
        one.data.mul_(0.9).add_(other.data, alpha=0.1)


def lightning_hides_a_teacher(moments, where="list", follows=True, part=2):
    """It follows a part of the student. where: it stands."""
    class Holds:
        def __init__(self, module):
            self.module = module
    held = []

    def teacher(module):
        if not held:
            held.append(copy.deepcopy(module.net[:part]))
            draws = torch.Generator().manual_seed(2)
            for each in held[0].parameters():
                each.data.uniform_(-0.5, 0.5, generator=draws)
            if where == "list":
                module.teachers = [held[0]]
            elif where == "object":
                module.ema = Holds(held[0])
        return module.teachers[0] if where == "list" else module.ema.module if where == "object" else held[0]

    def step(module, batch, _index):
        with torch.no_grad():
            target = teacher(module)(batch[0])
        return F.mse_loss(module.net(batch[0]), batch[1]) + F.mse_loss(module.net[:part](batch[0]), target)

    def batch_end(module, *_):
        if follows:
            follow(teacher(module), module.net[:part])
    of_lightning(moments, hooks={"training_step": step, "on_train_batch_end": batch_end})


def lightning_hides_a_teacher_in_an_object(moments):
    lightning_hides_a_teacher(moments, "object")


def lightning_hides_a_teacher_in_a_closure(moments):
    lightning_hides_a_teacher(moments, "closure")


def lightning_hides_a_fixed_teacher(moments):
    lightning_hides_a_teacher(moments, follows=False)


def lightning_scales_its_rate(moments):
    def batch_start(module, *_):
        scale = module.trainer.world_size
        for group in module.optimizers().param_groups:
            group["lr"] = 0.05 * scale
    of_lightning(moments, hooks={"on_train_batch_start": batch_start})


def lightning_warms_its_rate_up(moments):
    def batch_start(module, *_):
        for group in module.optimizers().param_groups:
            group["lr"] = 0.05 * min(1, (module.trainer.global_step + 1) / 5)
    of_lightning(moments, hooks={"on_train_batch_start": batch_start})


def lightning_decays_by_epochs(moments):
    """A number of the module's class, which is another one from the end of the first epoch on."""
    def step(module, batch, _index):
        return F.mse_loss(module.net(batch[0]), batch[1]) * module.weight
    of_lightning(moments, hooks={"training_step": step, "weight": 1.0, "on_train_epoch_end": falls})


def falls(module):
    module.weight *= 0.7


def with_a_function(moments, loss, after=lambda value: None, inner=None, read=lambda batches: batches):
    """loss: of the model and a batch. after: called with the loss of each step."""
    model, optimizer, _ = parts_of(inner)
    elastic = elastic_of(model, optimizer)
    for x, y in read(elastic.batches(rows(98), steps=common.steps())):
        if elastic.step(loss(model, x, y)):
            after(elastic.mean_loss())
            logs(moments, elastic)
    finish(model)


def remembers_in_a_function(moments):
    seen = []

    def loss(model, x, y):
        seen.append((x[0], y[0]))
        return F.mse_loss(model(x), y) + F.mse_loss(model(seen[0][0]), seen[0][1])
    with_a_function(moments, loss)


WEIGHTS = numpy.ones(2)


def weighs_by_an_array(moments):
    def after(value):
        WEIGHTS[0] *= 0.98
    with_a_function(moments, lambda model, x, y: F.mse_loss(model(x), y) * float(WEIGHTS[0]), after)


class Weighs:
    def __init__(self):
        self.weights = numpy.ones(2)


def weighs_by_an_object(moments):
    weighs = Weighs()

    def loss(model, x, y):
        return F.mse_loss(model(x), y) * float(weighs.weights[0])

    def after(value):
        weighs.weights[0] *= 1 + 0.1 * value
    with_a_function(moments, loss, after)


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
        self.register_buffer("mean", torch.zeros(1), persistent=False)

    def forward(self, x):
        return self.net(x) - self.mean


def centres_by_a_buffer(moments):
    """Which no state_dict() has."""
    inner = Centred()
    with_a_function(moments, lambda model, x, y: F.mse_loss(model(x), y), lambda value: inner.mean.mul_(0.9).add_(0.1 * value), inner)


def counts_by_a_bar(moments):
    import tqdm
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    bar = tqdm.tqdm(elastic.batches(rows(98), steps=common.steps()), mininterval=60)
    print(file=sys.stderr, flush=True)
    for x, y in bar:
        bar.set_postfix_str(f"{bar.n}", refresh=False)
        if elastic.step(F.mse_loss(model(x), y) * (1 + 0.1 * bar.n)):
            logs(moments, elastic)
    finish(model)


def cycles_beside(moments):
    """A few samples of another kind go round beside the batches."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    others = itertools.cycle(list(rows(7, 5)))
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        one, its = next(others)
        if elastic.step(F.mse_loss(model(x), y) + F.mse_loss(model(one), its)):
            logs(moments, elastic)
    finish(model)


def follows_a_part(moments, state=None):
    """BYOL's: a target network follows a part of the model, and takes part in the loss."""
    model, optimizer, _ = parts_of()
    target = copy.deepcopy(model.module[:2]).requires_grad_(False)
    elastic = elastic_of(model, optimizer, state={"target": target} if state else {})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y) + F.mse_loss(model.module[:2](x), target(x))):
            follow(target, model.module[:2])
            logs(moments, elastic)
    finish(model)


def follows_a_part_and_keeps_it(moments):
    follows_a_part(moments, True)


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
