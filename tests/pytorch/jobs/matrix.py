# SPDX-License-Identifier: GPL-2.0-or-later
"""A training in each framework with all that a resize may lose, for test_matrix.py. Arguments: the framework, "streamed" where its samples
come from a stream, "dropout" where an Elastic's model has some, "stops" where no evaluation after the first one is an improvement, so that the second one after it ends the training ("stops at once": the first), and moments at which the job is asked to leave, as evaluation@6.

Each start makes other weights: what is not gone on with shows. At the end rank 0 writes to `end` what every resize must leave as it is."""

import contextlib
import csv
import glob
import json
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

STEPS_OF_CYCLE = 30
SAMPLES, GLOBAL_BATCH, EVERY = 29, 12, 2      # the last batch of an epoch has 5 samples; evaluations and checkpoints each 2 steps


class Moments:
    """When the job is asked to leave, each once."""

    def __init__(self, words):
        self.due = [(kind, int(step)) for kind, step in (word.split("@") for word in words)]

    def at(self, kind, step):
        marker = common.path(f"moment.{kind}.{step}")
        if int(os.environ.get("RANK", "0")) or (kind, step) not in self.due or os.path.exists(marker):
            return
        with open(marker, "w") as file:
            file.write(os.environ["SWELL_GENERATION"])
        if "SWELL_RUNTIME" not in os.environ:
            os.kill(os.getpid(), signal.SIGUSR1)
            return
        until, begun = time.monotonic() + 30, common.path(f"begun.{int(os.environ['SWELL_GENERATION']) + 1}")
        while not os.path.exists(begun) and time.monotonic() < until:     # the next workers are to be ready at this moment
            time.sleep(0.05)
        time.sleep(1)


def begin():
    torch.manual_seed(100 + int(os.environ.get("SWELL_GENERATION", "0")))
    random.seed(7)
    numpy.random.seed(7)
    if int(os.environ.get("RANK", "0")) == 0:
        with open(common.path(f"begun.{os.environ.get('SWELL_GENERATION', '0')}"), "w"):
            pass


def rows(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, torch.sin(x.sum(1, keepdim=True)))


class Net(nn.Module):
    def __init__(self, dropout=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *([nn.Dropout(0.2)] if dropout else []), nn.Linear(16, 1))
        self.register_buffer("scale", torch.rand(1) + 0.5)

    def forward(self, x):
        return self.layers(x) * self.scale


class Stream(torch.utils.data.IterableDataset):
    """Samples one after the other, each epoch from another on; its state names the place."""

    def __init__(self, made):
        self.made, self.begin, self.at, self.epoch = made, 0, 0, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        begin, self.begin = self.begin, 0
        for self.at in range(begin + 1, len(self.made) + 1):
            yield self.made[(self.at - 1 + 5 * self.epoch) % len(self.made)]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.begin = state["at"]


def streaming(streamed, made):
    return Stream(made) if streamed else made


def draw(step, more=0.0):
    """A random number of this step's, by rank 0. more: of other generators."""
    number = random.random() + more
    if int(os.environ.get("RANK", "0")) == 0:
        with open(common.path("draws"), "a") as file:
            file.write(json.dumps([step, number]) + "\n")


def scaler():
    """Returns a scaler by powers of two: scaled losses differ in nothing but their exponent. It grows within the run."""
    return torch.amp.GradScaler("cpu", init_scale=2.0 ** 10, growth_interval=3)


def scaled(made):
    state = made.state_dict()
    return [state["scale"], state["_growth_tracker"]]


def norms(tensors):
    return [float(tensor.detach().double().norm()) for tensor in tensors]


def drawn():
    """Returns the draws of draw(), by step."""
    with open(common.path("draws")) as file:
        return sorted(dict(map(json.loads, file)).items())


def finish(model, optimizer, **more):
    """Write what is to be compared, by its column."""
    if int(os.environ.get("RANK", "0")):
        return
    moments = [value for state in optimizer.state_dict()["state"].values() for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]
    found = {"weights": norms(model.parameters()), "buffers": norms(model.buffers()), "moments": norms(moments), "RNG": drawn(), **more}
    with open(common.path("end.new"), "w") as file:
        json.dump(found, file)
    os.replace(file.name, common.path("end"))


# ---- the frameworks


