# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary scripts, each written from the documents alone, for test_ordinary.py. Arguments: as of odd.py."""

import random
import sys

import numpy
import torch
from torch import nn

import common
import odd
from matrix import Moments, begin, norms, rows
from odd import lightning, lightning_module, network, plainly, trainer


def lazy(moments):
    """Layers that learn their inputs' width from a first pass."""
    inner = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(1))
    inner(rows(1).tensors[0])
    plainly(moments, inner=inner)


def thaws(moments):
    """The first layer is frozen up to step 4, and again from step 11 on."""
    def before(step, inner, optimizer):
        inner[0].requires_grad_(4 <= step < 11)
    inner = network()
    inner[0].requires_grad_(False)
    plainly(moments, inner=inner, before=before)


def freezes_a_part(moments):
    """The first layer stops at step 5."""
    def before(step, inner, optimizer):
        inner[0].requires_grad_(step < 5)
    plainly(moments, before=before)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh())

    def forward(self, x):
        return self.last(torch.utils.checkpoint.checkpoint(self.block, self.first(x), use_reentrant=True))


def recomputes(moments):
    """Gradient checkpointing of the older kind, over dropout."""
    plainly(moments, inner=Recomputed())


def compiled(moments):
    """Compiled before DistributedDataParallel."""
    plainly(moments, inner=torch.compile(network(), backend="aot_eager"))


def compiled_in_place(moments):
    inner = network()
    inner.compile(backend="aot_eager")
    plainly(moments, inner=inner)


def adds_a_group(moments):
    """A head is added to the optimizer at step 5, by a group with another rate."""
    inner = network()

    def before(step, inner, optimizer):
        if step >= 5 and len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": inner[2].requires_grad_(True).parameters(), "lr": 1e-3})
    inner[2].requires_grad_(False)
    plainly(moments, inner=inner, before=before, trains=lambda inner: [inner[0].weight, inner[0].bias])


def cycles(moments):
    plainly(moments, schedule=lambda optimizer: torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 2e-2, step_size_up=3, cycle_momentum=False))


def cycles_by_a_function(moments):
    plainly(moments, schedule=lambda optimizer: torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 2e-2, step_size_up=3, cycle_momentum=False, scale_fn=lambda x: 0.9 ** x, scale_mode="iterations"))


def warms_up_in_turn(moments):
    rates = torch.optim.lr_scheduler
    plainly(moments, schedule=lambda optimizer: rates.SequentialLR(optimizer, [
        rates.LinearLR(optimizer, 0.1, total_iters=4), rates.ChainedScheduler([rates.CosineAnnealingLR(optimizer, 20), rates.ExponentialLR(optimizer, 0.9)])], [4]))


def steps_each_epoch(moments):
    """A schedule that the script steps as each epoch of 9 steps ends."""
    plainly(moments, state=lambda optimizer: {"rates": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.3)},
            after=lambda loss, step, rates: rates.step() if step % 9 == 0 else None, tells_step=True)


def clips(moments):
    """By norm, while passes are accumulated."""
    plainly(moments, max_grad_norm=0.05)


def between(change):
    """A loop of before that does this before each forward pass."""
    return lambda step, inner, optimizer: change(inner, optimizer)


def zeroes_gradients(moments):
    plainly(moments, before=between(lambda inner, optimizer: optimizer.zero_grad()))


def zeroes_gradients_in_place(moments):
    plainly(moments, before=between(lambda inner, optimizer: optimizer.zero_grad(set_to_none=False)))


def clips_each_pass(moments):
    plainly(moments, before=between(lambda inner, optimizer: torch.nn.utils.clip_grad_norm_(inner.parameters(), 0.01)))


def takes_norms_of_passes(moments):
    plainly(moments, before=between(lambda inner, optimizer: torch.nn.utils.clip_grad_norm_(inner.parameters(), float("inf"))))


def steps_the_optimizer(moments):
    plainly(moments, before=between(lambda inner, optimizer: optimizer.step()))


def does_all_of_it_after_a_step(moments):
    """As a loop of before does it, where elastic.step() says that the optimizer has stepped."""
    made = []

    def before(step, inner, optimizer):
        made[:] = [inner, optimizer]

    def after(loss):
        torch.nn.utils.clip_grad_norm_(made[0].parameters(), 1.0)
        made[1].step()
        made[1].zero_grad()
    plainly(moments, before=before, after=after)


