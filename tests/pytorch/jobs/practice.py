# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with what papers and tutorials do today, for test_practice.py. Arguments: as of odd.py."""

import glob
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn

import common
import odd
from matrix import Moments, begin, norms, rows
from odd import GLOBAL_BATCH, network
from research import elastic_of, finish
from varied import logs
from swell.torch import Elastic

F = nn.functional


def loop(moments, inner=None, loss=lambda model, x, y: F.mse_loss(model(x), y), *, state=None, data=None, after=lambda elastic, model: None, kind=torch.optim.AdamW, micro_batch=4, loader=None, **more):
    """loss: of a batch. state: made from the model and the optimizer. after: called after each step."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(inner if inner is not None else network())
    optimizer = kind(model.parameters(), lr=1e-2)
    made = state(model.module, optimizer) if state is not None else {}
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=micro_batch, checkpoint_every=4, state=made, **more)
    for batch in elastic.batches(data if data is not None else rows(96), steps=common.steps(), **(loader or {})):
        if elastic.step(loss(model, *batch)):
            after(elastic, model.module, **made)
            logs(moments, elastic)
    finish(model, **{name: norms(thing.parameters()) for name, thing in made.items() if isinstance(thing, nn.Module)}, rate=optimizer.param_groups[0]["lr"])


# ---- lower precision


def wide():
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


def autocasts(moments, of=torch.bfloat16, **more):
    def loss(model, x, y):
        with torch.autocast("cpu", of):
            return F.mse_loss(model(x).float(), y)
    loop(moments, inner=wide(), loss=loss, **{"micro_batch": 2, **more})


def autocasts_whole_shares(moments):
    """A pass has as many samples as a worker has."""
    autocasts(moments, micro_batch=None)


def autocasts_to_float16(moments):
    """Its scale grows until gradients overflow, time and again."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 18, growth_interval=2)
    autocasts(moments, torch.float16, scaler=scaler)


def autocasts_without_swell(moments, of=torch.bfloat16):
    """DistributedDataParallel alone, over the same samples in their order, for comparison."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(wide())
    optimizer, data = torch.optim.AdamW(model.parameters(), lr=1e-2), rows(96)
    share = GLOBAL_BATCH // dist.get_world_size()
    for step in range(common.steps()):
        first = step * GLOBAL_BATCH % 96 + dist.get_rank() * share
        x, y = data[first:first + share]
        with torch.autocast("cpu", of, enabled=of is not torch.float32):
            loss = F.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        common.log(step + 1, float(total) / dist.get_world_size(), dist.get_world_size())
    del model       # before its process group: torch ends a group that a reducer holds last under Python's lock, for which the group's thread may wait
    dist.destroy_process_group()


# ---- values of all samples of a pass that no gradient goes through


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        return torch.log_softmax(self.net(x), 1)


def acts(x, y):
    return ((y[:, 0] * 1.9).round().long() + 1).clamp(0, 3)


def standardizes_advantages(moments):
    """As PPO's implementations do in each minibatch."""
    def loss(model, x, y):
        advantages = y[:, 0] + x.sum(1)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = (model(x).gather(1, acts(x, y)[:, None])[:, 0] - 1).exp()
        return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    loop(moments, Policy(), loss)


def whitens(moments):
    """Rewards by their mean and deviation over the first dimension, in a function of the script's."""
    def whiten(values):
        return (values - values.mean(0)) * torch.rsqrt(values.var(0) + 1e-8)
    loop(moments, Policy(), lambda model, x, y: -(model(x).gather(1, acts(x, y)[:, None])[:, 0] * whiten(y[:, 0])).mean())


def takes_a_baseline(moments):
    """The mean reward of a pass, as a number."""
    loop(moments, Policy(), lambda model, x, y: -(model(x).gather(1, acts(x, y)[:, None])[:, 0] * (y[:, 0] - y.mean().item())).mean())


def normalizes_its_batch(moments):
    loop(moments, loss=lambda model, x, y: F.mse_loss(model((x - x.mean(0)) / x.std(0)), y))


def weighs_by_counts(moments):
    """Weights of classes by how often they are in a pass."""
    def loss(model, x, y):
        of = acts(x, y)
        weights = 1 / torch.bincount(of, minlength=4).clamp(min=1)
        each = -model(x).gather(1, of[:, None])[:, 0]
        return (each * weights[of]).mean()
    loop(moments, Policy(), loss)


def normalizes_in_collate(moments):
    def collate(samples):
        x, y = torch.utils.data.default_collate(samples)
        return (x - x.mean(0)) / (x.std(0) + 1e-6), y
    loop(moments, loader={"collate_fn": collate})


