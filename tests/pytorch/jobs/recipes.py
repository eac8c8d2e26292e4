# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with recipes that research code shares, for test_recipes.py. Arguments: as of odd.py."""

import copy
import os
import random
import signal
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn

import common
import odd
from matrix import Moments, begin, norms, rows
from odd import GLOBAL_BATCH, network
from research import elastic_of, finish
from varied import logs, parts_of
from swell.torch import Elastic

F = nn.functional


def train(moments, model, elastic, *, data=None, loss=F.mse_loss, before=lambda step: None, **more):
    for x, y in elastic.batches(data if data is not None else rows(98), steps=common.steps(), **more):
        before(elastic.steps)
        if elastic.step(loss(model(x), y)):
            logs(moments, elastic)


# ---- schedules


def warms_up_by_workers(moments):
    """The schedule's length follows from the length of a loader of this worker's, as in the loop of before."""
    model, optimizer, _ = parts_of()
    loader = torch.utils.data.DataLoader(rows(98), batch_size=GLOBAL_BATCH, sampler=torch.utils.data.DistributedSampler(rows(98)))
    total = 2 * len(loader)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.1, 1 - step / total))
    elastic = elastic_of(model, optimizer, scheduler=rates)
    train(moments, model, elastic)
    finish(model, rate=optimizer.param_groups[0]["lr"])


def decays_by_workers(moments):
    """As transformers' schedules are: a partial of a function."""
    import transformers
    model, optimizer, _ = parts_of()
    rates = transformers.get_cosine_schedule_with_warmup(optimizer, 2, 24 // dist.get_world_size())
    elastic = elastic_of(model, optimizer, scheduler=rates)
    train(moments, model, elastic)
    finish(model, rate=optimizer.param_groups[0]["lr"])


def one_cycle_by_loader(moments):
    """OneCycleLR by the length of a loader."""
    model, optimizer, _ = parts_of()
    loader = torch.utils.data.DataLoader(rows(98), batch_size=GLOBAL_BATCH // dist.get_world_size())
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.03, epochs=2, steps_per_epoch=len(loader))
    elastic = elastic_of(model, optimizer, scheduler=rates)
    train(moments, model, elastic)
    finish(model, rate=optimizer.param_groups[0]["lr"])


def scales_its_rate(moments):
    """A rate that goes with the number of workers, as with ImageNet in an hour, and is set by hand."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    base = 5e-3 * dist.get_world_size()

    def warm(step):
        for group in optimizer.param_groups:
            group["lr"] = base * min(1, (step + 1) / 5)
    train(moments, model, elastic, before=warm)
    finish(model, rate=optimizer.param_groups[0]["lr"])


# ---- counters and events


def penalizes_lazily(moments):
    """A penalty each four batches, by the number of the batch."""
    model, _, elastic = (*parts_of()[:2], None)
    elastic = elastic_of(model, _)
    for i, (x, y) in enumerate(elastic.batches(rows(98), steps=common.steps())):
        loss = F.mse_loss(model(x), y)
        if i % 4 == 0:
            loss = loss + 0.1 * sum(each.square().sum() for each in model.parameters())
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def prints_by_number(moments):
    """The same number for lines that are printed alone."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for i, (x, y) in enumerate(elastic.batches(rows(98), steps=common.steps())):
        loss = F.mse_loss(model(x), y)
        if elastic.step(loss):
            logs(moments, elastic)
        if i % 4 == 0:
            print("batch", i, loss.item())
    finish(model)


def raises_a_weight_once(moments):
    """At one step; the value is read behind that."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    weight = 0.0
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.steps == 1:
            weight = 0.1
        loss = F.mse_loss(model(x), y) + weight * sum(each.square().sum() for each in model.parameters())
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


class Growing(torch.utils.data.Dataset):
    """Samples whose size, here how much of each there is, grows."""
    level = 4

    def __len__(self):
        return 98

    def __getitem__(self, index):
        x, y = MADE[index]
        return x * (torch.arange(8) < self.level), y


MADE = rows(98)


def resizes_once(moments):
    """Progressive resizing at one step."""
    data = Growing()
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(data, steps=common.steps()):
        if elastic.steps == 1:
            data.level = 8
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
    finish(model)


def resizes_by_steps(moments, readers=0):
    """The same, set at each step."""
    data = Growing()
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(data, steps=common.steps(), num_workers=readers):
        data.level = 8 if elastic.steps >= 4 else 4
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
    finish(model)


def resizes_by_steps_in_readers(moments):
    resizes_by_steps(moments, readers=1)


def ends_by_the_clock(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    begun = time.time()
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
        if time.time() - begun > 3600:
            break
    finish(model)


def dies(place):
    """Rank 0 is killed here, once, if there is a file of the place's name."""
    if int(os.environ["RANK"]) == 0 and os.path.exists(path := common.path(f"dies.{place}")):
        os.remove(path)
        os.kill(os.getpid(), signal.SIGKILL)


def acts_behind_epochs(moments):
    """A schedule, an option of a group and a count of the script's change behind each epoch; rank 0 may be killed before and after that."""
    model, optimizer, _ = parts_of()
    rates, seen = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4), odd.Count()
    elastic = elastic_of(model, optimizer, state={"rates": rates, "seen": seen})
    for epoch in range(4):
        for x, y in elastic.batches(rows(48), epochs=epoch + 1):
            if elastic.step(F.mse_loss(model(x), y)):
                logs(moments, elastic)
        dies(f"before.{epoch}")
        rates.step()
        seen.steps += 1
        optimizer.param_groups[0]["weight_decay"] *= 2
        dies(f"after.{epoch}")
    finish(model, rate=optimizer.param_groups[0]["lr"], decay=optimizer.param_groups[0]["weight_decay"], seen=seen.steps)


