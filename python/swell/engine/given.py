# SPDX-License-Identifier: BSD-3-Clause
"""The arguments that a program gives to the Engine: a plan in any of its forms, and numbers and functions, checked before anything is built."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from swell._counted import counted
from swell.engine.own_plans import own_sizes
from swell.engine.plan import Plan

__all__ = ["GivenPlan", "check_arguments", "check_plan", "check_plans", "initial_for", "optimizer_of", "plan_for", "scheduler_of", "sizes"]

GivenPlan = Plan | str | Callable[[int], "Plan | str"] | None

_DEGREES = re.compile(r"(?:(?:pp|dp|tp)[1-9]\d{0,4})+")
_FORMS = 'give degrees such as "pp2dp2" (stages, replicas, shards: pp, dp, tp), the JSON of a plan (swell(1), replan), a Plan, or a function of the number of workers'


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _degrees(text: str, argument: str = "plan") -> dict[str, int]:
    """Reads "pp2dp2". Raises ValueError."""
    plain = re.sub(r"[\s,x_-]", "", text.lower())
    found = [(name, int(number)) for name, number in re.findall(r"(pp|dp|tp)(\d+)", plain)] if _DEGREES.fullmatch(plain) else []
    if not found or len(dict(found)) != len(found):
        raise ValueError(f"{argument}={_said(text)} is neither degrees nor JSON: {_FORMS}")
    return dict(found)


def check_plan(given: GivenPlan, name: str = "plan") -> None:
    """Raises TypeError or ValueError where this, given as the argument `name`, is not a form of a plan."""
    if isinstance(given, str):
        if given.lstrip().startswith("{"):
            Plan.parse(given)
        else:
            _degrees(given, name)
    elif not (given is None or isinstance(given, Plan) or callable(given)):
        raise TypeError(f"{name}={_said(given)} is of type {type(given).__name__}: {_FORMS}")


def check_plans(given: GivenPlan, initial: GivenPlan) -> None:
    """Raises TypeError or ValueError where one of Engine's plan and initial_plan is not a plan, or both are given."""
    check_plan(given)
    check_plan(initial, "initial_plan")
    if given is not None and initial is not None:
        raise ValueError(f"plan={_said(given)} and initial_plan={_said(initial)}: the first is for the whole run, the other until Swell decides; give one of them")


def plan_for(given: Plan | str | Callable[[int], Plan | str], layers: int, global_batch: int, micro_batch: int, world: int) -> Plan:
    """Returns the plan for so many workers. Without "dp" in a text there are as many replicas as the workers suffice for.

    Raises ValueError where there is none.
    """
    made = given if isinstance(given, (Plan, str)) or not callable(given) else given(world)
    if isinstance(made, Plan):
        return made
    if not isinstance(made, str):
        raise TypeError(f"the function of plan= returned {_said(made)} for {counted(world, 'worker')}: let it return a Plan, or text such as \"pp2dp2\"")
    if made.lstrip().startswith("{"):
        return Plan.parse(made)
    degrees = {"pp": 1, "tp": 1, **_degrees(made)}
    each = degrees["pp"] * degrees["tp"]
    if "dp" not in degrees:
        if world % each:
            raise ValueError(f"plan=\"{made}\" needs a multiple of {counted(each, 'worker')}, there are {world}; give another plan or number of workers")
        degrees["dp"] = world // each
    elif each * degrees["dp"] != world:
        raise ValueError(f"plan=\"{made}\" is for {counted(each * degrees['dp'], 'worker')}, there are {world}; leave \"dp\" out for any multiple of {each}, or start as many")
    if degrees["pp"] > layers:
        raise ValueError(f"plan=\"{made}\" has {counted(degrees['pp'], 'stage')}, the model {counted(layers, 'layer')}; give at most as many stages")
    return Plan.symmetric(layers, global_batch, micro_batch, pp=degrees["pp"], dp=degrees["dp"], tp=degrees["tp"])