def normalizes_in_collate_of_readers(moments):
    def collate(samples):
        x, y = (torch.stack(each) for each in zip(*samples))
        return (x - x.mean(0)) / (x.std(0) + 1e-6), y
    loop(moments, loader={"collate_fn": collate, "num_workers": 1})


def normalizes_samples(moments):
    """Each by its own mean and deviation; an accuracy over a pass is only shown; a maximum within each sample."""
    def loss(model, x, y):
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        x = x - x.max(1, keepdim=True).values
        made = F.mse_loss(model(x), y, reduction="none")
        shown = (made < made.mean()).float().mean()
        assert shown == shown
        return made.mean() + 0.1 * made.sum() / len(x)
    loop(moments, loss=loss)


def adds_noise_to_gradients(moments):
    """By a hook of the optimizer, as in Langevin dynamics."""
    def hook(optimizer, *_):
        for group in optimizer.param_groups:
            for value in group["params"]:
                value.grad += 0.01 * torch.randn_like(value)

    def state(model, optimizer):
        optimizer.register_step_pre_hook(hook)
        return {}
    loop(moments, state=state)


# ---- optimizers


class Sharp(torch.optim.Optimizer):
    """SAM as its best-known implementation has it."""

    def __init__(self, params, lr, rho=0.05):
        super().__init__(params, {"lr": lr, "rho": rho})
        self.base = torch.optim.SGD(self.param_groups, lr=lr, momentum=0.9)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([each.grad.norm() for group in self.param_groups for each in group["params"]]))
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["old"] = each.data.clone()
                each.add_(each.grad, alpha=float(group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if "old" in self.state[each]:
                    each.data = self.state[each]["old"]
        self.base.step()


def sharpens(moments, micro_batch=4, of=Sharp):
    """Two backward passes of each batch, the first by the script itself."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = of(model.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=micro_batch)
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        F.mse_loss(model(x), y).backward()
        optimizer.first_step()
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
    finish(model)


def sharpens_whole_shares(moments):
    sharpens(moments, micro_batch=None)


def clips_adaptively(moments):
    """AGC, by each weight's norm."""
    def hook(optimizer, *_):
        for group in optimizer.param_groups:
            for each in group["params"]:
                limit = 0.01 * each.detach().norm().clamp(min=1e-3)
                each.grad.mul_((limit / each.grad.norm().clamp(min=1e-6)).clamp(max=1))

    def state(model, optimizer):
        optimizer.register_step_pre_hook(hook)
        return {}
    loop(moments, state=state)


def plateaus_on_a_pass(moments):
    """Follows the loss of the last pass of this worker, as a loop of before has it."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    elastic = elastic_of(model, optimizer, state={"plateau": plateau})
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        loss = F.mse_loss(model(x), y)
        if elastic.step(loss):
            plateau.step(loss.item())
            logs(moments, elastic)
    finish(model, rate=optimizer.param_groups[0]["lr"])


def stops_by_a_pass(moments):
    """Early stopping by the loss of the last pass of this worker."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    elastic = elastic_of(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        loss = F.mse_loss(model(x), y)
        if elastic.step(loss):
            logs(moments, elastic)
            if loss.item() < 1e-3:
                break
    finish(model)


def decays_by_epochs(moments):
    """Cosine over epochs, stepped as an epoch ends, in a loop over epochs."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    elastic = elastic_of(model, optimizer, state={"rates": rates})
    for epoch in range(4):
        for x, y in elastic.batches(rows(48), epochs=epoch + 1):
            if elastic.step(F.mse_loss(model(x), y)):
                logs(moments, elastic)
        rates.step()
    finish(model, rate=optimizer.param_groups[0]["lr"])


def halves_rates_by_epochs(moments):
    """By hand, as an epoch ends, in a loop over epochs."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    elastic = elastic_of(model, optimizer)
    for epoch in range(4):
        for x, y in elastic.batches(rows(48), epochs=epoch + 1):
            if elastic.step(F.mse_loss(model(x), y)):
                logs(moments, elastic)
        optimizer.param_groups[0]["lr"] *= 0.5
    finish(model, rate=optimizer.param_groups[0]["lr"])


def averages_with_norms(moments):
    """An average of the weights of a model with a BatchNorm that stands still, whose statistics update_bn() takes at the end, over all samples."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network(nn.BatchNorm1d(16)).eval())
    average = torch.optim.swa_utils.AveragedModel(model.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    elastic = elastic_of(model, torch.optim.AdamW(model.parameters(), lr=1e-2), state={"average": average})
    for x, y in elastic.batches(rows(96), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            average.update_parameters(model.module)
            logs(moments, elastic)
    torch.optim.swa_utils.update_bn(torch.utils.data.DataLoader(rows(96), batch_size=12), average)
    finish(model, average=norms([*average.parameters(), *(each.float() for each in average.buffers())]))


# ---- data


def text():
    """Bytes of the documents of Python's own library, which each machine has."""
    paths = sorted(glob.glob(numpy.__path__[0] + "/*.py"))[:20]
    return numpy.frombuffer("".join(open(path, encoding="utf-8").read() for path in paths).encode()[:60000], dtype=numpy.uint8)


class Writes(nn.Module):
    """A model of a language of bytes."""

    def __init__(self, width=16):
        super().__init__()
        self.words, self.net, self.head = nn.Embedding(256, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, 256)

    def forward(self, x):
        return self.head(self.net(self.words(x))[0])


def of_text(out, y, **more):
    return F.cross_entropy(out.flatten(0, 1), y.flatten(), **more)


class Crops(torch.utils.data.Dataset):
    """The same, drawn as a sample is read."""

    def __init__(self):
        self.text = text()

    def __len__(self):
        return 1200

    def __getitem__(self, index):
        at = int(torch.randint(len(self.text) - 17, ()))
        cut = torch.from_numpy(self.text[at:at + 17].astype(numpy.int64))
        return cut[:-1], cut[1:]


def crops_as_it_reads(moments):
    loop(moments, Writes(), lambda model, x, y: of_text(model(x), y), data=Crops())


def crops_without_batches(moments):
    """No loader at all: steps are counted by the script, which takes a batch by next()."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Writes())
    elastic = elastic_of(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    batches = elastic.batches(Crops(), steps=common.steps())
    while True:
        try:
            x, y = next(batches)
        except StopIteration:
            break
        if elastic.step(of_text(model(x), y)):
            logs(moments, elastic)
    finish(model)


def smooths_with_ignored(moments, alike=False):
    """Label smoothing, with prompts of unlike lengths that are ignored."""
    made = Crops()

    class Prompts(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            x, y = made[index]
            return x, torch.where(torch.arange(16) < (4 if alike else 1 + index % 9), -100, y)
    loop(moments, Writes(), lambda model, x, y: of_text(model(x), y, label_smoothing=0.1), data=Prompts())


def smooths_with_ignored_alike(moments):
    smooths_with_ignored(moments, alike=True)


def smooths_weighted_classes(moments):
    weights = torch.linspace(0.5, 2, 256)
    loop(moments, Writes(), lambda model, x, y: of_text(model(x), y, label_smoothing=0.1, weight=weights), data=Crops())


def packs(moments):
    """Documents of unlike lengths are packed by collate_fn into rows of one length, as many as these need."""
    written = text()

    class Documents(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, index):
            return torch.from_numpy(written[index * 40:index * 40 + 8 + 5 * index % 30].astype(numpy.int64))

    def pack(samples):
        line = torch.cat(samples)
        line = F.pad(line, (0, -len(line) % 17))
        cut = line.view(-1, 17)
        return cut[:, :-1], cut[:, 1:]
    loop(moments, Writes(), lambda model, x, y: of_text(model(x), y), data=Documents(), loader={"collate_fn": pack})


class Blocks(nn.Module):
    """Blocks that are recomputed, in a model with an adapter."""

    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(8, 16), nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1)) for _ in range(2)]), nn.Linear(16, 1)

    def forward(self, x):
        x = self.first(x)
        for each in self.blocks:
            x = x + torch.utils.checkpoint.checkpoint(each, x, use_reentrant=False)
        return self.last(x)


def recomputes_blocks(moments):
    loop(moments, Blocks())


# ---- frameworks


def lightning_accumulates_by_hand(moments):
    """Manual optimization, with a step each two batches."""
    class Module(odd.lightning_module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, index):
            self.manual_backward(super().training_step(batch, index) / 2)
            if index % 2:
                self.optimizers().step()
                self.optimizers().zero_grad()
    odd.lightning(moments, module=Module)


def accelerates(moments, model=network, precision="no", **options):
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    from swell.integrations import AccelerateElastic
    accelerator = Accelerator(cpu=True, mixed_precision=precision, dataloader_config=DataLoaderConfiguration(**options))
    model = model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    elastic = AccelerateElastic(accelerator, model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, micro_batch=4)
    for x, y in elastic.batches(rows(98), steps=common.steps()):
        if elastic.step(F.mse_loss(model(x), y)):
            logs(moments, elastic)
    odd.finish(weights=norms(model.parameters()))


def accelerates_split_batches(moments):
    accelerates(moments, split_batches=True)


def accelerates_dispatched_batches(moments):
    accelerates(moments, dispatch_batches=True)


class Log:
    """Made as a callback of transformers' when it is known."""

    @staticmethod
    def of(moments):
        import transformers

        class Logs(transformers.TrainerCallback):
            def on_log(self, args, state, control, logs=None, **_):
                if "loss" in logs:
                    common.log(state.global_step, logs["loss"], args.world_size)
                    moments.at("step", state.global_step)
        return Logs()


def trains_by_transformers(moments, model, data, *, kind=None, options=None, callbacks=(), **more):
    import transformers

    from swell.integrations import SwellCallback
    args = transformers.TrainingArguments(**{**dict(
        output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd", logging_steps=1, save_steps=1000, use_cpu=True,
        report_to=[], disable_tqdm=True), **(options or {})})
    it = (kind or transformers.Trainer)(model, args, train_dataset=data, callbacks=[*callbacks, Log.of(moments)], **more)
    SwellCallback.attach(it)
    it.train()
    odd.finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()), best=it.state.best_metric or 0.0)


