# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary scripts with something odd in each, for test_odd.py. Arguments: the script's name, which is that of a function here, and steps
after which the job is asked to leave, each once, as step@6.

Each start makes other weights: what is not gone on with shows. At the end rank 0 writes to `end` what every resize must leave as it is."""

import json
import os
import sys
import time

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


def loop(moments, *more, samples=108, parameters=lambda model: model.parameters(), after=lambda model: None, state=None, schedule=lambda optimizer: None, later=lambda elastic, optimizer: None):
    """parameters: what the optimizer is given. after: called with what is trained, after each optimizer step. schedule: makes one of the script's own; later: once the loop is elastic."""
    dist.init_process_group("gloo")
    inner = network(*more)
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(parameters(inner), lr=1e-2)
    schedule(optimizer)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=4, state=state)
    later(elastic, optimizer)
    for x, y in elastic.batches(rows(samples), steps=common.steps()):
        if elastic.step(nn.functional.mse_loss(model(x), y)):
            after(inner)
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(weights=norms(model.parameters()), state={name: norms(thing.parameters()) for name, thing in (state or {}).items() if isinstance(thing, nn.Module)})
    dist.destroy_process_group()


def averages(moments):
    """An average of weights that the script updates when a step is over; each 4 steps there is a checkpoint."""
    average = torch.optim.swa_utils.AveragedModel(network(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    loop(moments, after=average.update_parameters, state={"average": average})


def forgets_its_average(moments, of=torch.optim.swa_utils.AveragedModel):
    average = of(network())
    loop(moments, after=average.update_parameters)


class Mean(torch.optim.swa_utils.AveragedModel):
    pass


def forgets_an_average_of_its_own_kind(moments):
    forgets_its_average(moments, Mean)


class Averages:
    """The weights' averages by name, as scripts write it."""

    def __init__(self, model):
        self.kept = {name: value.detach().clone() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, value in model.named_parameters():
            self.kept[name] = 0.9 * self.kept[name] + 0.1 * value

    def state_dict(self):
        return dict(self.kept)

    def load_state_dict(self, state):
        self.kept = dict(state)


def forgets_averages_by_name(moments):
    loop(moments, after=Averages(network()).update)


def holds_averages_by_name(moments):
    averages = Averages(network())
    loop(moments, after=averages.update, state={"averages": averages})


def forgets_a_copy_that_averages(moments):
    copy = network()

    @torch.no_grad()
    def update(model):
        for mine, value in zip(copy.parameters(), model.parameters()):
            mine.lerp_(value, 0.1)
    loop(moments, after=update)


def notes_differences_by_name(moments):
    noted = {}
    loop(moments, after=lambda model: noted.update({name: value.detach() - noted.get(name, 0) for name, value in model.named_parameters()}))


def other_training(moments, other, state=None, **options):
    """Another module is trained by an optimizer of its own after each step. state: of these two, what is given."""
    module = nn.Linear(1, 1)
    optimizer = other(module.parameters(), lr=0.1)

    def train(_):
        module(torch.ones(1, 1)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    loop(moments, after=train, state=state(module, optimizer) if state else None, **options)


def forgets_another_optimizer(moments):
    other_training(moments, torch.optim.AdamW)


def forgets_another_optimizer_without_a_state(moments):
    other_training(moments, torch.optim.SGD)


class Values:
    """Values that a script counts by itself, with early stopping by the best loss so far."""

    def __init__(self):
        self.running, self.best, self.bad, self.stopped = 0.0, float("inf"), 0, 0

    def add(self, loss, step):
        self.running += loss
        self.bad = 0 if loss < self.best - 0.01 else self.bad + 1
        self.best = min(self.best, loss)
        if self.bad == 3 and not self.stopped:
            self.stopped = step

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


def counts_by_itself(moments, given=True):
    import torchmetrics
    values, metric = Values(), torchmetrics.MeanMetric()
    metric.persistent(True)
    dist.init_process_group("gloo")
    inner = network()
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, state={"values": values, "metric": metric} if given else None)
    for x, y in elastic.batches(rows(108), steps=common.steps()):
        elastic.step(nn.functional.mse_loss(model(x), y))
        loss = elastic.mean_loss()
        values.add(loss, elastic.steps), metric.update(loss)
        common.log(elastic.steps, loss, elastic.world)
        moments.at("step", elastic.steps)
    finish(**values.state_dict(), mean=float(metric.compute()))
    dist.destroy_process_group()


def forgets_what_it_counts(moments):
    counts_by_itself(moments, given=False)


class Held:
    """Has what a thing has, and holds others in ways of its own."""

    def __init__(self, *things):
        self.things = {"kept": list(things)}

    def state_dict(self):
        return {str(at): thing.state_dict() for at, thing in enumerate(self.things["kept"])}

    def load_state_dict(self, state):
        for at, thing in enumerate(self.things["kept"]):
            thing.load_state_dict(state[str(at)])


def holds_another_optimizer(moments):
    other_training(moments, torch.optim.AdamW, lambda module, optimizer: {"both": Held(module, optimizer)})


def forgets_its_schedule(moments, kind=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3)):
    made = []
    loop(moments, after=lambda _: made[0].step(), schedule=lambda optimizer: made.append(kind(optimizer)))


def forgets_its_plateau(moments):
    made = []
    loop(moments, after=lambda _: made[0].step(1.0), schedule=lambda optimizer: made.append(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)))


def begins_its_schedule_where_it_goes_on(moments):
    made = []
    loop(moments, after=lambda _: made[0].step(), later=lambda elastic, optimizer: made.append(
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step, last_epoch=elastic.steps - 1)))