# ---- things beside the model


class Center(nn.Module):
    """DINO's loss: a running centre of what the teacher returns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 4))

    def forward(self, student, teacher):
        loss = -(torch.softmax((teacher - self.center) / 0.1, 1).detach() * torch.log_softmax(student / 0.2, 1)).sum(1).mean()
        with torch.no_grad():
            mean = teacher.mean(0, keepdim=True)
            if dist.get_world_size() > 1:
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            self.center.mul_(0.9).add_(0.1 * mean)
        return loss


def centers(moments, given=False):
    """DINO: a slow teacher, and a centre within the loss."""
    model, optimizer, _ = parts_of(nn.Linear(8, 4))
    teacher, loss = copy.deepcopy(model.module).requires_grad_(False), Center()
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=4, state={"teacher": teacher, **({"loss": loss} if given else {})})
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        made = loss(model(x), teacher(x * 1.1))
        if elastic.step(made):
            with torch.no_grad():
                for mine, its in zip(teacher.parameters(), model.module.parameters()):
                    mine.lerp_(its, 0.1)
            logs(moments, elastic)
    finish(model, center=norms([loss.center]))


def centers_and_keeps(moments):
    centers(moments, given=True)


def distils_a_teacher_that_trains(moments):
    """A teacher with a BatchNorm that nobody has told that it is one: its statistics move."""
    torch.manual_seed(4)
    teacher = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).requires_grad_(False)
    begin()
    model, optimizer, _ = parts_of()
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=4)
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        with torch.no_grad():
            wanted = teacher(x)
        if elastic.step(F.mse_loss(model(x), wanted)):
            logs(moments, elastic)
    finish(model)


class Regularizes(nn.Module):
    """Early-learning regularization: an average of what the model says of each sample."""

    def __init__(self):
        super().__init__()
        self.target = torch.zeros(98, 1)

    def forward(self, index, out, y):
        self.target[index] = 0.7 * self.target[index] + 0.3 * out.detach()
        return F.mse_loss(out, y) + 0.5 * ((1 - self.target[index] * out).square()).mean()


class Numbered(torch.utils.data.Dataset):
    def __len__(self):
        return 98

    def __getitem__(self, index):
        return (index, *MADE[index])


def remembers_samples(moments):
    model, optimizer, _ = parts_of()
    criterion = Regularizes()
    elastic = elastic_of(model, optimizer)
    for index, x, y in elastic.batches(Numbered(), steps=common.steps()):
        if elastic.step(criterion(index, model(x), y)):
            logs(moments, elastic)
    finish(model)


class Adaptive:
    """A loss of a plain class, whose weight follows its own losses."""

    def __init__(self):
        self.scale = 1.0

    def __call__(self, out, y):
        each = (out - y).abs()
        self.scale = 0.9 * self.scale + 0.1 * float(each.mean())
        return (each / (1 + self.scale)).mean()


def adapts_its_loss(moments):
    model, optimizer, _ = parts_of()
    criterion = Adaptive()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = criterion(model(x), y)
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


class Meter:
    """Means of values that are shown alone."""

    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, count):
        self.sum, self.count = self.sum + value * count, self.count + count


def shows_means(moments):
    model, optimizer, _ = parts_of()
    meter = Meter()
    criterion = nn.MSELoss()
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = criterion(model(x), y)
        meter.update(loss.item(), len(x))
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def plays_two(moments, micro_batch=None):
    """A GAN by hand: the judge's optimizer is stepped by the script, the judge has a DistributedDataParallel of its own, and both are given as state=."""
    model, optimizer, _ = parts_of()
    judge = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(1, 8), nn.LeakyReLU(), nn.Linear(8, 1)))
    other = torch.optim.Adam(judge.parameters(), lr=1e-2, betas=(0.5, 0.9))
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=micro_batch, checkpoint_every=4, state={"judge": judge, "other": other})
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        real, fake = judge(y), judge(model(x).detach())
        (F.softplus(-real).mean() + F.softplus(fake).mean()).backward()
        other.step()
        judge.requires_grad_(False)
        done = elastic.step(F.softplus(-judge(model(x))).mean())
        judge.requires_grad_(True)
        other.zero_grad()
        if done:
            logs(moments, elastic)
    finish(model, judge=norms(judge.parameters()))


