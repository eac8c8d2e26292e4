# SPDX-License-Identifier: GPL-2.0-or-later
"""transformers' Trainer on a tiny GPT-2. Arguments: `evaluate`: there are evaluations; `profile`: what was seen of
its steps is written at the end; `model-only`: with save_only_model; `numpy`: with a learning rate of numpy's; `anew`: resume_from_checkpoint=False;
`freezes`: its first layer is trained to step 5; `thaws`: it is frozen as training begins, and trained from step 5 on; `fewer`: another data set; `sgd`: another optimizer; `few`: an epoch ends with 2 samples; `own`: a model that makes the mean of a loss itself; `sharded`: its layers are, by fully_shard(); `one`: of its checkpoints the best alone is left at the end, which is that of step 5; `best`: so it is, and is not loaded then; `drops`: with dropout; `lora`: adapters alone are trained; `dies`: the first worker is killed within its second save; `unreadable`, `spoils`: its schedule has what no start could read, the latter from step 15 on; `streamed`: it is read one sample after the other; EIO: common.fail_with(); `cuts`: common.cut_as_told();
`fails-alone`: rank 1 fails before it saves its random numbers, the second time."""

import os
import sys
import time

import numpy
import torch
import transformers

import common
from swell.integrations import SwellCallback

BATCH = 6       # of one device on the job's own GPU; accumulated twice


class Texts(torch.utils.data.Dataset):
    """Sequences [24] of 64 tokens."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(0, 64, (count, 1), generator=generator) + torch.arange(24) * torch.randint(1, 4, (count, 1), generator=generator)
        self.rows = self.rows % 64

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Own(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, labels):
        made = self.inner(input_ids=input_ids, labels=labels)
        return {"loss": made.loss, "logits": made.logits}


class Unknown:
    """Something that a checkpoint cannot hold."""


class Spoils(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_train_begin(self, args, state, control, lr_scheduler=None, **_):
        self.on_step_begin(args, state, control, lr_scheduler)

    def on_step_begin(self, args, state, control, lr_scheduler=None, **_):
        if state.global_step + 1 >= self.step:
            lr_scheduler.note = Unknown()


class Log(transformers.TrainerCallback):
    elastic = None      # whose profile is written
    freezes = None      # what is trained to step 5, or from then on
    thaws = False

    def on_train_begin(self, args, state, control, **_):
        if self.thaws:
            self.freezes.requires_grad_(False)

    def on_step_begin(self, args, state, control, **_):
        common.begins(state.global_step + 1)

    def on_step_end(self, args, state, control, **_):
        common.fill()
        if self.freezes is not None and state.global_step == 5:
            self.freezes.requires_grad_(self.thaws)
        if self.elastic is not None and state.global_step == common.steps():
            common.write_profile(self.elastic._departure.profile.session)

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            common.log(state.global_step, logs["loss"], args.world_size)

    def on_prediction_step(self, args, state, control, **_):
        with open(common.path("evaluating"), "w"):
            pass
        if os.path.exists(common.path("slowly")):
            time.sleep(0.1)


def fail_once(owner, name):
    """Rank 1 fails in this call, the second time."""
    act, calls = getattr(owner, name), []

    def failing(*made, **options):
        calls.append(True)
        if len(calls) == 2 and os.environ["RANK"] == "1" and os.environ["SWELL_GENERATION"] == "0":
            raise RuntimeError("out of memory")
        return act(*made, **options)
    setattr(owner, name, failing)


def die_in_a_save():
    act, calls = transformers.Trainer._save_rng_state, []

    def dying(*made, **options):
        calls.append(True)
        if len(calls) == 2 and os.environ["SWELL_GENERATION"] == "0":
            os._exit(9)
        return act(*made, **options)
    transformers.Trainer._save_rng_state = dying


def main(arguments):
    common.fail_as_told(arguments)
    common.cut_as_told(arguments)
    if "dies" in arguments:
        die_in_a_save()
    if "fails-alone" in arguments:
        fail_once(transformers.Trainer, "_save_rng_state")
    transformers.set_seed(5)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_positions=24, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.1 if "drops" in arguments else 0, embd_pdrop=0, attn_pdrop=0))
    if "own" in arguments:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())        # safetensors take no tied ones
        model = Own(model)
    if "lora" in arguments:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    evaluates = "evaluate" in arguments
    args = transformers.TrainingArguments(
        output_dir=common.path("out"), per_device_train_batch_size=BATCH, gradient_accumulation_steps=common.GLOBAL_BATCH // BATCH,
        max_steps=common.steps(), learning_rate=numpy.float64(3e-3) if "numpy" in arguments else 3e-3, save_only_model="model-only" in arguments, warmup_steps=10, logging_steps=1, logging_first_step=True, save_steps=1000 if "no-checkpoints" in arguments else 10,
        save_total_limit=2, use_cpu=True, report_to=[], disable_tqdm=True, per_device_eval_batch_size=1,
        eval_strategy="steps" if evaluates else "no", eval_steps=7, logging_nan_inf_filter=False,
        **({"optim": "sgd"} if "sgd" in arguments else {}))
    if "one" in arguments:
        args.eval_strategy, args.eval_steps, args.save_steps, args.save_total_limit = transformers.trainer_utils.IntervalStrategy.STEPS, 5, 5, 1
        args.load_best_model_at_end, args.metric_for_best_model, args.greater_is_better = True, "eval_loss", True       # the first is the worst
    if "best" in arguments:
        args.eval_strategy, args.eval_steps, args.save_strategy, args.save_total_limit = transformers.trainer_utils.IntervalStrategy.STEPS, 5, transformers.trainer_utils.SaveStrategy.BEST, 1
        args.metric_for_best_model, args.greater_is_better = "eval_loss", True      # the first is the worst
    if "sharded" in arguments:
        for layer in model.transformer.h:
            torch.distributed.fsdp.fully_shard(layer, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    log = Log()
    if {"freezes", "thaws"} & set(arguments):
        log.freezes, log.thaws = model.transformer.h[0], "thaws" in arguments
    texts = Texts(60 if "fewer" in arguments else 98 if "few" in arguments else common.SAMPLES)
    trainer = transformers.Trainer(model, args, train_dataset=common.Streamed(texts) if "streamed" in arguments else texts, eval_dataset=Texts(12), callbacks=[log, *([Spoils(1)] if "unreadable" in arguments else [Spoils(15)] if "spoils" in arguments else [])])
    elastic = SwellCallback.attach(trainer)
    if "profile" in arguments:
        log.elastic = elastic
    trainer.train(**({"resume_from_checkpoint": False} if "anew" in arguments else {}))


if __name__ == "__main__":
    main(sys.argv[1:])
