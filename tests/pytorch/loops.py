# SPDX-License-Identifier: GPL-2.0-or-later
"""Training loops of the frameworks in use that know nothing of Swell: as small as they can be.

Each takes a folder and trains until it is stopped. `reached` is called after every step with its
number. A checkpoint is whatever the loop itself writes below the folder.
"""

import os
import sys
import time

import torch
from torch import nn

SAMPLES, FEATURES = 4096, 8
PACE_S = 0.05       # a step lasts at least so long, so that a signal meets a loop and not its end


def data():
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def batches():
    while True:
        yield from torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True)


def model_and_optimizer():
    torch.manual_seed(0)
    model = nn.Linear(FEATURES, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def trained(model, optimizer):
    """The number of each step, once it is trained."""
    for step, (x, y) in enumerate(batches(), 1):
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step


def plain(folder, reached):
    for step in trained(*model_and_optimizer()):
        reached(step)


def torchtitan_style(folder, reached):
    """A Trainer of its own that is Stateful and checkpoints at an interval; no signal is handled."""
    model, optimizer = model_and_optimizer()
    for step, (x, y) in enumerate(batches(), 1):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if step % 500 == 0:
            torch.save({"step": step, "model": model.state_dict()}, os.path.join(folder, "checkpoint"))
        reached(step)


def megatron_style(folder, reached, exits_on_signal=False):
    """With exits_on_signal as --exit-signal-handler: TERM is noted, all ranks are asked at each step,
    a checkpoint is saved, and the program exits."""
    import signal
    noted = []
    if exits_on_signal:
        signal.signal(signal.SIGTERM, lambda *_: noted.append(True))
    model, optimizer = model_and_optimizer()
    for step in trained(model, optimizer):
        reached(step)
        if noted:
            torch.save({"step": step, "model": model.state_dict()}, os.path.join(folder, "checkpoint"))
            sys.exit()


def megatron_style_exit_signal(folder, reached):
    megatron_style(folder, reached, exits_on_signal=True)


class _Regression(nn.Module):
    """A model in the shape that transformers' Trainer takes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1)

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.linear(x), labels)}


class _Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = data()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        x, y = self.rows[index]
        return {"x": x, "labels": y}


def trainer(folder, reached, jit=False):
    import transformers
    torch.manual_seed(0)

    class Reach(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            reached(state.global_step)

    arguments = transformers.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=8, max_steps=10 ** 6, save_strategy="no", report_to=[],
        logging_strategy="no", use_cpu=True, enable_jit_checkpoint=jit, disable_tqdm=True)
    transformers.Trainer(_Regression(), arguments, train_dataset=_Rows(), callbacks=[Reach()]).train()


def trainer_jit(folder, reached):
    trainer(folder, reached, jit=True)


def accelerate(folder, reached):
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model, optimizer = model_and_optimizer()
    loader = torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    while True:
        for x, y in loader:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            reached(step)


def lightning(folder, reached):
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(FEATURES, 1)

        def training_step(self, batch, _index):
            x, y = batch
            return nn.functional.mse_loss(self.linear(x), y)

        def on_train_batch_end(self, *_):
            reached(self.trainer.global_step)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    pl.Trainer(accelerator="cpu", devices=1, max_epochs=-1, logger=False, enable_checkpointing=False,
               enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder).fit(
        Module(), torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True))


def lightning_slurm(folder, reached):
    """As before TORCHELASTIC_RUN_ID was set: Lightning takes itself for a step of Slurm."""
    os.environ.pop("TORCHELASTIC_RUN_ID", None)
    lightning(folder, reached)


# By the names that docs/frameworks.md uses.
LOOPS = {
    "plain script": plain,
    "torchtitan-style": torchtitan_style,
    "Megatron-style": megatron_style,
    "Megatron-style, `--exit-signal-handler`": megatron_style_exit_signal,
    "Trainer": trainer,
    "Trainer, `enable_jit_checkpoint`": trainer_jit,
    "Accelerate": accelerate,
    "Lightning": lightning,
    "Lightning, without `TORCHELASTIC_RUN_ID`": lightning_slurm,
}


def counter(path):
    """A `reached` that leaves the step's number in a file, and keeps the pace."""
    def reached(step):
        with open(path + ".new", "w") as file:
            file.write(str(step))
        os.replace(path + ".new", path)
        time.sleep(PACE_S)
    return reached


if __name__ == "__main__":      # python loops.py NAME FOLDER: one of them, under swellrun
    name, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    globals()[name](folder, counter(os.path.join(folder, f"step.{os.environ.get('RANK', 0)}")))
