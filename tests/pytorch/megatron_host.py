# SPDX-License-Identifier: GPL-2.0-or-later
"""Has Megatron-Core run on a host. It names the GPU in some operations that all work without one; this stands in for these alone."""

import queue

import megatron.core.optimizer
import torch
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.optimizer import distrib_optimizer
from megatron.core.tensor_parallel import random
from torch.overrides import TorchFunctionMode


class _OnHost(TorchFunctionMode):
    """Makes on the CPU what is made with device="cuda"; names the types of tensors as those of a GPU, which clipping and masters ask for."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if str(options.get("device", "")).startswith("cuda"):
            options = {**options, "device": "cpu"}
        if function is torch.Tensor.cuda:
            return arguments[0]
        made = function(*arguments, **options)
        return made.replace("torch.", "torch.cuda.", 1) if function is torch.Tensor.type and isinstance(made, str) else made


class _FusedAdam(torch.optim.Optimizer):
    """As that of Apex, which needs a GPU: AdamW, the number of steps by group. With torch's, which keeps it by parameter, the distributed optimizer of
    0.16.1 reads no checkpoint that any degrees can read."""

    def __init__(self, params, lr, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-8, **_):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                for name in ("exp_avg", "exp_avg_sq"):
                    if name not in state:
                        state[name] = torch.zeros_like(parameter)
                state["exp_avg"].lerp_(parameter.grad, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                scale = (state["exp_avg_sq"] / (1 - second ** group["step"])).sqrt_().add_(group["eps"])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.addcdiv_(state["exp_avg"], scale, value=-group["lr"] / (1 - first ** group["step"]))


def begin(has_fused_adam):
    """From now on, in this process. has_fused_adam: as where Apex is installed."""
    _OnHost().__enter__()
    torch.cuda.current_device = lambda: "cpu"           # where buffers are made
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.manual_seed = torch.manual_seed          # the generator of the GPU is that of the host
    for where in (torch.cuda, torch.cuda.random):
        where.get_rng_state = lambda *_, **__: torch.get_rng_state()
        where.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    if has_fused_adam:
        megatron.core.optimizer.Adam = distrib_optimizer.Adam = _FusedAdam
        megatron.core.optimizer.USING_PYTORCH_OPTIMIZER = False
        distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_APEX_OPTIMIZER = True
    # Not for want of a GPU: a save within the process needs no other Python process, which imports torch for its queue's sake.
    results = queue.Queue()
    filesystem_async._get_write_results_queue = lambda: results