def sft(transformers, options, streamed):
    """The parts of an SFTTrainer, over sequences of unequal lengths."""
    import datasets
    import trl

    import trl_sft
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_positions=24, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=63, eos_token_id=63, pad_token_id=62))
    texts = [row[:12 + at % 13].tolist() for at, row in enumerate(trl_sft.Texts(SAMPLES + 12).rows)]
    train, evaluated = (datasets.Dataset.from_dict({"input_ids": part}) for part in (texts[:SAMPLES], texts[SAMPLES:]))
    if streamed:
        train = train.to_iterable_dataset(num_shards=3).shuffle(seed=4, buffer_size=5)
    args = trl.SFTConfig(**options, bf16=False, activation_checkpointing=False, max_length=24)
    return lambda callbacks: trl.SFTTrainer(model, args, train_dataset=train, eval_dataset=evaluated, processing_class=trl_sft.tokenizer(), callbacks=callbacks)


def trainer(moments, kind, streamed, patience):
    """kind: LoRA, SFT of TRL, best (of which alone there are checkpoints), or nothing."""
    import transformers
    from transformers.trainer_callback import ExportableState

    from swell.integrations import SwellCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x, labels=None):
            out = self.net(x)
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    class Rows(torch.utils.data.Dataset):
        def __init__(self, made):
            self.made = made

        def __len__(self):
            return len(self.made)

        def __getitem__(self, index):
            return dict(zip(("x", "labels"), self.made[index]))

    class Counts(transformers.TrainerCallback, ExportableState):
        """Has a state of its own, and asks at the moments."""

        def __init__(self):
            self.evaluations = 0

        def state(self):
            return {"args": {}, "attributes": {"evaluations": self.evaluations}}

        def on_evaluate(self, args, state, control, **_):
            self.evaluations += 1

        def on_step_begin(self, args, state, control, **_):
            draw(state.global_step + 1)

        def on_pre_optimizer_step(self, args, state, control, **_):
            for kind in ("first", "smaller", "last"):
                moments.at(kind, state.global_step + 1)

        def on_substep_end(self, args, state, control, **_):
            moments.at("accumulation", state.global_step + 1)

        def on_prediction_step(self, args, state, control, **_):
            moments.at("evaluation", state.global_step)
            common.pace()

        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                common.log(state.global_step, logs["loss"], args.world_size)

    options = dict(
        output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=3e-2,
        warmup_steps=3, logging_steps=3, save_steps=EVERY, eval_strategy="steps", eval_steps=EVERY, per_device_eval_batch_size=2, save_total_limit=2,
        load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False, use_cpu=True, report_to=[], disable_tqdm=True,
        seed=5)
    if kind == "best":
        options.update(save_strategy="best", save_total_limit=1)
    callbacks = [counts := Counts(), stopping := transformers.EarlyStoppingCallback(patience, 0.0 if patience > 2 else 1e9)]
    if kind == "SFT":
        made = sft(transformers, options, streamed)(callbacks)
    else:
        if kind == "LoRA":
            import peft
            with torch.random.fork_rng():
                torch.manual_seed(3)    # as from_pretrained(): the same weights at each start
                model = Model()
            model.net.scale.copy_(torch.rand(1) + 0.5)
            model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["0", "2"]))
        else:
            model = Model()
        made = transformers.Trainer(model, transformers.TrainingArguments(**options), train_dataset=streaming(streamed, Rows(rows(SAMPLES))), eval_dataset=Rows(rows(12, 2)),
                                    callbacks=callbacks)
    made.accelerator.scaler = scaler()      # fp16=True gives it one on a GPU alone
    SwellCallback.attach(made)
    out = made.train()
    state, kept = made.state, ("loss", "eval_loss", "learning_rate", "num_tokens", "step")
    finish(made.accelerator.unwrap_model(made.model), getattr(made.optimizer, "optimizer", made.optimizer),
           schedule=[made.lr_scheduler.state_dict()["last_epoch"], made.lr_scheduler.get_last_lr()[0]],
           **{"scaler": scaled(made.accelerator.scaler), "callback state": counts.evaluations, "best model": [state.best_metric, os.path.basename(state.best_model_checkpoint)],
              "counters": [state.global_step, state.epoch, state.max_steps, out.training_loss], "early stopping": stopping.early_stopping_patience_counter,
              "loggers": [[entry.get(name, 0) for name in kept] for entry in state.log_history if "loss" in entry or "eval_loss" in entry]})