def steps_its_schedule_too(moments):
    made = []
    plainly(moments, schedule=lambda optimizer: made.append(torch.optim.lr_scheduler.StepLR(optimizer, 5)) or made[0], after=lambda loss: made[0].step())


class Drawing(torch.utils.data.Dataset):
    """Changes samples at random, by the generators of torch, Python and numpy."""

    def __init__(self):
        self.made = rows(98)

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        x, y = self.made[index]
        x = x * (0.5 + random.random()) + 0.3 * torch.randn(8) + float(numpy.random.rand())
        return (x.flip(0) if numpy.random.randint(2) else x), y


def seeds_numpy(number):
    numpy.random.seed((torch.initial_seed() + number) % 2 ** 32)


def draws(moments):
    plainly(moments, data=Drawing())


def draws_in_readers(moments):
    """By readers that stay, with a worker_init_fn that seeds numpy as many scripts do."""
    plainly(moments, data=Drawing(), loader={"num_workers": 2, "persistent_workers": True, "worker_init_fn": seeds_numpy, "prefetch_factor": 3})


def weighs_samples(moments):
    """An order of the script's own: what a WeightedRandomSampler has drawn by a seed."""
    made = torch.utils.data.WeightedRandomSampler(torch.arange(1.0, 99.0), 98, generator=torch.Generator().manual_seed(5))
    plainly(moments, data=torch.utils.data.Subset(rows(98), list(made)), loader={"shuffle": False})


def weighs_samples_anew(moments):
    """The same without a seed: each start draws another order."""
    made = torch.utils.data.WeightedRandomSampler(torch.arange(1.0, 99.0), 98)
    plainly(moments, data=torch.utils.data.Subset(rows(98), list(made)), loader={"shuffle": False})


def splits_anew(moments):
    """random_split() without a seed, over a dataset that reads files."""
    plainly(moments, data=torch.utils.data.random_split(Drawing(), [90, 8])[0])


def splits_by_a_seed(moments):
    """A part of a part, by a seed."""
    made = torch.utils.data.random_split(Drawing(), [0.9, 0.1], generator=torch.Generator().manual_seed(3))[0]
    plainly(moments, data=torch.utils.data.Subset(made, range(0, len(made), 2)))


def draws_in_the_loop(moments):
    """Noise on the inputs, as in diffusion."""
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y + 0.1 * torch.randn_like(y)))


def draws_python_in_the_loop(moments):
    plainly(moments, loss=lambda out, y: nn.functional.mse_loss(out, y + 0.1 * random.random()))


def seeds_in_the_loop(moments):
    def before(step, inner, optimizer):
        torch.manual_seed(step)
    plainly(moments, before=before, loss=lambda out, y: nn.functional.mse_loss(out, y + 0.1 * torch.randn_like(y)))


def drops_and_draws_in_the_loop(moments):
    """Beside dropout, whose masks are drawn by sample."""
    plainly(moments, inner=network(nn.Dropout(0.2)), loss=lambda out, y: nn.functional.mse_loss(out, y + 0.1 * torch.randn_like(y)))


def noisy(samples):
    x, y = torch.utils.data.default_collate(samples)
    return x + 0.1 * torch.randn_like(x), y


def draws_in_collate(moments):
    plainly(moments, loader={"collate_fn": noisy})


def draws_in_collate_of_readers(moments):
    plainly(moments, loader={"collate_fn": noisy, "num_workers": 1})


# ---- Lightning


def lightning_stops_early(moments):
    from lightning.pytorch.callbacks import EarlyStopping
    lightning(moments, callbacks=[EarlyStopping("val", min_delta=0.01, patience=3)], epochs=4)


def lightning_clips(moments):
    lightning(moments, gradient_clip_val=0.05, accumulate_grad_batches=2)


def lightning_finds_a_rate(moments, how="before"):
    """how: by a callback that stands before ours, or after it, or by a Tuner."""
    from lightning.pytorch.callbacks import LearningRateFinder
    from lightning.pytorch.tuner import Tuner

    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.lr = 0.05

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
    finders = {name: [LearningRateFinder(min_lr=1e-3, max_lr=0.3, num_training_steps=20, early_stop_threshold=None)] for name in (how,)}
    lightning(moments, module=Module, callbacks=finders.get("before", ()), later=finders.get("after", ()),
              first=lambda trainer, module, loader: Tuner(trainer).lr_find(module, loader, min_lr=1e-3, max_lr=0.3, num_training=20, early_stop_threshold=None) if how == "tuner" else None)