def has_others_that_do_not_change(moments):
    """An average, optimizers and a schedule that no step changes; a copy of the weights; a probe that is trained anew after each step."""
    kept = []

    def make(elastic, optimizer):
        kept.extend([torch.optim.swa_utils.AveragedModel(elastic.model.module), torch.optim.Adam(elastic.model.parameters()), torch.optim.lr_scheduler.StepLR(optimizer, 9)])

    def probe(inner):
        copy, head = network(), nn.Linear(1, 1)
        copy.load_state_dict(inner.state_dict())
        kept[3:] = [copy, torch.optim.Adam(head.parameters())]
        for _ in range(3):
            head(torch.ones(1, 1)).sum().backward()
            kept[4].step()
    loop(moments, after=probe, later=make)


def saves_beside(moments):
    """Saves by itself, for longer than a step, while the job is asked to leave, and checks the save in the end."""
    from torch.distributed.checkpoint import FileSystemWriter, state_dict_saver
    write, saving = FileSystemWriter.write_data, []

    def slowly(writer, *arguments):
        if "own" in str(writer.path):
            time.sleep(0.5)
        return write(writer, *arguments)

    def save(model):
        if not saving and moments.due and os.environ["SWELL_GENERATION"] == "0":
            saving.append(state_dict_saver.async_save({"model": model.state_dict()}, checkpoint_id=common.path("own"), process_group=dist.new_group(backend="gloo")))
    FileSystemWriter.write_data = slowly
    try:
        loop(moments, after=save)
    finally:
        for each in saving:
            each.result()


# ---- plain loops that are ordinary in research: each is given to plainly(), which varies what Elastic is given


def plainly(moments, inner=None, schedule=None, clip=None, data=None, loss=nn.functional.mse_loss, before=lambda step, inner, optimizer: None, after=lambda loss: None, state=None, read=lambda batches: batches, trains=lambda inner: inner.parameters(), loader=None,
            max_grad_norm=None, tells_step=False, **options):
    """schedule: given as scheduler=. clip: the largest value of a gradient. before: called before each forward pass; after: with the loss of each step, and, if tells_step, its number.
    read: wraps batches(). trains: what the optimizer is given. loader: arguments of batches()."""
    dist.init_process_group("gloo")
    inner = inner if inner is not None else network()
    model = nn.parallel.DistributedDataParallel(inner, **options)
    optimizer = torch.optim.AdamW([{"params": list(trains(inner)), "lr": 1e-2}])
    if clip is not None:
        optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_value_(inner.parameters(), clip))
    made = state(optimizer) if state is not None else {}
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=4, checkpoint_every=4, scheduler=schedule(optimizer) if schedule is not None else None, state=made,
                      max_grad_norm=max_grad_norm)
    for x, y in read(elastic.batches(data if data is not None else rows(98), steps=common.steps(), **{"num_workers": 0, **(loader or {})})):
        before(elastic.steps, inner, optimizer)
        if elastic.step(loss(model(x), y)):
            after(elastic.mean_loss(), **({"step": elastic.steps} if tells_step else {}), **made)
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(weights=norms(model.parameters()), rates=[group["lr"] for group in optimizer.param_groups], decay=[group["weight_decay"] for group in optimizer.param_groups])
    dist.destroy_process_group()


