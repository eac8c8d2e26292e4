# SPDX-License-Identifier: BSD-3-Clause
"""Trains a transformers model under any plan of the core."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
import torch.distributed as dist

from swell import _launcher, _native, _request, _staying
from swell._agreement import gather, leave
from swell._generators import generators, of_rank, restore_generators, seed_generators
from swell._plain import plain
from swell._rounded import say_half
from swell._slots import NoRoom
from swell.engine import batches, export, given, live, paced, sources, sums
from swell.engine import log as logs
from swell.engine import optimizer as optimizers
from swell.engine.arena import Arena, Ordinary
from swell.engine.choosing import PlanChooser
from swell.engine.generation import Generation, GlobalBatch
from swell.engine.given_schedule import GivenSchedule
from swell.engine.leaving import Leaving
from swell.engine.loss import LateLoss
from swell.engine.observer import Observer
from swell.engine.plan import Place, Plan
from swell.engine.position import Position
from swell.engine.schedule import Schedule
from swell.engine.settings import Settings
from swell.engine.standing import Standing
from swell.engine.state import wanted
from swell.engine.zero import replicas

__all__ = ["Engine"]



class Engine:
    """Trains a causal language model over all workers, under the plan that Swell decided.

    ::

        engine = Engine(config, optimizer=lambda p: torch.optim.AdamW(p, lr=3e-4), global_batch=64, micro_batch=2)
        for batch in engine.batches(dataset, epochs=1):
            loss = engine.step(batch)

    Under `swellrun --elastic=mode=live` the state stands in libswell's memory, the constructor waits until the training before
    has handed it over, and step() ends this process when the next plan's programs have taken it, or goes on under that plan where
    none of them is new: plan, place, rank, world, optimizer and scheduler are others then. Otherwise, with a directory, the
    newest complete checkpoint is loaded, under whatever plan it was written.

    model_or_config: a transformers config (random weights), a folder with weights, or a model.
    optimizer: makes the optimizer from a list of parameters.
    global_batch: samples of one optimizer step, over all workers and micro-batches.
    micro_batch: samples of one pass, where no plan was decided.
    plan: a Plan; text such as "pp2dp2" (stages, replicas, shards; without dp as many replicas as there are workers for) or a plan's JSON; or what makes
        one of these of the number of workers. None: SWELL_PLAN; else initial_plan; else data parallelism over all workers, and stages where those are more than the
        samples allow.
    initial_plan: as plan, for the start of a job whose plan Swell decides: it is used where none was decided. Under --elastic=consistency=exact give all degrees, as "pp4dp1": DP and TP stay, those of a checkpoint too.
    scheduler: makes the learning rate's schedule from the optimizer; stepped once an optimizer step.
    max_grad_norm: of all gradients together; None: not clipped.
    dtype: of the parameters. autocast: dtype that passes compute in; None: that of the parameters.
    recompute: keep each layer's input alone, and compute its activations again in the backward pass.
    directory: for checkpoints; one that all workers see, and no other run uses. checkpoint_every: steps; 0: by save() alone.
    log: file for a line of JSON a step. peak_flops: of one accelerator, for the utilisation in it.
    description: of a model that transformers does not describe, see docs/engine.md.
    schedule: of passes: a name ("1f1b", "gpipe", "interleaved", "zero-bubble", "memory-minimised"), which each plan makes anew; a text, a file with one, or
        passes by stage, see swell.engine.schedule; or "search" for the one that Swell's planner finds for an exact live job, and tells with its plans, which
        go before any other. None: interleaved, which is 1F1B where stages have one chunk.
    mtp_heads: so many further tokens are predicted from each, by a head each: a layer of the family over the hidden states before it and a later token's
        embedding, with the model's own embedding and output projection. mtp_weight: of the mean of their losses, which step()'s loss has in it.
    late_loss: step() returns a LateLoss, which waits for the device where it is first used, in place of a float that it waits for itself.
    zero: 1: replicas divide what the optimizer keeps (ZeRO-1), under every plan, and gather the parameters that each has stepped; 0: each keeps all.
    profile: take the times of a step's parts also where nobody asks for them (live mode does); profile() says them.

    With SWELL_PACED in the environment the parts of a step take as long as stated accelerators would: swell.engine.paced.
    """

    _makes = Generation     # a class of its own where other accelerators are stated

    def __init__(self, model_or_config: Any, optimizer: optimizers.Factory, *, global_batch: int, micro_batch: int = 1,
                 plan: given.GivenPlan = None, scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
                 max_grad_norm: float | None = None, dtype: torch.dtype = torch.float32, autocast: torch.dtype | None = None,
                 recompute: bool = False, seed: int = 0, directory: str | os.PathLike[str] | None = None, checkpoint_every: int = 0,
                 log: str | os.PathLike[str] | None = None, peak_flops: float | None = None,
                 description: Mapping[str, Any] | str | None = None, schedule: Schedule | str | None = None, profile: bool = False,
                 mtp_heads: int = 0, mtp_weight: float = 0.3, late_loss: bool = False, initial_plan: given.GivenPlan = None, zero: int = 0) -> None:
        given.check_arguments(optimizer=optimizer, scheduler=scheduler, max_grad_norm=max_grad_norm, directory=directory, dtypes={"dtype": dtype, "autocast": autocast}, numbers={
            "global_batch": (global_batch, 1), "micro_batch": (micro_batch, 1), "checkpoint_every": (checkpoint_every, 0), "mtp_heads": (mtp_heads, 0)})
        if not (isinstance(mtp_weight, (int, float)) and mtp_weight > 0):
            raise ValueError(f"mtp_weight={mtp_weight!r}; give a number above 0, such as 0.3")
        given.check_plans(plan, initial_plan)
        given.check_zero(zero)
        if schedule == "search" and plan is not None:
            raise ValueError(f"plan={plan!r} is for the whole run, and schedule=\"search\" takes plans that Swell decides; give initial_plan={plan!r}")
        here = _request.place()
        if _request.under_swellrun():
            _launcher.refuse_other_launchers()
        if log is not None and here.rank == 0:
            logs.check(log)
        self.device = _start(here.world)
        source = sources.read(model_or_config)
        self.config, self.seed, self.global_batch, self.dtype, self.autocast = source.config, seed, global_batch, dtype, autocast
        self.max_grad_norm, self.checkpoint_every = max_grad_norm, checkpoint_every
        self._settings = Settings(
            config=source.config, optimizer=optimizer, scheduler=scheduler, global_batch=global_batch, micro_batch=micro_batch, plan=plan, initial_plan=initial_plan,
            dtype=dtype, recompute=recompute, seed=seed, directory=None if directory is None else _request.run_folder(directory), log=log, peak_flops=peak_flops,
            description=description, mtp_heads=mtp_heads, mtp_weight=mtp_weight, divides=zero == 1)
        self._late_loss = late_loss
        self._chooser = PlanChooser(self._settings, GivenSchedule(schedule), self.device, lambda size: self._generation.regions.region("tp", None, size))
        standing = self._chooser.stand(here.rank, here.world)
        stays = _staying.other_groups(int(dist.is_initialized())) == 0
        session = _native.open_session(stays_if_none_is_new=stays) if _native.is_live() or profile else None
        if profile and session is None:
            raise ValueError("profile=True needs libswell; let SWELL_LIBRARY name libswell.so.1")
        self._next: tuple[Standing, _native.Session, live.NativeArena] | None = None
        self._position = Position(self._settings)
        self._leaving = Leaving(self._settings.directory, self._chooser, self.save)
        if not _native.is_live():
            self._leaving.listen()
        self._begin(standing, session, live.NativeArena(session, here.rank) if session is not None and _native.is_live() else Ordinary(), source)
        if not sums.is_exact():     # else each sum is over the same passes
            say_half(self.autocast or self.dtype)
        # Objects that are made before the loop may draw again.
        self._position.goes_on_from = generators() if self._generation.state.before is not None else None
        if _request.under_swellrun() and self._leaving.lock is not None:
            self._leaving.hear({"optimizer": self.optimizer, **({"scheduler": self.scheduler} if self.scheduler is not None else {})}, self._generation.links.host)

    def _begin(self, standing: Standing, session: _native.Session | None, arena: Arena, source: sources.Source) -> None:
        """Begin a generation, with all of its workers: groups, memory, and the state that the training has come to."""
        generation = self._makes(self._settings, standing, self._chooser.schedule, session, arena, source, device=self.device, lock=self._leaving.lock, around=self._around)
        self._generation, state = generation, generation.state
        self.optimizer = state.optimizer
        self.scheduler = given.scheduler_of(self._settings.scheduler(self.optimizer)) if self._settings.scheduler is not None else None
        state.begin()
        if state.before is not None:
            if sums.is_exact():
                sums.check(self.plan, state.before.get("sums"))
            state.go_on(self.scheduler, told=self._told(), global_batch=self.global_batch, seed=self.seed, mtp_heads=self._settings.mtp_heads)
        self._position.begin(generation)
        if state.before is not None:
            self._draw_as_before(state.before)
        self._log = _log(self._settings, self.plan, here=self.rank == 0)
        self._observer = Observer(self._settings, generation)

    @property
    def steps(self) -> int:
        """Optimizer steps so far, with those of the generations and starts before."""
        return self._position.steps

    @property
    def plan(self) -> Plan:
        """The plan of this generation."""
        return self._generation.plan

    @property
    def place(self) -> Place:
        """This worker's place in the plan."""
        return self._generation.place

    @property
    def rank(self) -> int:
        """This worker's rank."""
        return self._generation.place.rank

    @property
    def world(self) -> int:
        """The number of workers."""
        return self._generation.plan.world

    def _draw_as_before(self, before: Mapping[str, Any]) -> None:
        """Random numbers go on as this rank's worker of the generation before had them; as another one's where it is new: all work on the same global batches."""
        arena = self._generation.arena
        if isinstance(arena, live.NativeArena) and "handed" in before:      # not of a checkpoint
            if (mine := arena.generators()) is not None:
                restore_generators(mine)
            else:
                print(f"swell: rank {self.rank}: no worker's random numbers have come whole; this one's begin anew", file=sys.stderr, flush=True)
                seed_generators(self.seed, self.steps, 0)       # alike on all new ones
        elif each := before.get("generators"):      # checkpoints of older versions have none
            restore_generators(of_rank(each, self.rank) or each[0])

    def reschedule(self, schedule: Schedule | str | None) -> None:
        """Train on under another schedule of this plan, from the next step on. Every worker calls it, between the same two steps.

        Losses and weights stay bitwise what they are. Raises ValueError, and keeps the schedule, where it is invalid or of another plan.
        """
        given_schedule = GivenSchedule(schedule)
        self._generation.reschedule(given_schedule)
        self._chooser.schedule = given_schedule

    # ---- training

    def batches(self, dataset: Any, *, epochs: int | None = None, shuffle: bool = True) -> Iterator[batches.Batch]:
        """Global batches from where training stands, each for one step() or skip(): the same samples in the same order under every plan.

        dataset: its samples are mappings with "input_ids", all of one length, and with "labels" if these differ from them. It has a length, or is a
        stream that every worker reads from the beginning to the end, in the stream's own order (see swell.torch.Elastic.batches()). epochs: None: no limit.
        """
        yield from self._position.over(dataset, epochs, shuffle)
        self._generation.votes.check()
        self._leaving.finish(self.steps)

    def step(self, batch: GlobalBatch) -> float | LateLoss:
        """One optimizer step over the global batch. Returns its loss, the same on every worker.

        batch: of batches(); or "input_ids" and "labels" of all samples, the same on every worker, and "attention_mask" and
        "position_ids" if there are. Ends this process with exit code 0 where it is to leave.
        """
        self._position.check(batch)
        self._poll()
        now = self._generation
        now.votes.steps()
        self._position.take()
        self._log.begin()
        losses = self.backward(batch) if self._observer.is_done else self._observer.backward(batch)
        gradients = self.gradients()
        loss, norm = now.totals.over(losses, gradients if self.max_grad_norm is not None else None)
        with now.regions.region("optimizer"):
            if norm is not None and self.max_grad_norm is not None:
                self._clip(list(gradients.values()), norm, self.max_grad_norm)
            self.optimizer.step()
            torch._foreach_zero_(now.state.gradients)
        now.gather_parameters()
        if self.scheduler is not None:
            self.scheduler.step()
        self._advance(batch)
        if self._log.writes:
            self._log.step(self.steps, float(loss), self.global_batch * now.length, logs.flops_of_a_token(now.share.skeleton, now.length),
                           lr=self.optimizer.param_groups[0].get("lr"), norm=None if norm is None else float(norm),
                           **({"paced_late_s": round(now.regions.late_s, 6)} if isinstance(now.regions, paced.Paced) else {}))
        del now, gradients      # another generation may begin here: then nothing keeps the memory of this one's state
        self._boundary()
        return LateLoss(loss) if self._late_loss else float(loss)

    def skip(self, when: bool | torch.Tensor = True) -> bool:
        """Leave the last batch of batches() out, on all workers, where one of them says so. Returns whether it is left out.

        ::

            if engine.skip(not math.isfinite(engine.evaluate(batch))):
                continue
            engine.step(batch)

        Every worker calls it for each batch, before step(), and waits for the others. A batch that is left out counts as a step: weights, optimizer and
        schedule stay as they are, and its samples are not given again.
        """
        batch, now = self._position.awaited(), self._generation
        self._poll()
        if not now.votes.skips(bool(when)):
            return False
        self._position.take()
        torch._foreach_zero_(now.state.gradients)       # of a backward() of the script's
        self._advance(batch)
        del now     # as in step()
        self._boundary()
        return True

    def _advance(self, batch: GlobalBatch) -> None:
        """The present batch is behind us."""
        self._position.advance(batch)
        _request.made_step(self.steps, self._position.total)

    def _clip(self, gradients: list[torch.Tensor], norm: torch.Tensor, most: float) -> None:
        if self._generation.reads_late:     # by 1 where the norm is not too large: nobody waits to see
            torch._foreach_mul_(gradients, torch.where(norm > most, most / (norm + 1e-6), torch.ones_like(norm)))
        elif float(norm) > most:
            torch._foreach_mul_(gradients, most / (float(norm) + 1e-6))

    def backward(self, batch: GlobalBatch) -> list[torch.Tensor]:
        """The passes of a step and the sums of its gradients, without the optimizer; step() calls it.

        Returns losses of this worker's samples, by micro-batch, where the head is.
        """
        return self._generation.backward(batch, self._generation.sums)

    def profile(self) -> _native.Times | None:
        """Returns the times of the parts of a step on this worker; None before the times of five steps are known, or where none are taken."""
        session = self._generation.session
        return session.profiler.profile() if session is not None else None

    def evaluate(self, batch: GlobalBatch) -> float:
        """The loss of a global batch, without dropout and gradients; the same on every worker."""
        return self._generation.evaluate(batch)

    def gradients(self) -> dict[str, torch.Tensor]:
        """Returns this worker's gradients, by the parameter's name in the whole model."""
        return self._generation.gradients()

    def _around(self, micro_batch: int, chunk: int) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(self._observer.around(chunk))
        if self.autocast is not None:
            stack.enter_context(torch.autocast(self.device.type, self.autocast))
        now = self._generation
        if now.dropout is not None and now.dropout.training:
            mine, first = now.samples(), micro_batch * now.plan.micro_batch_samples
            stack.enter_context(now.dropout.at(self.steps, range(first + mine.start, first + mine.stop)))
        return stack

    # ---- leaving and saving

    def _boundary(self) -> None:
        if self.checkpoint_every and self.steps % self.checkpoint_every == 0:
            self._leaving.try_to_save()
        now = self._generation
        if not isinstance(now.arena, live.NativeArena):
            if now.session is not None and not _native.is_live():
                now.session.step(self.steps)
            return
        try:
            action = now.arena.boundary(self.steps, self._rest())
        except _native.NativeError as error:
            _request.not_live(error)
            now.arena = Ordinary()
            return
        if action is _native.Action.PREPARE:
            self._next = self._prepare()
        if action in (_native.Action.STOP, _native.Action.CHECKPOINT):
            self._leaving.try_to_save()
        if action in (_native.Action.STOP, _native.Action.SWITCH):
            self._end_agreement()
        del now     # as in step()
        if action is _native.Action.SWITCH and self._next is not None:
            self._stay(*self._next)
        elif action in (_native.Action.STOP, _native.Action.SWITCH):
            leave()

    # ---- staying

    def _prepare(self) -> tuple[Standing, _native.Session, live.NativeArena] | None:
        """Builds this worker's standing in the prepared generation, and offers it there, beside the training; None: it does not stay."""
        now, settings = self._generation, self._settings
        assert now.session is not None
        if others := _staying.other_groups(now.links.count()):
            _staying.decline(now.session, self.rank, f"process groups beside the engine's ({others})")
            return None
        try:
            session = now.session.next()
            world, decided = int(session.variable("WORLD_SIZE") or 1), session.variable("SWELL_PLAN") or ""
            if decided and Plan.parse(decided).world != world:
                decided = ""        # this generation's: the next one has none
            standing = self._chooser.stand(int(session.variable("RANK") or 0), world, decided, sums.of(self.plan))
            arena = live.NativeArena(session, standing.place.rank)
            arena.register(list(wanted(standing.share, standing.place, settings.optimizer, replicas(standing.plan, standing.place, settings.divides))), self.device)
            session.offer()
            return standing, session, arena
        except (ValueError, LookupError, OSError, NoRoom) as error:
            if getattr(error, "errno", None) != errno.ECANCELED:
                _staying.decline(now.session, self.rank, error)
            return None

    def _stay(self, standing: Standing, session: _native.Session, arena: live.NativeArena) -> None:
        """Train on under the next generation's plan, in this process."""
        self._next = None
        self._generation.free_gradients()
        _staying.regroup(session, self.device)
        before = self._generation.session
        self._begin(standing, session, arena, sources.read(self.config))
        gc.collect()        # modules of the share before refer to themselves
        if before is not None:
            _staying.let_go(before, self.rank, self.device)
        self._leaving.regroup(self._generation.links.host)

    # ---- saving

    def save(self) -> None:
        """Write a checkpoint of this step; nothing where no directory was given. Every worker calls it.

        Raises OSError where it cannot be written, or read back. Those of checkpoint_every= are said to have failed, and training goes on.
        """
        now = self._generation
        if now.checkpoints is None:
            return
        drawn = gather(self._position.drawn or generators(), now.links.host)
        now.checkpoints.save(self.steps, now.state.saved_here(), now.state.tensors, {**self._rest(), "generators": drawn})
        self._leaving.saved()

    def _told(self) -> dict[str, Any]:
        return {"max_grad_norm": plain(self.max_grad_norm), "autocast": str(self.autocast)}

    def _rest(self) -> dict[str, Any]:
        rest = self._generation.state.rest(self.scheduler, self._told(), steps=self.steps, global_batch=self.global_batch, seed=self.seed, mtp_heads=self._settings.mtp_heads)
        return {**rest, "data": self._position.data, "sums": sums.of(self.plan)}

    def _poll(self) -> None:
        """Before a step: leaves with a checkpoint if swellrun has asked. Where it cannot be saved training goes on."""
        if self._leaving.is_asked():
            self._generation.votes.check()
            self._leaving.leave(self.steps, self.world)

    def _end_agreement(self) -> None:
        """Ends the communication under way between the workers of this generation."""
        try:
            self._generation.votes.end()
            self._leaving.end()
        except RuntimeError as error:       # a worker was killed at the boundary
            print(f"swell: rank {self.rank}: {error}", file=sys.stderr, flush=True)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as a plain transformers folder, for from_pretrained(). Every worker calls it; rank 0 takes the
        host's memory of the whole model."""
        now = self._generation
        skeleton = now.share.skeleton
        whole = export.gathered(skeleton, self.plan, self.place, {name: now.state.tensors[name] for name in now.share.own})
        if whole is not None:
            export.save_pretrained(folder, self.config, self.dtype, skeleton, whole)


def _start(world: int) -> torch.device:
    """This worker's device, and the process group over all."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def _log(settings: Settings, plan: Plan, *, here: bool) -> logs.Log:
    constant: dict[str, Any] = {"generation": _request.place().generation, "world": plan.world, "plan": plan.summary()}
    if os.environ.get("SWELL_PACED"):
        constant["paced"] = os.environ["SWELL_PACED"]
    return logs.Log(settings.log if here else None, settings.peak_flops, plan.world, constant)