class Sentences(torch.utils.data.Dataset):
    """Lines of text in bytes, of unlike lengths if cut."""

    def __init__(self, cut=False):
        self.text, self.cut = text(), cut

    def __len__(self):
        return 108

    def __getitem__(self, index):
        ids = torch.from_numpy(self.text[index * 30:index * 30 + (8 + index % 12 if self.cut else 16)].astype(numpy.int64))
        return {"input_ids": ids, "labels": ids.clone()}


def mixes_experts(moments, of="Mixtral", weight=0.1, repaired=False):
    """With the balance of experts over the tokens of a pass as a part of the loss."""
    import transformers
    common_ = dict(vocab_size=256, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, output_router_logits=True, router_aux_loss_coef=weight, max_position_embeddings=32)
    if of == "Mixtral":
        config = transformers.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **common_)
    else:
        config = transformers.Qwen3MoeConfig(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8, decoder_sparse_step=1, **common_)
    model = getattr(transformers, of + "ForCausalLM")(config)
    if repaired:
        model.accepts_loss_kwargs = False
    trains_by_transformers(moments, model, Sentences())


def mixes_experts_as_the_mean_of_passes(moments):
    mixes_experts(moments, repaired=True)


def mixes_experts_of_qwen(moments):
    mixes_experts(moments, "Qwen3Moe")


