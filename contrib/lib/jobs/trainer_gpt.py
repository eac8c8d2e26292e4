# SPDX-License-Identifier: GPL-2.0-or-later
"""transformers' Trainer with SwellCallback, on texts of this machine.

    trainer_gpt.py FOLDER [STEPS]     FOLDER/log.jsonl: a line a step

QUICKSTART_STEP_S: so many seconds a device would take for a step of one worker; workers wait until their share has passed.
"""
import json
import os
import sys
import time

import torch
import transformers
from swell.integrations import SwellCallback

import texts

BATCH, LENGTH, SAMPLES = 4, 48, 2400        # BATCH: of a pass; three passes a step on one worker


class Texts(torch.utils.data.Dataset):
    """Samples of LENGTH bytes."""

    def __init__(self):
        self.rows = texts.batch(5, 0, SAMPLES, LENGTH)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Log(transformers.TrainerCallback):
    """Takes the time of each step, makes it that of a device, and logs it."""

    def __init__(self, path, step_s):
        self.path, self.step_s, self.began = path, step_s, time.monotonic()

    def on_step_begin(self, *_, **__):
        self.began = time.monotonic()

    def on_step_end(self, args, *_, **__):
        time.sleep(max(self.began + self.step_s / args.world_size - time.monotonic(), 0))

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs and state.is_world_process_zero:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, "loss": logs["loss"], "time": round(time.time(), 3),
                                       "step_s": round(time.monotonic() - self.began, 4), "world": args.world_size,
                                       "generation": int(os.environ.get("SWELL_GENERATION", 0)), "paced_s": self.step_s}) + "\n")


def main(folder, steps=100000):
    transformers.set_seed(5)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=48, n_layer=3, n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2))
    args = transformers.TrainingArguments(
        output_dir=os.path.join(folder, "checkpoints"), per_device_train_batch_size=BATCH, gradient_accumulation_steps=3, max_steps=int(steps),
        learning_rate=1e-3, lr_scheduler_type="constant_with_warmup", warmup_steps=10, logging_steps=1, save_steps=100000, use_cpu=True, report_to=[],
        disable_tqdm=True, logging_nan_inf_filter=False)
    log = Log(os.path.join(folder, "log.jsonl"), float(os.environ.get("QUICKSTART_STEP_S", "0")))
    trainer = transformers.Trainer(model, args, train_dataset=Texts(), callbacks=[log])
    SwellCallback.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