def lightning(moments, streamed, patience):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.plugins import MixedPrecision

    from swell.integrations import LightningElastic

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.passes = Net(), []

        def training_step(self, batch, _index):
            step = self.global_step + 1
            if not self.passes:
                draw(step)
                for kind in ("first", "smaller", "last"):
                    moments.at(kind, step)
            else:
                moments.at("accumulation", step)
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.passes.append(loss.detach())
            return loss

        def on_train_batch_end(self, *_):
            if self.trainer.fit_loop._should_accumulate():
                return
            loss = self.trainer.strategy.reduce(torch.stack(self.passes).mean(), reduce_op="mean")
            self.passes = []
            self.log("loss", loss)
            common.log(self.global_step, float(loss), self.trainer.world_size)

        def validation_step(self, batch, _index):
            moments.at("evaluation", self.global_step)
            common.pace()
            self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=3e-2)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}}

    class Scaled(MixedPrecision):
        """The scaler of 16-mixed, and float32 all the same."""

        def autocast_context_manager(self):
            return contextlib.nullcontext()

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return elastic.loader(streaming(streamed, rows(SAMPLES)), global_batch=GLOBAL_BATCH // 2, drop_last=False)

        def val_dataloader(self):
            return torch.utils.data.DataLoader(rows(12, 2), batch_size=2)

    elastic = LightningElastic(common.path("checkpoints"), every=5)
    best, stopping = ModelCheckpoint(common.path("best"), monitor="val", save_top_k=2, filename="{step}"), EarlyStopping("val", patience=patience, min_delta=0.0 if patience > 2 else 1e9)
    made = pl.Trainer(accelerator="cpu", strategy="ddp", devices=elastic.devices, num_nodes=elastic.num_nodes, callbacks=[best, stopping, elastic],
                      plugins=(precision := Scaled("16-mixed", "cpu", scaler())),
                      use_distributed_sampler=False, accumulate_grad_batches=2, max_steps=common.steps(), enable_progress_bar=False,
                      logger=CSVLogger(common.path("."), name="csv", version=elastic.version), enable_model_summary=False, log_every_n_steps=1,
                      val_check_interval=2 * EVERY, check_val_every_n_epoch=None, num_sanity_val_steps=0, default_root_dir=common.path("."))
    module = Module()
    made.fit(module, datamodule=Data(), ckpt_path=elastic.newest())
    if not made.is_global_zero:
        return
    [table] = glob.glob(common.path("csv/*/metrics.csv"))
    with open(table, newline="") as file:
        logged = [[float(row.get(name) or 0) for name in ("step", "loss", "val")] for row in csv.DictReader(file)]
    finish(module, made.optimizers[0], schedule=[made.lr_scheduler_configs[0].scheduler.last_epoch, made.optimizers[0].param_groups[0]["lr"]],
           scaler=scaled(precision.scaler), **{"callback state": sorted(os.listdir(common.path("best"))), "best model": [float(best.best_model_score), os.path.basename(best.best_model_path)],
              "counters": [made.global_step, made.fit_loop.epoch_loop.batch_progress.total.completed], "early stopping": [stopping.wait_count, float(stopping.best_score)],
              "loggers": sorted(logged)})


def elastic_loop(moments, kind, streamed, dropout):
    from swell.torch import Elastic
    model = Net(dropout)
    options = {"directory": common.path("checkpoints"), "global_batch": GLOBAL_BATCH, "micro_batch": 3, "checkpoint_every": 5}
    has_scaler = kind != "FSDP2"        # which is refused one
    if kind == "Accelerate":
        from accelerate import Accelerator

        from swell.integrations import AccelerateElastic
        accelerator = Accelerator(cpu=True)
        accelerator.scaler = scaler()
        inner = torch.optim.AdamW(model.parameters(), lr=3e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: min(1, (step + 1) / 20))
        model, optimizer, prepared = accelerator.prepare(model, inner, schedule)
        elastic = AccelerateElastic(accelerator, model, optimizer, scheduler=prepared, **options)
    else:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        dist.init_process_group("gloo")
        if kind == "FSDP2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
        else:
            model = nn.parallel.DistributedDataParallel(model)
        inner = torch.optim.AdamW(model.parameters(), lr=3e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: min(1, (step + 1) / 20))
        elastic = Elastic(model, inner, scheduler=schedule, scaler=scaler() if has_scaler else None, **options)
    first = True
    for x, y in elastic.batches(streaming(streamed, rows(SAMPLES)), steps=common.steps()):
        step = elastic.steps + 1
        for each in ("first", "smaller", "last") if first else ("accumulation",):
            moments.at(each, step)
        if first:
            draw(step, numpy.random.rand() + (0 if streamed or dropout else torch.rand(1).item()))     # a loader of a stream draws when it is made, dropout in each pass
        first = elastic.step(nn.functional.mse_loss(model(x), y))
        if first:
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters()]
    kept = [value.full_tensor() if hasattr(value, "full_tensor") else value for state in inner.state.values() for _, value in sorted(state.items())]
    if int(os.environ.get("RANK", "0")) == 0:
        with open(common.path("end"), "w") as file:
            json.dump({**({"scaler": scaled(elastic.scaler or accelerator.scaler)} if has_scaler else {}), "RNG": drawn(), "weights": norms(whole), "buffers": norms(model.buffers()), "moments": norms(kept), "counters": [elastic.steps, elastic.samples],
                       "schedule": [schedule.last_epoch, inner.param_groups[0]["lr"]]}, file)