def one_cycle(moments):
    """Which changes betas, too."""
    plainly(moments, schedule=lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=common.steps()), clip=0.1)


def warm_restarts(moments):
    plainly(moments, schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2))


def schedules_in_turn(moments):
    rates = torch.optim.lr_scheduler
    plainly(moments, schedule=lambda optimizer: rates.SequentialLR(optimizer, [rates.LinearLR(optimizer, 0.1, total_iters=4), rates.ExponentialLR(optimizer, 0.8)], [4]))


def schedules_in_a_chain(moments):
    rates = torch.optim.lr_scheduler
    plainly(moments, schedule=lambda optimizer: rates.ChainedScheduler([rates.ConstantLR(optimizer, 0.5, 5), rates.MultiplicativeLR(optimizer, lambda step: 0.95)]))


def plateau(moments):
    plainly(moments, state=lambda optimizer: {"plateau": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)}, after=lambda loss, plateau: plateau.step(loss))


class Tied(nn.Module):
    """An output layer that is the input layer transposed, with a checkpointed block that draws no masks."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.last.weight = self.first.weight
        self.block = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Dropout(0.3), nn.Tanh())

    def forward(self, x):
        hidden = torch.utils.checkpoint.checkpoint(self.block, self.first(x), use_reentrant=False)
        return self.last(hidden).sum(1, keepdim=True)


def ties_and_checkpoints(moments):
    """Weight tying, weight_norm, gradient checkpointing over dropout."""
    plainly(moments, inner=Tied())


def changes_rates_by_hand(moments):
    """And weight decay, as a warm-up without a schedule."""
    def change(step, inner, optimizer):
        for group in optimizer.param_groups:
            group["lr"], group["weight_decay"] = 1e-2 * min(1.0, (step + 1) / 6), 0.01 * step
    plainly(moments, before=change)


def smooths(moments):
    """Cross entropy with label smoothing."""
    x, y = rows(98).tensors
    plainly(moments, inner=nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), data=torch.utils.data.TensorDataset(x, (y[:, 0] * 1.5).round().long() + 1),
            loss=nn.CrossEntropyLoss(label_smoothing=0.1))


def classifies(moments, loss, ignores=False, alike=False):
    """Sequences of five tokens; ignores: some of them, in each sample as many if alike."""
    x, _ = rows(98).tensors
    y = torch.arange(98 * 5).view(98, 5) % 3
    if ignores:
        y[:, 0] = -100
    if ignores and not alike:
        y[::3, 2:] = -100
    plainly(moments, inner=nn.Sequential(nn.Linear(8, 15), nn.Unflatten(1, (5, 3))), data=torch.utils.data.TensorDataset(x, y), loss=loss)


def tokens_loss(out, y):
    return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())


def ignores_unlike_numbers(moments):
    classifies(moments, tokens_loss, ignores=True)


def ignores_one_of_each(moments):
    classifies(moments, tokens_loss, ignores=True, alike=True)


def ignores_and_divides_by_samples(moments):
    classifies(moments, lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="none").view(len(y), -1).sum(1).mean() / 5, ignores=True)


def weighs_classes(moments):
    kind = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    classifies(moments, lambda out, y: kind(out.transpose(1, 2), y))


def sums_its_loss(moments):
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y, reduction="sum"))


def divides_its_sum(moments):
    plainly(moments, loss=lambda out, y: nn.functional.smooth_l1_loss(out, y, reduction="sum") / len(y))


def reads_a_second_loader(moments, ends=False):
    """Reads unlabelled samples too, as in semi-supervised training. ends: within each step, as an evaluation's does."""
    loader = torch.utils.data.DataLoader(rows(400, seed=2), batch_size=4, shuffle=True)

    def read(batches):
        for (x, y), (other, _) in zip(batches, loader):
            yield x + 0 * other.mean(), y

    def evaluated(batches):
        kept = []
        for x, y in batches:
            yield x, y
            kept.append(iter(loader))
            assert sum(1 for _ in kept[-1]) == 100
    plainly(moments, read=evaluated if ends else read)