def mixes_experts_without_balance(moments):
    mixes_experts(moments, weight=0.0)


def small_gpt():
    import transformers
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def trainer_keeps_its_best(moments):
    trains_by_transformers(moments, small_gpt(), Sentences(), options={"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "best", "load_best_model_at_end": True, "metric_for_best_model": "loss", "per_device_eval_batch_size": 4},
                           eval_dataset=torch.utils.data.Subset(Sentences(), range(12)))


def trl_prefers(moments):
    """DPO of TRL's."""
    import datasets
    import trl

    from swell.integrations import SwellCallback
    from trl_sft import tokenizer
    draws = numpy.random.default_rng(1)
    made = datasets.Dataset.from_dict({name: [" ".join(map(str, draws.integers(0, 60, 4 + at % 5))) for at in range(108)] for name in ("prompt", "chosen", "rejected")})
    args = trl.DPOConfig(output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd", logging_steps=1, save_steps=1000, use_cpu=True,
                         report_to=[], disable_tqdm=True, bf16=False, max_length=24, gradient_checkpointing=False)
    model = small_gpt()
    torch.manual_seed(3)        # the reference is the same at each start
    it = trl.DPOTrainer(model, ref_model=small_gpt(), args=args, train_dataset=made, processing_class=tokenizer(), callbacks=[Log.of(moments)])
    SwellCallback.attach(it)
    it.train()
    odd.finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()))


def trl_packs(moments):
    """SFT of TRL's with packing."""
    import datasets
    import trl

    from swell.integrations import SwellCallback
    from trl_sft import tokenizer
    draws = numpy.random.default_rng(1)
    made = datasets.Dataset.from_dict({"input_ids": [draws.integers(0, 60, 5 + at % 15).tolist() for at in range(300)]})
    args = trl.SFTConfig(output_dir=common.path("out"), per_device_train_batch_size=6, gradient_accumulation_steps=2, max_steps=common.steps(), learning_rate=0.05, optim="sgd", logging_steps=1, save_steps=1000, use_cpu=True,
                         report_to=[], disable_tqdm=True, bf16=False, max_length=24, packing=True, packing_strategy="wrapped", gradient_checkpointing=False)
    it = trl.SFTTrainer(small_gpt(), args=args, train_dataset=made, processing_class=tokenizer(), callbacks=[Log.of(moments)])
    SwellCallback.attach(it)
    it.train()
    odd.finish(weights=norms(it.accelerator.unwrap_model(it.model).parameters()))


def main(arguments):
    name, *words = arguments
    begin()
    globals()[name](Moments(words))


if __name__ == "__main__":
    main(sys.argv[1:])