def engine_loop(moments, streamed):
    """Over the number of workers by data, layers or shards."""
    import transformers

    from swell.torch import Engine
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine"))
    import models
    plans = {1: models.plan(3, (4, 1, [4])), 2: models.plan(3, (3, 1, [4]), (1, 1, [4])), 3: models.plan(3, (1, 2, [4]), (3, 1, [4]))}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return SAMPLES      # of which Engine leaves the last 5 of an epoch out

        def __getitem__(self, index):
            return {"input_ids": torch.randint(3, models.VOCABULARY, (9,), generator=torch.Generator().manual_seed(index))}

    transformers.utils.logging.set_verbosity_error()
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), lambda p: torch.optim.AdamW(p, lr=3e-3), global_batch=GLOBAL_BATCH, plan=plans.__getitem__,
                    scheduler=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=STEPS_OF_CYCLE), max_grad_norm=0.5, seed=3,
                    checkpoint_every=5, directory=common.path("checkpoints"), log=common.path("losses"))
    passes, kind = 0, ("first", "smaller", "last")

    def passed(*_):
        nonlocal passes
        passes += 1
        for each in kind if passes == 1 else ("accumulation",) if "first" in kind else ():
            moments.at(each, engine.steps if kind == ("evaluation",) else engine.steps + 1)
    torch.nn.modules.module.register_module_forward_pre_hook(passed)
    for batch in engine.batches(streaming(streamed, Rows()), epochs=common.steps() // (SAMPLES // GLOBAL_BATCH)):
        passes = 0
        engine.step(batch)
        common.pace()
        if engine.steps % EVERY == 0:
            passes, kind = 0, ("evaluation",)
            engine.evaluate(models.batch(seed=9))
            kind = ("first", "smaller", "last")
    evaluated = engine.evaluate(models.batch(seed=9))
    squares = {one.name: float(engine._generation.state.tensors[one.name].double().square().sum()) for one in engine._generation.state.saved_here()}
    parts = [squares]
    if engine.world > 1:
        parts *= engine.world
        dist.all_gather_object(parts, squares)
    if engine.rank == 0:
        total = {name: sum(part.get(name, 0.0) for part in parts) ** 0.5 for name in sorted(set().union(*parts))}
        with open(common.path("end"), "w") as file:
            json.dump({"weights": [value for name, value in total.items() if "#" not in name], "moments": [value for name, value in total.items() if "#" in name],
                       "schedule": [engine.scheduler.last_epoch, engine.optimizer.param_groups[0]["lr"], list(engine.optimizer.param_groups[0]["betas"])],
                       "counters": [engine.steps, evaluated]}, file)


def main(arguments):
    framework, *words = arguments
    streamed, dropout = "streamed" in words, "dropout" in words
    begin()
    moments = Moments([word for word in words if "@" in word])
    patience = 1 if "stops at once" in words else 2 if "stops" in words else 20
    if framework.startswith(("Trainer", "TRL")):
        trainer(moments, framework.partition(" ")[2], streamed, patience)
    elif framework == "Engine":
        engine_loop(moments, streamed)
    elif framework == "Lightning":
        lightning(moments, streamed, patience)
    else:
        elastic_loop(moments, framework.removeprefix("Elastic "), streamed, dropout)