def plays_two_in_passes(moments):
    plays_two(moments, 4)


# ---- checkpoints of the script's own


def loads_its_own(moments, where="after"):
    """Saves and loads the weights by itself, too."""
    model, optimizer, _ = parts_of()
    if where == "before" and os.path.exists(common.path("own.pt")):
        model.load_state_dict(torch.load(common.path("own.pt")))
    elastic = elastic_of(model, optimizer)
    if where == "after" and os.path.exists(common.path("own.pt")):
        model.load_state_dict(torch.load(common.path("own.pt")))
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
            if elastic.steps % 5 == 1 and elastic.rank == 0:
                torch.save(model.state_dict(), common.path("own.pt"))
    finish(model)


def loads_its_own_before(moments):
    loads_its_own(moments, "before")


def initializes_late(moments):
    """The weights are made after the loop is elastic."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    for each in model.parameters():
        if each.dim() > 1:
            nn.init.xavier_normal_(each, generator=torch.Generator().manual_seed(1))
    train(moments, model, elastic)
    finish(model)


def initializes_late_by_data(moments):
    """As older scripts do, past autograd."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    draws = torch.Generator().manual_seed(1)
    for each in model.parameters():
        each.data.normal_(0, 0.2, generator=draws)
    train(moments, model, elastic)
    finish(model)


def writes_the_same(moments):
    """Loads what is there, and has all workers take the first one's values."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each in model.parameters():
        dist.broadcast(each.data, 0)
    train(moments, model, elastic)
    finish(model)


def loads_its_optimizer(moments):
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    if os.path.exists(common.path("own.pt")):
        optimizer.load_state_dict(torch.load(common.path("own.pt")))
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
            if elastic.steps % 5 == 1 and elastic.rank == 0:
                torch.save(optimizer.state_dict(), common.path("own.pt"))
    finish(model)


# ---- phases


def trains_in_phases(moments):
    """Another model is trained after the loop of the first, from its weights."""
    dist.init_process_group("gloo")
    first = nn.parallel.DistributedDataParallel(network())
    one = Elastic(first, torch.optim.AdamW(first.parameters(), lr=1e-2), directory=common.path("one"), global_batch=GLOBAL_BATCH, checkpoint_every=4)
    for x, y in one.batches(rows(98), steps=common.steps() // 2):
        if one.step(F.mse_loss(first(x), y)):
            logs(moments, one)
    inner = network()
    inner.load_state_dict(first.module.state_dict())
    inner[0].requires_grad_(False)
    second = nn.parallel.DistributedDataParallel(inner)
    other = Elastic(second, torch.optim.SGD([each for each in second.parameters() if each.requires_grad], lr=0.1, momentum=0.9), directory=common.path("other"), global_batch=GLOBAL_BATCH, checkpoint_every=4)
    for x, y in other.batches(rows(50, 3), steps=common.steps() - common.steps() // 2):
        if other.step(F.mse_loss(second(x), y)):
            step = other.steps + common.steps() // 2
            common.log(step, other.mean_loss(), other.world)
            moments.at("step", step)
    finish(second)


class Acts(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        return torch.log_softmax(self.net(x), 1)


def keeps_its_best(moments):
    """As the page on transfer learning has it: the best weights so far begin as a copy of the first ones."""
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    best = copy.deepcopy(model.module.state_dict())
    train(moments, model, elastic)
    odd.finish(weights=norms(model.parameters()), best=norms(best.values()))


# ---- readers


def seeds_readers(moments):
    """As PyTorch's page on reproducibility has it."""
    def seed(_worker):
        at = torch.initial_seed() % 2 ** 32
        numpy.random.seed(at)
        random.seed(at)

    class Draws(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            x, y = MADE[index]
            return x + 0.2 * float(numpy.random.randn()) + 0.1 * random.random() + 0.1 * torch.randn(8), y
    model, optimizer, _ = parts_of()
    elastic = elastic_of(model, optimizer)
    train(moments, model, elastic, data=Draws(), num_workers=2, worker_init_fn=seed, generator=torch.Generator().manual_seed(0))
    finish(model)


# ---- losses


def weighs_tokens_of_all(moments):
    """Divides by the number of tokens of all workers, as loops over DistributedDataParallel do."""
    model, optimizer, _ = parts_of()
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=4)
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        mask = (y > 0).float()
        count = mask.sum()
        if dist.get_world_size() > 1:
            dist.all_reduce(count)
        loss = (F.mse_loss(model(x), y, reduction="none") * mask).sum() * dist.get_world_size() / count
        if elastic.step(loss):
            logs(moments, elastic)
    finish(model)