def initial_for(given: Plan | str | Callable[[int], Plan | str], layers: int, global_batch: int, micro_batch: int, world: int, *, first: bool) -> Plan | None:
    """Returns the initial plan for so many workers. Later than at a job's first start, text with "dp" is for any multiple of its DP and TP, with more or fewer stages;
    None where it is not for these workers. Raises ValueError at the first start."""
    try:
        return plan_for(given, layers, global_batch, micro_batch, world)
    except ValueError:
        if first:
            raise
    degrees = {"tp": 1, **_degrees(given)} if isinstance(given, str) and not given.lstrip().startswith("{") else {}
    each = degrees.get("dp", 0) * degrees.get("tp", 1)
    if not each or world % each or world // each > layers:
        return None
    return Plan.symmetric(layers, global_batch, micro_batch, pp=world // each, dp=degrees["dp"], tp=degrees["tp"])


def sizes(given: GivenPlan, layers: int, global_batch: int, micro_batch: int, most: int, fits: Callable[[int, int, int], bool] = lambda *_: True, *,
          mtp_heads: int = 0, keeps: Callable[[Plan], bool] = lambda _: True) -> list[int]:
    """Returns the numbers of workers, up to `most`, for which a program has a plan: the one that it always runs, what it makes of the number, or
    own_plan(). fits: whether the program's schedule is for so many stages, chunks and micro-batches. keeps: whether a plan that is made of the number may be run."""
    if given is None:
        return own_sizes(layers, global_batch, micro_batch, most, fits)
    if isinstance(given, Plan):
        return [given.world]
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return [Plan.parse(given).world]
    found = []
    for world in range(1, min(most, layers * global_batch) + 1):
        try:
            made = plan_for(given, layers, global_batch, micro_batch, world)
            made.check(layers, global_batch, world, mtp_heads)
        except (ValueError, LookupError):
            continue
        if fits(made.pp, made.chunks, made.micro_batches) and keeps(made):
            found.append(world)
    return found


def check_arguments(*, optimizer: Any, scheduler: Any, numbers: Mapping[str, Any], dtypes: Mapping[str, Any], max_grad_norm: Any,
                    directory: str | os.PathLike[str] | None) -> None:
    """Raises TypeError or ValueError, which names the argument, its value and what to give.

    numbers: of Engine's arguments, each with the least that is possible. dtypes: None where they need not be given.
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer= is a {type(optimizer).__name__} already; give what makes it of parameters, such as "
                        f"lambda parameters: torch.optim.{type(optimizer).__name__}(parameters, lr={optimizer.param_groups[0].get('lr', 1e-3)}), since each worker "
                        "trains parameters of its own")
    if not callable(optimizer):
        raise TypeError(f"optimizer={_said(optimizer)}; give what makes an optimizer of parameters, such as lambda parameters: "
                        "torch.optim.AdamW(parameters, lr=3e-4)")
    if scheduler is not None and (not callable(scheduler) or hasattr(scheduler, "last_epoch")):
        raise TypeError(f"scheduler= is a {type(scheduler).__name__}; give what makes it of the optimizer, such as "
                        "lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rate)")
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ValueError(f"{name}={_said(value)}; give a whole number of at least {least}")
    for name, dtype in dtypes.items():
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"{name}={_said(dtype)}; give a floating point dtype, such as torch.bfloat16")
        if dtype is torch.float16:
            raise ValueError(f"{name}=torch.float16: its gradients need a GradScaler, which the Engine has not; give torch.bfloat16, or train by "
                             "swell.torch.Elastic(scaler=...)")
    if max_grad_norm is not None and not (isinstance(max_grad_norm, (int, float)) and max_grad_norm > 0):
        raise ValueError(f"max_grad_norm={_said(max_grad_norm)}; give a number above 0, or None where gradients are not clipped")
    if directory is not None and os.path.exists(directory) and not os.path.isdir(directory):
        raise ValueError(f"directory={os.fspath(directory)!r} is a file; give a folder for checkpoints, which is made where it is missing")


def check_zero(zero: Any) -> None:
    """Raises ValueError where the engine has no such stage of ZeRO."""
    if isinstance(zero, bool) or zero not in (0, 1):
        raise ValueError(f"zero={_said(zero)}; give 1 where replicas divide what the optimizer keeps (ZeRO-1), or 0 where each keeps all of it; to divide gradients and "
                         "parameters, train with fully_shard and swell.torch.Elastic")


def optimizer_of(made: Any) -> torch.optim.Optimizer:
    """Returns what the program's optimizer= made. Raises TypeError where that is not an optimizer."""
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"the function of optimizer= returned {_said(made)}; let it return an optimizer over the parameters that it is given")
    return made


def scheduler_of(made: Any) -> Any:
    """Returns what the program's scheduler= made. Raises TypeError where that is not a schedule."""
    if not (callable(getattr(made, "step", None)) and callable(getattr(made, "state_dict", None))):
        raise TypeError(f"the function of scheduler= returned {_said(made)}; let it return a schedule of the optimizer that it is given")
    return made