def evaluates_by_a_loader(moments):
    reads_a_second_loader(moments, ends=True)


class Counts(nn.Module):
    """As a codebook of averages, or a spectral norm, which iterates in each pass."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        return (x - self.mean) * self.scale


def changes_buffers(moments):
    plainly(moments, inner=nn.Sequential(Counts(), torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), network()))


def changes_no_buffers(moments):
    inner = nn.Sequential(nn.BatchNorm1d(8), network())
    inner.register_buffer("table", torch.randn(30))
    plainly(moments, inner=inner)


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


def trainer(moments, of="method", repaired=False, more=(), samples=108, parameters=lambda model: model.parameters(), options=None, callbacks=(), given=None):
    """parameters: what the optimizer is given. options: of TrainingArguments. given: averages of a model's weights, for attach(). The loss of each pass is a mean: of a model that takes other arguments, of a function, or of a Trainer's own method.

    repaired: as the package's sentence asks for."""
    import transformers

    from swell.integrations import SwellCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network(*more)
            if of == "model" and repaired:
                self.accepts_loss_kwargs = False

        def forward(self, x, labels=None, **more):
            out = self.net(x)
            return {"logits": out, **({"loss": nn.functional.mse_loss(out, labels)} if labels is not None else {})}

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return samples

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

    made = rows(samples)
    args = transformers.TrainingArguments(
        output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd",
        logging_steps=1, save_steps=1000, use_cpu=True, report_to=[], disable_tqdm=True, logging_nan_inf_filter=False,
        **(options or {}))
    kind = Mean if of == "method" else transformers.Trainer
    model = Model()
    it = kind(model, args, train_dataset=Data(), callbacks=[*callbacks, Log()], optimizers=(torch.optim.SGD(parameters(model), lr=0.05), None), compute_loss_func=function if of == "function" else None)
    SwellCallback.attach(it, state=given)
    it.train()
    finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()), averages={name: norms(thing.parameters()) for name, thing in (given or {}).items()})


def trainer_classifies(moments, repaired=False, of="BertForSequenceClassification"):
    """With a model of transformers' that takes num_items_in_batch, and whose loss is a mean all the same."""
    import transformers

    from swell.integrations import SwellCallback

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 108

        def __getitem__(self, index):
            ids = torch.randint(0, 90, (7,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids.clone() if of == "T5ForConditionalGeneration" else ids.sum() % 3}

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                common.log(state.global_step, logs["loss"], args.world_size)
                moments.at("step", state.global_step)
    if of == "T5ForConditionalGeneration":
        config = transformers.T5Config(vocab_size=96, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0)
    else:
        config = transformers.BertConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = getattr(transformers, of)(config)
    if repaired:
        model.accepts_loss_kwargs = False
    args = transformers.TrainingArguments(output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd",
                                          logging_steps=1, save_steps=1000, use_cpu=True, report_to=[], disable_tqdm=True)
    it = transformers.Trainer(model, args, train_dataset=Data(), callbacks=[Log()])
    SwellCallback.attach(it)
    it.train()
    finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()))


def trainer_classifies_repaired(moments):
    trainer_classifies(moments, repaired=True)


def trainer_translates(moments):
    trainer_classifies(moments, of="T5ForConditionalGeneration")


def trainer_mean_of_model(moments):
    trainer(moments, "model")


def trainer_mean_of_function(moments):
    trainer(moments, "function")


def trainer_mean_of_method(moments):
    trainer(moments, "method")


def trainer_normalizes(moments):
    trainer(moments, repaired=True, more=[nn.BatchNorm1d(16)])


def trainer_normalizes_a_rest(moments):
    trainer(moments, repaired=True, more=[nn.BatchNorm1d(16)], samples=26)


def trainer_trains_more_than_the_model(moments):
    trainer(moments, repaired=True, parameters=lambda model: [*model.parameters(), nn.Parameter(torch.ones(()))])


def trainer_repaired_model(moments):
    trainer(moments, "model", repaired=True)


def trainer_repaired_function(moments):
    trainer(moments, "function", repaired=True)


def trainer_repaired_method(moments):
    trainer(moments, "method", repaired=True)