def lightning_finds_a_rate_later(moments):
    lightning_finds_a_rate(moments, "after")


def lightning_finds_a_rate_by_a_tuner(moments):
    lightning_finds_a_rate(moments, "tuner")


def lightning_finds_rates_at_epochs(moments):
    """As Lightning's documents have it for fine-tuning."""
    from lightning.pytorch.callbacks import LearningRateFinder

    class Finder(LearningRateFinder):
        def on_fit_start(self, *_):
            pass

        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 5:
                self.lr_find(trainer, module)

    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.lr = 0.05
    lightning(moments, module=Module, callbacks=[Finder(num_training_steps=20)], epochs=1)


def lightning_finds_a_batch(moments):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import BatchSizeFinder

    from swell.integrations import LightningElastic
    elastic = LightningElastic(common.path("checkpoints"))

    class Data(pl.LightningDataModule):
        batch_size = 2

        def train_dataloader(self):
            return elastic.loader(rows(108), global_batch=12)
    pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, use_distributed_sampler=False, default_root_dir=common.path("."),
               callbacks=[BatchSizeFinder(max_trials=2), elastic]).fit(lightning_module()(), datamodule=Data())


def lightning_steps_by_hand(moments):
    """Manual optimization, with a clip by norm."""
    class Module(lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, index):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            loss = super().training_step(batch, index)
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=0.05, gradient_clip_algorithm="norm")
            optimizer.step()
    lightning(moments, module=Module)


def lightning_compiles(moments):
    """torch.compile() of the module, as Lightning's documents have it."""
    made = lightning_module()
    lightning(moments, module=lambda: torch.compile(made(), backend="aot_eager"))


def lightning_chains(moments):
    class Module(lightning_module()):
        def configure_optimizers(self):
            rates, optimizer = torch.optim.lr_scheduler, super().configure_optimizers()
            schedule = rates.SequentialLR(optimizer, [rates.LinearLR(optimizer, 0.1, total_iters=4), rates.OneCycleLR(optimizer, 0.05, total_steps=40)], [4])
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
    lightning(moments, module=Module)


def lightning_draws(moments):
    class Module(lightning_module()):
        def training_step(self, batch, index):
            x, y = batch
            return super().training_step((x, y + 0.1 * torch.randn_like(y) + float(numpy.random.rand())), index)
    lightning(moments, module=Module, epochs=1)


# ---- Trainer


def trainer_recomputes(moments, kind=None, collate=None, **options):
    import transformers

    from swell.integrations import SwellCallback

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            ids = torch.randint(0, 90, (7,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids.clone()}

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                common.log(state.global_step, logs["loss"], args.world_size)
                moments.at("step", state.global_step)

    class Asks(transformers.TrainerCallback):
        def on_prediction_step(self, args, state, control, **_):
            moments.at("evaluation", state.global_step)
    config = transformers.GPT2Config(vocab_size=96, n_positions=8, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    args = transformers.TrainingArguments(**{**dict(output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.01,
                                             logging_steps=1, save_steps=1000, use_cpu=True, report_to=[], disable_tqdm=True, max_grad_norm=0.3), **options})
    it = (kind or transformers.Trainer)(transformers.GPT2LMHeadModel(config), args, train_dataset=Data(), eval_dataset=torch.utils.data.Subset(Data(), range(8)), callbacks=[Log(), Asks()], data_collator=collate)
    SwellCallback.attach(it)
    it.train()
    odd.finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()), best=it.state.best_metric)


def trainer_checkpoints_activations(moments):
    trainer_recomputes(moments, gradient_checkpointing=True, lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 2})


def trainer_loads_the_best(moments):
    trainer_recomputes(moments, load_best_model_at_end=True, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, metric_for_best_model="loss", per_device_eval_batch_size=2,
                       lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs={"patience": 0, "threshold": 0.2})


def trainer_draws(moments):
    import transformers

    class Noisy(transformers.Trainer):
        def training_step(self, *given, **options):
            torch.rand(3)
            return super().training_step(*given, **options)
    trainer_recomputes(moments, kind=Noisy)


def trainer_masks(moments):
    """A collator that masks tokens of a whole batch."""
    def collate(samples):
        ids = torch.stack([each["input_ids"] for each in samples])
        return {"input_ids": ids, "labels": torch.where(torch.rand(ids.shape) < 0.8, ids, -100)}
    trainer_recomputes(moments, collate=collate)


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