def prefers(moments):
    """DPO by hand, with a reference that is a copy of the first weights."""
    torch.manual_seed(5)
    first = Acts()
    reference = copy.deepcopy(first).requires_grad_(False)
    begin()
    model, optimizer, _ = parts_of(first)
    elastic = elastic_of(model, optimizer)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        good, bad = (y[:, 0] > 0).long(), 2 + (y[:, 0] > 0).long()
        both, its = model(x), reference(x)
        gain = (both.gather(1, good[:, None]) - both.gather(1, bad[:, None])) - (its.gather(1, good[:, None]) - its.gather(1, bad[:, None]))
        if elastic.step(-F.logsigmoid(0.5 * gain).mean()):
            logs(moments, elastic)
    finish(model)


def prefers_its_first_weights(moments):
    """The same, but the reference is a copy of the weights that the start has loaded."""
    model, optimizer, _ = parts_of(Acts())
    elastic = elastic_of(model, optimizer)
    reference = copy.deepcopy(model.module).requires_grad_(False)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        good, bad = (y[:, 0] > 0).long(), 2 + (y[:, 0] > 0).long()
        both, its = model(x), reference(x)
        gain = (both.gather(1, good[:, None]) - both.gather(1, bad[:, None])) - (its.gather(1, good[:, None]) - its.gather(1, bad[:, None]))
        if elastic.step(-F.logsigmoid(0.5 * gain).mean()):
            logs(moments, elastic)
    finish(model)


class Low(nn.Module):
    """LoRA by hand."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, inner.in_features)), nn.Parameter(torch.zeros(inner.out_features, 2))

    def forward(self, x):
        return self.inner(x) + x @ self.a.T @ self.b.T


def adapts_by_hand(moments):
    torch.manual_seed(5)
    inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    inner[0] = Low(inner[0])
    begin()
    model, _, _ = parts_of(inner)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    elastic = elastic_of(model, optimizer)
    train(moments, model, elastic)
    finish(model)


class Masters(torch.optim.Optimizer):
    """Keeps the weights and the momentum of parameters in bfloat16 in float32."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                if not state:
                    state.update(master=each.float(), momentum=torch.zeros_like(each, dtype=torch.float32))
                state["momentum"].mul_(0.9).add_(each.grad.float() if each.grad is not None else 0.0)
                state["master"].add_(state["momentum"], alpha=-group["lr"])
                each.copy_(state["master"])


def keeps_masters(moments):
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network().bfloat16())
    optimizer = Masters(model.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=1, checkpoint_every=4)
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x.bfloat16()).float(), y)):
            logs(moments, elastic)
    finish(model, masters=norms(each["master"] for each in optimizer.state.values()))