def average_of_a_Trainer(keeps=False):
    """A callback that averages the weights of `net`, and the average. keeps: by names, in the callback alone."""
    import transformers

    class Averages(transformers.TrainerCallback):
        def __init__(self):
            self.average = None if keeps else torch.optim.swa_utils.AveragedModel(network(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

        def on_step_end(self, args, state, control, model=None, **_):
            if keeps:
                self.average = {name: each.detach().clone() for name, each in model.named_parameters()}
            else:
                self.average.update_parameters(getattr(model, "module", model).net)
    made = Averages()
    return made, made.average


def trainer_averages(moments):
    callback, average = average_of_a_Trainer()
    trainer(moments, repaired=True, callbacks=[callback], given={"average": average})


def trainer_forgets_its_average(moments):
    trainer(moments, repaired=True, callbacks=[average_of_a_Trainer()[0]])


def trainer_forgets_weights_by_name(moments):
    trainer(moments, repaired=True, callbacks=[average_of_a_Trainer(keeps=True)[0]])


def is_later():
    """Whether this start gives other hyperparameters than the first one."""
    return os.environ["SWELL_GENERATION"] != "0"


def trainer_changes_hyperparameters(moments):
    trainer(moments, repaired=True, parameters=lambda model: [{"params": model.parameters(), "weight_decay": 0.5 * is_later(), "lr": 0.05}],
            options={"max_grad_norm": 2.0 if is_later() else 1.0, "lr_scheduler_type": "cosine" if is_later() else "linear"})


# ---- Accelerate


class Count:
    """Counts steps."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def accelerate_registers(moments, prepares=False):
    """Two things are registered, one of them later than the loop is made elastic, and a prepared schedule is stepped by the script.

    prepares: the loader is prepared, too, and given to batches()."""
    from accelerate import Accelerator

    from swell.integrations import AccelerateElastic
    accelerator, first, second = Accelerator(cpu=True), Count(), Count()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    model, optimizer, prepared = accelerator.prepare(model, optimizer, schedule)
    accelerator.register_for_checkpointing(first)
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH)
    accelerator.register_for_checkpointing(second)
    samples = accelerator.prepare(torch.utils.data.DataLoader(rows(108), batch_size=6)) if prepares else rows(108)
    for x, y in elastic.batches(samples, steps=common.steps()):
        if elastic.step(nn.functional.mse_loss(model(x), y)):
            first.steps, second.steps = first.steps + 1, second.steps + 2
            prepared.scheduler.step()
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            moments.at("step", elastic.steps)
    finish(weights=norms(model.parameters()), counts=[first.steps, second.steps], schedule=[schedule.last_epoch, optimizer.param_groups[0]["lr"]])


def accelerate_prepares_its_loader(moments):
    accelerate_registers(moments, prepares=True)


# ---- Lightning


def lightning(moments, *, module=None, callbacks=(), later=(), epochs=3, loaders=1, first=lambda trainer, module, loader: None, **options):
    """Epochs of nine batches, with a validation at the end of each. module: a class derived from what lightning_module() makes. callbacks, later: before and after ours. first: called before fit()."""
    import csv
    import glob

    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.utilities import CombinedLoader

    from swell.integrations import LightningElastic

    class Asks(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            batches = trainer.fit_loop.epoch_loop.total_batch_idx + 1
            common.log(batches, 1.0, trainer.world_size)
            moments.at("step", batches)

    elastic = LightningElastic(common.path("checkpoints"), every=5)
    it = pl.Trainer(**{**dict(accelerator="cpu", devices=elastic.devices, num_nodes=elastic.num_nodes, strategy="ddp"), **options},
                    callbacks=[*callbacks, Asks(), elastic, *later], use_distributed_sampler=False, max_epochs=epochs, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                    logger=CSVLogger(common.path("."), name="csv", version=elastic.version), enable_checkpointing=False, log_every_n_steps=1, default_root_dir=common.path("."))
    made = (module or lightning_module())()
    train = [elastic.loader(rows(108, seed), global_batch=GLOBAL_BATCH) for seed in range(1, loaders + 1)]
    first(it, made, train[0])
    it.fit(made, train[0] if loaders == 1 else CombinedLoader(train, "min_size"), torch.utils.data.DataLoader(rows(12, 2), batch_size=2), ckpt_path=elastic.newest())
    if it.is_global_zero:
        [table] = glob.glob(common.path("csv/*/metrics.csv"))
        with open(table, newline="") as file:
            logged = sorted(sorted((name, float(value)) for name, value in row.items() if value) for row in csv.DictReader(file))
        finish(weights=norms([*made.parameters(), *made.buffers()]), steps=it.global_step, rate=it.optimizers[0].param_groups[0]["lr"], logged=json.loads(json.dumps(logged)))


def lightning_module():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, _index):
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.note(loss, len(batch[0]))
            return loss

        def note(self, loss, samples):
            pass

        def validation_step(self, batch, _index):
            self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
    return Module


def lightning_logs_its_epochs(moments, plateau=False, epochs=7):
    """A callback looks at the mean of an epoch, which is a metric's. plateau: a schedule looks at another one."""
    import torchmetrics
    from lightning.pytorch.callbacks import EarlyStopping

    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.mean = torchmetrics.MeanMetric()

        def note(self, loss, samples):
            self.log("train", loss, on_step=False, on_epoch=True, sync_dist=True)
            self.mean(loss, weight=samples)
            self.log("mean", self.mean, on_step=False, on_epoch=True)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            if not plateau:
                return optimizer
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "train"}}
    lightning(moments, module=Module, callbacks=[EarlyStopping("mean", patience=9)], epochs=epochs)


