# SPDX-License-Identifier: GPL-2.0-or-later
"""The training loop: one global batch a step, the same whatever the number of workers."""

import json
import os
import time
from contextlib import nullcontext
from datetime import timedelta

import lean_torch  # noqa: F401  a quick import of torch; leave it out and all works the same
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import checkpoint
import rendezvous
import stop
import text
from model import AdamW, GPT
from steplog import StepLog

# With these values fixed the loss is a function of the step; a checkpoint fits only the same values.
FIXED = ("layers", "hidden", "heads", "seq", "global_batch", "lr", "seed")


class Trainer:
    """One worker's part in the run. step counts the updates that the model has seen."""

    def __init__(self, options, place, store):
        self.options, self.place = options, place
        self.device = _device(options, place)
        dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", store=store,
                                rank=place.rank, world_size=place.world,
                                timeout=timedelta(seconds=options.timeout))
        torch.manual_seed(options.seed)     # drawn on the CPU: the same model on every device
        model = GPT(options.seq, options.layers, options.hidden, options.heads).to(self.device)
        self.optimizer = AdamW(model.named_parameters(), options.lr)
        self.log = None
        self.saved_step = None

        # Rank 0 alone reads files; the others hear from it. So they cannot disagree.
        if place.rank == 0:
            saved = checkpoint.load(options.checkpoint_dir)
            checkpoint.clear_unfinished(options.checkpoint_dir)
            data = text.load(options.text, options.seq)
            self.config = {name: getattr(options, name) for name in FIXED} | {"text": text.digest(data)}
            step = 0
            if saved:
                self._must_fit(saved["config"])
                model.load_state_dict(saved["model"])
                self.optimizer.load(saved["optimizer"])
                step = self.saved_step = saved["step"]
            store.set("begin", json.dumps({"step": step, "bytes": len(data)}))
            self.data = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
            if options.log:
                self.log = StepLog(options.log, step)
            lost = f", {self.log.lost_steps} logged steps after it are trained again" \
                if self.log and self.log.lost_steps else ""
            self._say(f"generation {place.generation}: {place.world} workers, "
                      + (f"resumed at step {step}{lost}" if step else "from step 0"))
        begin = json.loads(store.get("begin"))
        self.step = begin["step"]
        if place.rank:
            self.data = torch.empty(begin["bytes"], dtype=torch.uint8, device=self.device)
        for tensor in [self.data, *(self.optimizer.tensors() if self.step else [])]:
            dist.broadcast(tensor, 0)
        # Sends rank 0's parameters to all.
        self.model = DistributedDataParallel(
            model, device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def run(self):
        """Train until the end or until asked to leave. Returns the exit code."""
        options = self.options
        leave = self._agree().result()[1:]      # asked during start-up?
        while self.step < options.steps and not any(leave):
            leave = self._one_step()
            if options.checkpoint_every and self.step % options.checkpoint_every == 0:
                self._checkpoint()
        self._checkpoint()
        self._agree().result()      # nobody leaves before the checkpoint is there
        restart, end = leave if any(leave) else (0, 0)
        if self.step >= options.steps:
            self._say(f"finished {self.step} steps")
            return 0
        self._say(f"asked to {'end' if end else 'restart'}: checkpoint at step {self.step}, leaving")
        return stop.END_EXIT_CODE if end else 0

    def _one_step(self):
        """Returns how many workers were asked to restart and to end."""
        options, place = self.options, self.place
        began = time.monotonic()
        step = self.step + 1
        starts = text.samples(options.seed, step, options.global_batch, len(self.data) - options.seq)
        mine = text.share(place.rank, place.world, options.global_batch)
        # A worker without samples computes one with weight 0: all must take part in the all-reduce.
        weight = 1.0 if mine else 0.0
        pieces = [starts[i:min(i + options.micro_batch, mine.stop)]
                  for i in range(mine.start, mine.stop, options.micro_batch)] or [starts[:1]]

        self.optimizer.zero_grad()
        loss = 0.0
        for number, piece in enumerate(pieces, 1):
            tokens = torch.stack([self.data[at:at + options.seq + 1] for at in piece]).long()
            with nullcontext() if number == len(pieces) else self.model.no_sync():
                part = self.model(tokens) * (weight / options.global_batch)
                # DDP averages over workers; the mean over the global batch is a sum over workers.
                (part * place.world).backward()
            loss += part.item()
        late = self._pace(began, options.step_time * len(mine) / options.global_batch)

        agreement = self._agree(loss)       # travels while the optimizer works
        self.optimizer.update(step)
        loss, *leave = agreement.result()
        self.step = step
        self._report(loss, time.monotonic() - began, late)
        return leave

    @staticmethod
    def _pace(began, seconds):
        """Wait until `seconds` after `began`. Returns whether the real computation took longer."""
        left = began + seconds - time.monotonic()
        if left > 0:
            time.sleep(left)
        return left < 0

    def _agree(self, loss=0.0):
        """Sum over all workers of loss and of both requests to leave, in the one small all-reduce
        that the loss needs anyway: that is how all learn at the same step that one was asked."""
        return _Sum([loss, stop.restart_requested, stop.end_requested], self.device)

    def _checkpoint(self):
        if self.place.rank or self.saved_step == self.step:
            return
        if self.log:
            self.log.sync()
        checkpoint.save(self.options.checkpoint_dir, self.step, {
            "step": self.step, "config": self.config, "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state()})
        self.saved_step = self.step

    def _must_fit(self, saved):
        for name, value in self.config.items():
            if saved[name] == value:
                continue
            option = "--" + name.replace("_", "-")
            was, now = saved[name], value
            if name == "text":
                was, now = "the same text", "other text"
            raise SystemExit(f"train_gpt: {option} is {now}, not what the checkpoint in "
                             f"{self.options.checkpoint_dir} was trained with; give {option} {was}, "
                             "or another --checkpoint-dir")

    def _report(self, loss, seconds, late):
        options, place = self.options, self.place
        if place.rank:
            return
        fields = {"step": self.step, "loss": round(loss, 6), "time": round(time.time(), 4),
                  "world_size": place.world, "generation": place.generation, "step_s": round(seconds, 5),
                  "lr": round(self.optimizer.lr_at(self.step), 8)}
        if options.step_time:
            # Pace of rank 0; late: this machine is slower than the pace, so the time is real.
            share = len(text.share(0, place.world, options.global_batch))
            fields |= {"paced_s": round(options.step_time * share / options.global_batch, 5), "late": late}
        startup = _startup_seconds()
        if startup is not None:
            fields["startup_s"] = startup       # first step of a generation: since exec
        if self.log:
            self.log.write(**fields)
        if options.print_every and self.step % options.print_every == 0:
            self._say(f"step {self.step}/{options.steps}  loss {loss:.4f}  {seconds:.3f} s"
                      f"{' (paced)' if options.step_time else ''}  {place.world} workers")

    def _say(self, words):
        if self.place.rank == 0:
            print(f"train_gpt: {words}", flush=True)


class _Sum:
    """A sum over all workers that is on its way."""

    def __init__(self, values, device):
        self._tensor = torch.tensor(values, dtype=torch.float64, device=device)
        self._work = dist.all_reduce(self._tensor, async_op=True)

    def result(self):
        self._work.wait()
        return self._tensor.tolist()


def _device(options, place):
    if options.device == "cpu" or options.device == "auto" and not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    # Slurm may show each worker its own GPU only, then as number 0.
    index = 0 if count == 1 else place.local_rank
    if index >= count:
        raise SystemExit(f"train_gpt: LOCAL_RANK={place.local_rank}, but {count} GPUs are visible; "
                         "start one worker a GPU, or give --device cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


_told_startup = False


def _startup_seconds():
    """Returns the seconds since the process started, for the first call; None for later ones, and without /proc."""
    global _told_startup
    if _told_startup:
        return None
    _told_startup = True
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return round(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 3)
    except (OSError, AttributeError):
        return None


def run(options, place):
    """Returns the exit code."""
    torch.set_num_threads(1)
    started = rendezvous.wait_for_start()
    stop.leaves_at_once = False
    store = rendezvous.meet(place) if started else None
    if store is None:
        print(f"train_gpt: rank {place.rank}: asked to leave before training began", flush=True)
        return stop.END_EXIT_CODE if stop.end_requested else 0
    return Trainer(options, place, store).run()
