# SPDX-License-Identifier: BSD-3-Clause
"""One worker's part of the training's state: its parameters, their gradients, and what the optimizer keeps of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import torch

from swell import _identity
from swell.engine import live, sources, zero
from swell.engine import optimizer as optimizers
from swell.engine.arena import Arena, Ordinary, Request
from swell.engine.checkpoint import Checkpoints
from swell.engine.plan import Place, Plan
from swell.engine.stage import Share

__all__ = ["State", "wanted"]


def wanted(share: Share, place: Place, factory: optimizers.Factory, replicas: int = 1) -> Iterator[Request]:
    """Yields a request for each tensor of a worker: parameters, and what the optimizer keeps of them. replicas: that divide the latter."""
    kept = optimizers.entries(factory)
    for name, one in share.own.items():
        begin, end = one.block(place.shard, share.tp)
        flat = zero.part(prod(one.local_shape(share.tp)), place.group, replicas)
        yield Request(name, "parameter", one.dtype, one.global_shape, begin, end, one.layer)
        for entry in kept:
            if entry.moment:
                dtype = one.dtype if entry.dtype == torch.float32 else entry.dtype
                yield Request(f"{name}#{entry.name}", "moment", dtype, one.global_shape, begin, end, one.layer, flat=flat)
            else:
                yield Request(f"{name}#{entry.name}", "step", entry.dtype, (1,), (0,), (1,), one.layer, entry.on_host)


def _check_kinds(rest: Mapping[str, Any], now: Mapping[str, str]) -> None:
    """Compares what `now` names; an empty kind: there is none. Checkpoints of older versions name no kinds."""
    before = rest.get("kinds")
    if before is not None:
        _identity.check_kinds({name: before[name] for name in now if name in before}, {name: kind for name, kind in now.items() if kind})


class State:
    """Takes memory for the state of a worker's share, and fills it: from the generation before, from a checkpoint, or anew.

    requests: what is held, as blocks of the whole. tensors: they, by name. gradients: of one step, handed over to nobody. trained:
    parameters by their name in the whole model. parts: of them, which this worker's optimizer steps. before: what else the state was, where it is not new.
    """

    def __init__(self, share: Share, plan: Plan, place: Place, source: sources.Source, factory: optimizers.Factory, seed: int, *, arena: Arena,
                 checkpoints: Checkpoints | None, device: torch.device, divides: bool = False) -> None:
        self._share, self._place, self._of_others = share, place, share.skeleton.of_others(plan, place.stage)
        kept = optimizers.entries(factory)
        replicas = zero.replicas(plan, place, divides)
        self.requests = list(wanted(share, place, factory, replicas))
        self.tensors, fresh = arena.take(self.requests, device)
        if checkpoints is not None:
            checkpoints.take_folder()
        saved = checkpoints.newest_whole() if checkpoints is not None and fresh else None
        self.before: dict[str, Any] | None = None
        if not fresh and isinstance(arena, live.NativeArena):
            self.before = arena.rest()
        elif saved is not None and checkpoints is not None:
            # The optimizer's kind is compared before its state is read, since another one keeps other things of each parameter.
            kind = {"optimizer": optimizers.kind(factory)}
            self.before = checkpoints.load(saved, self.requests, self.tensors, lambda rest: _check_kinds(rest, kind))
        held = {name: self.tensors[name].view(one.local_shape(share.tp)) for name, one in share.own.items()}
        if self.before is None:
            for name, one in share.own.items():
                sources.fill(source, held[name], one, share.skeleton, place.shard, share.tp, seed)
        # Gradients are sums within a step: at its end they are worth nothing, and no switch moves them.
        gradients, _ = Ordinary().take([Request(name, "gradient", one.dtype, one.local_shape(share.tp), (0,) * len(one.shape),
                                                one.local_shape(share.tp)) for name, one in self._with_gradient()], device)
        share.hold(held, gradients, device)
        parameters = share.parameters
        self.trained = {name: parameters[share.trained_as(name)] for name in share.own}
        self.gradients = list(gradients.values())
        self.parts = zero.Parts(self.trained, place.group, replicas)
        self.optimizer = factory(list(self.parts.stepped.values()))
        self._given: list[dict[str, Any]] | None = None     # the optimizer's options, as the script and its schedule give them
        for name, parameter in self.parts.stepped.items():
            self.optimizer.state[parameter].update({
                entry.name: self.tensors[f"{name}#{entry.name}"].view(parameter.shape if entry.moment else ()) for entry in kept})

    @property
    def bytes(self) -> int:
        """The bytes of the state and of the gradients."""
        return sum(one.numel() * one.element_size() for one in self.all())

    def all(self) -> list[torch.Tensor]:
        """The state, and the gradients."""
        return [*self.tensors.values(), *self.gradients]

    def saved_here(self) -> list[Request]:
        """Returns this worker's part of a checkpoint; each block is written once."""
        place = self._place
        return [one for one in self.requests if (place.group == 0 or one.flat is not None) and (place.shard == 0 or self._is_split(one))
                and one.name.partition("#")[0] not in self._of_others]

    def rest(self, scheduler: Any, told: Mapping[str, Any], **numbers: int) -> dict[str, Any]:
        """Returns the state beside its tensors, the same on every worker. told: values that a start may change, which is said then."""
        options = [{name: value for name, value in group.items() if name != "params"} for group in self.optimizer.param_groups]
        return {**numbers, "options": options, "given": self._given, "told": dict(told), "kinds": self._kinds(scheduler), "scheduler": scheduler.state_dict() if scheduler is not None else None}

    def _kinds(self, scheduler: Any) -> dict[str, str]:
        return _identity.kinds({"optimizer": self.optimizer, "scheduler": scheduler})

    def begin(self) -> None:
        """The schedule is made, and nothing is gone on with yet."""
        self._given = _identity.options_of(self.optimizer.param_groups)

    def go_on(self, scheduler: Any, *, told: Mapping[str, Any], mtp_heads: int, **numbers: int) -> None:
        """Give optimizer and scheduler what rest() said. Raises ValueError where mtp_heads or one of the numbers was another then."""
        rest: Mapping[str, Any] = self.before or {}
        _check_kinds(rest, {"scheduler": "", **self._kinds(scheduler)})
        heads = rest.get("mtp_heads", 0)        # checkpoints without the word have none
        if heads != mtp_heads:
            raise ValueError(f"the training before had mtp_heads={heads}, here it is {mtp_heads}: keep it, so that no trained head is lost, or begin with another directory")
        for name, number in numbers.items():
            if rest[name] != number:
                raise ValueError(f"the training before had {name}={rest[name]}, here it is {number}: its samples would be lost or "
                                 "repeated; keep it, or begin with another directory")
        if rest.get("given") is not None:
            _identity.say_others({"told": rest["told"], "options": [rest["given"], _identity.options_of(rest["options"])]}, options=self._given or (), told=told)
        # Checkpoints named the rates alone once.
        before = rest["options"] if "options" in rest else [{} if rate is None else {"lr": rate} for rate in rest["rates"]]
        for group, options in zip(self.optimizer.param_groups, before, strict=True):
            group.update(options)
        if scheduler is not None and rest["scheduler"] is not None:
            scheduler.load_state_dict(rest["scheduler"])

    def _with_gradient(self) -> list[tuple[str, Any]]:
        return [(use, self._share.own[name]) for use, name in self._share.uses.items()]

    def _is_split(self, request: Request) -> bool:
        return request.kind != "step" and self._share.own[request.name.partition("#")[0]].dim is not None