def lightning_monitors_its_epochs(moments):
    lightning_logs_its_epochs(moments, plateau=True, epochs=3)


def lightning_averages_weights(moments, callbacks=()):
    from lightning.pytorch.callbacks import EMAWeightAveraging
    lightning(moments, callbacks=[EMAWeightAveraging(decay=0.9), *callbacks])


def lightning_forgets_its_average(moments):
    import lightning.pytorch as pl

    class Averages(pl.Callback):
        def __init__(self):
            self.average = torch.optim.swa_utils.AveragedModel(network())
    lightning(moments, callbacks=[Averages()], epochs=1)


def lightning_cannot_save_within_a_validation(moments):
    """The job is asked to leave within its first validation, which is made with averaged weights; no save succeeds until that is over."""
    import errno

    import lightning.pytorch as pl

    class Fills(pl.Callback):
        def on_validation_start(self, trainer, module):
            if "SWELL_RUNTIME" in os.environ or not moments.due:
                return
            self.save = trainer.strategy.save_checkpoint
            trainer.strategy.save_checkpoint = self.fail
            moments.at("validation", 9)

        def on_validation_end(self, trainer, module):
            if hasattr(self, "save"):
                trainer.strategy.save_checkpoint = self.save
                del self.save

        def fail(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lightning_averages_weights(moments, [Fills()])


def lightning_swaps_its_schedule(moments):
    from lightning.pytorch.callbacks import StochasticWeightAveraging
    lightning(moments, callbacks=[StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1, annealing_epochs=2)], epochs=4)


def lightning_accumulates_from_its_second_epoch_on(moments):
    from lightning.pytorch.callbacks import GradientAccumulationScheduler
    lightning(moments, callbacks=[GradientAccumulationScheduler({0: 1, 1: 2})])


def lightning_changes_hyperparameters(moments):
    class Module(lightning_module()):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.5 if is_later() else 0.9)
    lightning(moments, module=Module, gradient_clip_val=2.0 if is_later() else 1.0, accumulate_grad_batches=2 if is_later() else 1, precision="bf16-mixed" if is_later() else None)


def lightning_reads_from_two_loaders(moments):
    lightning(moments, loaders=2)


def lightning_normalizes(moments):
    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.net = network(nn.BatchNorm1d(16))
    lightning(moments, module=Module, epochs=1)


def lightning_thaws_a_norm(moments):
    """A layer whose BatchNorm stands still, too, while it is frozen: for its first epoch."""
    from lightning.pytorch.callbacks import BaseFinetuning

    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
            self.net = nn.Sequential(self.frozen, network())

    class Thaws(BaseFinetuning):
        def freeze_before_training(self, module):
            self.freeze(module.frozen, train_bn=False)

        def finetune_function(self, module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group(module.frozen, optimizer)
    lightning(moments, module=Module, callbacks=[Thaws()])


def lightning_leaves_a_layer_out(moments):
    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.spare = nn.Linear(2, 2)
    lightning(moments, module=Module, epochs=1, strategy="auto")


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
