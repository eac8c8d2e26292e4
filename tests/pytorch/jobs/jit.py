# SPDX-License-Identifier: GPL-2.0-or-later
"""transformers' own checkpoint on TERM, and no word of Swell."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import transformers
from transformers.trainer_utils import get_last_checkpoint

import loops

folder = os.path.abspath(sys.argv[1])
reached = loops.counter(os.path.join(folder, f"step.{os.environ['RANK']}"))


class Steps(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        if state.is_world_process_zero:
            with open(os.path.join(folder, f"start.{os.environ['SWELL_GENERATION']}"), "w") as file:
                file.write(f"{args.world_size} {state.global_step}\n")

    def on_step_end(self, args, state, control, **_):
        reached(state.global_step)


arguments = transformers.TrainingArguments(
    output_dir=os.path.join(folder, "out"), per_device_train_batch_size=8, max_steps=100000, save_strategy="no", report_to=[],
    logging_strategy="no", use_cpu=True, enable_jit_checkpoint=True, disable_tqdm=True)
os.makedirs(arguments.output_dir, exist_ok=True)
transformers.Trainer(loops._Regression(), arguments, train_dataset=loops._Rows(), callbacks=[Steps()]).train(
    resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