def shards_in_half(moments, offload=False):
    """FSDP2 with mixed precision, and passes of one size."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network()
    more = {"offload_policy": CPUOffloadPolicy(pin_memory=False)} if offload else {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    fully_shard(model[0], mesh=mesh, **more)
    fully_shard(model, mesh=mesh, **more)
    elastic = Elastic(model, torch.optim.AdamW(model.parameters(), lr=1e-2), directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=2, checkpoint_every=4)
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x).float(), y)):
            logs(moments, elastic)
    finish_shards(model)


def shards_and_offloads(moments):
    shards_in_half(moments, offload=True)


def finish_shards(model):
    found = [float(each.full_tensor().double().norm()) for each in model.parameters()]
    odd.finish(weights=found)
    dist.destroy_process_group()


# ---- Accelerate


def accelerates_as_before(moments, by="accumulate", steps=1):
    """A loop of before, with its accumulate() around the step, and an evaluation by gather_for_metrics()."""
    from accelerate import Accelerator

    from swell.integrations import AccelerateElastic
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    held = torch.utils.data.DataLoader(rows(12, 2), batch_size=2)
    model, optimizer, held = accelerator.prepare(model, optimizer, held)
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=4)
    found = []
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if by == "accumulate":
            with accelerator.accumulate(model):
                done = elastic.step(F.mse_loss(model(x), y))
        else:
            done = elastic.step(F.mse_loss(model(x), y))
        if done:
            logs(moments, elastic)
            if elastic.steps == common.steps():
                with torch.no_grad():
                    for a, b in held:
                        found.append(accelerator.gather_for_metrics((model(a) - b).square().sum(1)))
    odd.finish(weights=norms(model.parameters()), held=float(torch.cat(found).mean()) if found else 0.0, samples=sum(map(len, found)))


def accelerates_and_accumulates(moments):
    accelerates_as_before(moments, steps=2)


# ---- Lightning


def lightning_logs_by_hand(moments, every=2):
    """Manual optimization with a step each two batches, of which each logs."""
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def note(self, loss, samples):
            self.log("train", loss, sync_dist=True)

        def training_step(self, batch, index):
            self.manual_backward(super().training_step(batch, index) / every)
            if index % every == every - 1:
                self.optimizers().step()
                self.optimizers().zero_grad()
    odd.lightning(moments, module=Module)


def lightning_warms_up_by_a_callback(moments):
    """A callback that counts steps by itself."""
    import lightning.pytorch as pl

    class Warms(pl.Callback):
        def __init__(self):
            self.seen = 0

        def on_train_batch_start(self, trainer, *_):
            self.seen += 1
            trainer.optimizers[0].param_groups[0]["lr"] = 0.01 * min(self.seen, 8)
    odd.lightning(moments, callbacks=[Warms()], epochs=2)


def lightning_decays_by_workers(moments):
    class Module(odd.lightning_module()):
        def configure_optimizers(self):
            optimizer, total = super().configure_optimizers(), 24 // self.trainer.world_size
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.1, 1 - step / total)), "interval": "step"}}
    odd.lightning(moments, module=Module)


def trainer_warms_up_by_a_callback(moments):
    import transformers

    class Warms(transformers.TrainerCallback):
        def __init__(self):
            self.seen = 0

        def on_step_begin(self, args, state, control, optimizer=None, **_):
            self.seen += 1
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * min(self.seen, 8)
    odd.trainer(moments, repaired=True, callbacks=[Warms()], options={"lr_scheduler_type": "constant"})


def trainer_keeps_the_state_of_a_callback(moments):
    """The same, whose state the Trainer saves."""
    import transformers
    from transformers.trainer_callback import ExportableState

    class Warms(transformers.TrainerCallback, ExportableState):
        def __init__(self, seen=0):
            self.seen = seen

        def on_step_begin(self, args, state, control, optimizer=None, **_):
            self.seen += 1
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * min(self.seen, 8)

        def state(self):
            return {"args": {"seen": self.seen}, "attributes": {"seen": self.seen}}
    odd.trainer(moments, repaired=True, callbacks=[Warms()], options={"lr_scheduler_type": "constant"})


def lightning_steps_twice(moments):
    """Two optimizers, each of which counts as a step of Lightning's."""
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def note(self, loss, samples):
            self.log("train", loss, sync_dist=True)

        def training_step(self, batch, index):
            for each in self.optimizers():
                loss = super().training_step(batch, index)
                each.zero_grad()
                self.manual_backward(loss)
                each.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.net[:2].parameters(), lr=0.05), torch.optim.SGD(self.net[2:].parameters(), lr=0.05)]
    odd.lightning(moments, module=Module)


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
