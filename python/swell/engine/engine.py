# SPDX-License-Identifier: BSD-3-Clause
"""Trains a transformers model under any plan of the core."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from swell import _launcher, _native, _request, _staying
from swell._agreement import Agreement, cpu_group, gather, leave, leave_with_checkpoint
from swell._counted import counted
from swell._generators import generators, of_rank, restore_generators, seed_generators
from swell._lock import FolderLock
from swell._plain import Unreadable, plain
from swell._rounded import say_half
from swell._slots import NoRoom
from swell._stream import Stream, is_stream
from swell.checkpoint import readable
from swell.data import ElasticSampler, has_length
from swell.engine import batches, export, given, live, memory, named_schedules, paced, reduce, sources, sums
from swell.engine import log as logs
from swell.engine import optimizer as optimizers
from swell.engine import schedule as schedules
from swell.engine.arena import Arena, Ordinary
from swell.engine.beside import SumsBeside
from swell.engine.checkpoint import Checkpoints
from swell.engine.comm import Links
from swell.engine.executor import Executor, MicroBatch
from swell.engine.loss import LateLoss
from swell.engine.own_plans import given_plan
from swell.engine.plan import Plan
from swell.engine.regions import Regions
from swell.engine.skeleton import Skeleton
from swell.engine.standing import Standing
from swell.engine.state import State, wanted
from swell.engine.zero import replicas

__all__ = ["Engine"]

_MAX_SIZES = 4096       # that swellrun reads
GlobalBatch = Mapping[str, torch.Tensor] | batches.Batch


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

    def __init__(self, model_or_config: Any, optimizer: optimizers.Factory, *, global_batch: int, micro_batch: int = 1,
                 plan: given.GivenPlan = None, scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
                 max_grad_norm: float | None = None, dtype: torch.dtype = torch.float32, autocast: torch.dtype | None = None,
                 recompute: bool = False, seed: int = 0, directory: str | os.PathLike[str] | None = None, checkpoint_every: int = 0,
                 log: str | os.PathLike[str] | None = None, peak_flops: float | None = None,
                 description: Mapping[str, Any] | str | None = None, schedule: schedules.Schedule | str | None = None, profile: bool = False,
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
        self.steps = 0
        self._total: int | None = None      # steps at the training's end, where batches() knows them
        self.device = _start(here.world)
        self._reads_late = self.device.type != "cpu"        # the norm and the number of tokens, so that the host does not wait for the device
        source = sources.read(model_or_config)
        self.config, self.seed, self.global_batch, self.dtype, self.autocast = source.config, seed, global_batch, dtype, autocast
        self._mtp_heads, self._mtp_weight, self._late_loss = mtp_heads, mtp_weight, late_loss
        self.max_grad_norm, self.checkpoint_every = max_grad_norm, checkpoint_every
        self._description, self._given, self._initial, self._micro_batch, self._recompute = description, plan, initial_plan, micro_batch, recompute
        self._factory, self._make_scheduler, self._divides = optimizer, scheduler, zero == 1
        self._directory = directory = None if directory is None else _request.run_folder(directory)
        self._schedule = read_schedule(schedule)
        self._schedule_shape = None if isinstance(self._schedule, str) else schedules.shape_of(self._schedule)
        self._log_path, self._peak_flops = log, peak_flops
        self._sizes_once_saved: Callable[[], list[int]] | None = None       # of an exact job whose sums new workers learn from a checkpoint alone
        standing = self._stand(here.rank, here.world)
        stays = _staying.other_groups(int(dist.is_initialized())) == 0
        session = _native.open_session(stays_if_none_is_new=stays) if _native.is_live() or profile else None
        if profile and session is None:
            raise ValueError("profile=True needs libswell; let SWELL_LIBRARY name libswell.so.1")
        self._next: tuple[Standing, _native.Session, live.NativeArena] | None = None
        self._length = 0
        self._data: dict[str, Any] | None = None        # what the order of batches() depends on
        self._stream: Stream | None = None      # that batches() reads
        self._drawn: dict[str, Any] | None = None       # where random numbers stood before the batch that awaits its step
        self._loop: object | None = None        # over batches(), that is under way
        self._awaited: batches.Batch | None = None      # that batches() gave last, and that awaits its step
        self._lock = FolderLock(directory) if directory is not None else None
        self._agreement: Agreement | None = None        # of leaving by a checkpoint
        self._save_fails = ""       # why the newest save failed
        self._bar = "Engine has no directory= for checkpoints, and swellrun no --elastic=mode=live" if directory is None else ""
        if not _native.is_live():
            self._offer_sizes()
            if directory is not None:
                _request.listen(leaves_at_once=True)
        self._begin(standing, session, live.NativeArena(session, here.rank) if session is not None and _native.is_live() else Ordinary(), source)
        if not sums.is_exact():     # else each sum is over the same passes
            say_half(self.autocast or self.dtype)
        self._goes_on_from = generators() if self._state.before is not None else None       # what is made before the loop may draw again
        if _request.under_swellrun() and directory is not None:
            self._hear()

    def _hear(self) -> None:
        """Leave by a checkpoint where swellrun asks, in live mode too: where the state of a new worker finds no room, the job is resized so."""
        stateful = {"optimizer": self.optimizer, **({"scheduler": self.scheduler} if self.scheduler is not None else {})}
        why = readable(stateful)
        if not _native.is_live():
            self._agreement = Agreement(cpu_group())
            if why:
                self._bar = why
                self._offer_sizes()
        elif not why:       # else it stays live, as it does without a directory
            self._agreement = Agreement(self._links.host)
            _request.listen()

    def _stand(self, rank: int, world: int, decided: str | None = None, before: dict[str, Any] | None = None) -> Standing:
        """Finds the standing of this worker under the plan of a generation; swellrun is told for which numbers of workers there is one.

        decided: that plan, where swellrun has one. before: what an exact job's sums are in this process.
        """
        skeleton = Skeleton(self.config, self._description, self.dtype, self._mtp_heads)
        shape = skeleton.layers, self.global_batch, self._micro_batch, world
        plan, why = None, ""
        if sums.is_exact():
            plan, before, why = self._kept(shape, decided, before)
        if _request.is_heard():
            possible = partial(self._possible, skeleton.layers, plan, before)
            self._sizes = [world] if why else possible()
            self._sizes_once_saved = possible if why else None
            if _native.is_live():
                _request.can_run_with(self._sizes, why)
        if plan is None:
            plan = self._planned(shape, decided, None)
        else:
            sums.check(plan, before)
        skeleton.check(plan)
        plan.check(skeleton.layers, self.global_batch, world, self._mtp_heads)
        plan = plan.with_mtp(self._mtp_heads)
        self._order_of(plan)        # before anything is given up for this plan
        return Standing(skeleton, plan, rank, seed=self.seed, device=self.device, recompute=self._recompute,
                        timed=lambda size: self._regions.region("tp", None, size))

    def _possible(self, layers: int, plan: Plan | None, before: dict[str, Any] | None) -> list[int]:
        """The numbers of workers that there are plans for. plan: of an exact job, with its sums, or those before."""
        if plan is None or self._given is not None:
            kept = before if before is not None or plan is None else sums.of(plan)
            return given.sizes(self._given, layers, self.global_batch, self._micro_batch, _MAX_SIZES, self._fits, mtp_heads=self._mtp_heads,
                               keeps=lambda one: kept is None or sums.of(one) == kept)
        return sums.sizes(plan, layers, _MAX_SIZES, self._fits)

    def _kept(self, shape: tuple[int, int, int, int], decided: str | None, before: dict[str, Any] | None) -> tuple[Plan, dict[str, Any] | None, str]:
        """An exact job's plan, the sums that it has to have, and why the job is lent nothing: empty where it is."""
        here, saved = _request.place(), sums.saved(self._directory)
        is_untold = saved is None and _native.is_live()     # to new workers, before they see the state
        begun = sums.begun(self._given, self._initial, *shape[:3], here.basic_workers) if is_untold else None
        if before is None:
            has_any = here.generation == 0 and self._given is None and bool(os.environ.get("SWELL_PLAN"))      # a plan decided for the first start
            before = saved or (None if has_any else begun)
        plan = self._planned(shape, decided, before)
        return plan, before, sums.why_alone(plan, begun, self._directory) if is_untold else ""

    def _planned(self, shape: tuple[int, int, int, int], decided: str | None, before: dict[str, Any] | None) -> Plan:
        """The plan of the whole run, or that was decided; else the initial one, or one of the program's own, or where these have other sums than before, one that has them."""
        if self._given is not None:
            return given.plan_for(self._given, *shape)
        text = os.environ.get("SWELL_PLAN") if decided is None else decided
        try:
            plan = given_plan(*shape, text, None if self._initial is None else given.initial_for(
                self._initial, *shape, first=decided is None and _request.place().generation == 0))
        except ValueError:
            if text or before is None:
                raise
            return sums.plan_for(before, shape[0], shape[3])
        return plan if text or before is None or sums.of(plan) == before else sums.plan_for(before, shape[0], shape[3])

    def _begin(self, standing: Standing, session: _native.Session | None, arena: Arena, source: sources.Source) -> None:
        """Begin a generation, with all of its workers: groups, memory, and the state that the training has come to."""
        self.plan, self.place, self._share, self._dropout = standing.plan, standing.place, standing.share, standing.dropout
        self.rank, self.world, self._session, self._arena = standing.place.rank, standing.plan.world, session, arena
        self._regions = self._timed()
        skeleton = standing.skeleton
        self._links = Links(self.plan, self.place, skeleton.stages_of_shared(self.plan).values())
        self._links.connect(self.plan, self.place, bool(skeleton.tied) and not skeleton.shared, self.device)
        if standing.shards is not None:
            standing.shards.group = self._links.tp
        self._totals = reduce.Totals(self._share, self.plan, self.place, self.device)
        self._votes = Agreement(self._links.host, of="engine")
        self._checkpoints = Checkpoints(self._lock, self._links.host) if self._lock is not None else None
        self._state = State(self._share, self.plan, self.place, source, self._factory, self.seed, arena=arena, checkpoints=self._checkpoints,
                            device=self.device, divides=self._divides)
        self._executor = self._executing()
        self.optimizer = self._state.optimizer
        if session is not None and isinstance(arena, Ordinary):
            session.adopt()
        self.scheduler = given.scheduler_of(self._make_scheduler(self.optimizer)) if self._make_scheduler is not None else None
        self._state.begin()
        if self._state.before is not None:
            if sums.is_exact():
                sums.check(self.plan, self._state.before.get("sums"))
            self._state.go_on(self.scheduler, told=self._told(), global_batch=self.global_batch, seed=self.seed, mtp_heads=self._mtp_heads)
            self.steps, self._data = int(self._state.before["steps"]), self._state.before.get("data")
            self._draw_as_before(self._state.before)
        self._log = _log(self._log_path if self.rank == 0 else None, self._peak_flops, self)
        self._whole: memory.WholeActivations | None = None      # being counted
        self._is_observed = session is None     # whether this worker's role and memory are known
        self.observed_role: dict[str, float | None] = {}        # what of them the profiler was told

    def _draw_as_before(self, before: Mapping[str, Any]) -> None:
        """Random numbers go on as this rank's worker of the generation before had them; as another one's where it is new: all work on the same global batches."""
        if isinstance(self._arena, live.NativeArena) and "handed" in before:        # not of a checkpoint
            if (mine := self._arena.generators()) is not None:
                restore_generators(mine)
            else:
                print(f"swell: rank {self.rank}: no worker's random numbers have come whole; this one's begin anew", file=sys.stderr, flush=True)
                seed_generators(self.seed, self.steps, 0)       # alike on all new ones
        elif each := before.get("generators"):      # checkpoints of older versions have none
            restore_generators(of_rank(each, self.rank) or each[0])

    def _fits(self, *shape: int) -> bool:
        """Whether the schedule is for so many stages, chunks and micro-batches."""
        return (self._schedule != "1f1b" or shape[1] == 1) if isinstance(self._schedule, str) else self._schedule_shape == shape

    def _order_of(self, plan: Plan) -> schedules.Schedule:
        """The schedule that a plan says, else the program's. Raises ValueError where that is of another plan."""
        if plan.schedule and plan.schedule not in named_schedules.NAMES:
            orders = schedules.parse(plan.schedule)
            schedules.check(orders, plan.pp, plan.micro_batches, plan.chunks)
            return orders
        if plan.schedule:
            return named_schedules.named(plan.schedule, plan.pp, plan.micro_batches, plan.chunks)
        if isinstance(self._schedule, str):
            return named_schedules.named(self._schedule, plan.pp, plan.micro_batches, plan.chunks)
        schedules.check(self._schedule, plan.pp, plan.micro_batches, plan.chunks)
        return self._schedule

    def _executing(self) -> Executor:
        self._sums = self._summing()
        return Executor(self._share, self.plan, self.place, self._links, self._order_of(self.plan), width=self.config.hidden_size, wire=self.dtype,
                        device=self.device, regions=self._regions, around=self._around, recompute=self._recompute, mtp_weight=self._mtp_weight / max(self._mtp_heads, 1))

    def _summing(self) -> SumsBeside | None:
        """Returns the sums over replicas that begin beside the passes; None where there are no replicas. REQUIRES: gradients have their memory."""
        group = self._links.dp
        if group is None:
            return None

        def meet(size: int) -> None:
            self._regions.meet(group)
            self._regions.beside(size)
        return SumsBeside(self._share, self._order_of(self.plan)[self.place.stage], group, self.device, self._summed_over_shards(), meet)

    def _summed_over_shards(self) -> dict[str, torch.Tensor]:
        """Gradients of which each shard has made a part, by the parameter's use."""
        if self._links.tp is None:
            return {}
        return {self._share.trained_as(name): parameter.grad for name, parameter in self._state.trained.items()
                if self._share.skeleton.summed_over_shards(name) and parameter.grad is not None}

    def reschedule(self, schedule: schedules.Schedule | str | None) -> None:
        """Train on under another schedule of this plan, from the next step on. Every worker calls it, between the same two steps.

        Losses and weights stay bitwise what they are. Raises ValueError, and keeps the schedule, where it is invalid or of another plan.
        """
        before = self._schedule, self.plan
        self._schedule, self.plan = read_schedule(schedule), replace(self.plan, schedule="")
        try:
            self._order_of(self.plan)
        except ValueError:
            self._schedule, self.plan = before
            raise
        self._schedule_shape = None if isinstance(self._schedule, str) else schedules.shape_of(self._schedule)
        self._executor.end()        # first: both put the gradients of the same layers off
        self._executor = self._executing()

    def _timed(self) -> Regions:
        """Returns the recorder that takes, or states, the times of a step's parts."""
        regions = live.NativeRegions(self._session, self.device, [part.layers for part in self.plan.contents.parts[self.place.stage]]) if self._session is not None else Regions()
        if not os.environ.get("SWELL_PACED"):
            return regions
        if self.device.type != "cpu":
            raise ValueError(f"SWELL_PACED is for host devices, the engine is on {self.device}; unset it")
        device = paced.device_of(paced.parse(os.environ["SWELL_PACED"]), self.plan, self.place)
        if self.rank == 0:
            print(f"swell: paced host devices ({os.environ['SWELL_PACED']}): times are those of stated accelerators, not of this machine",
                  file=sys.stderr, flush=True)
        return paced.Paced(regions, device, self.plan, self.place, self._work)

    def _work(self) -> paced.Work:
        layers_flops, head_flops = logs.forward_flops_of_a_token(self._share.skeleton, self._length)
        parts, layers = self.plan.contents.parts[self.place.stage], self.plan.stages[self.place.stage].layers
        return paced.Work(layers_flops * self._length * layers / self._share.skeleton.layers, head_flops * self._length / self._share.vocabulary_parts if self._share.last else 0.0,
                          self._state.bytes, self._recompute, tuple(len(part.layers) / max(layers, 1) for part in parts),
                          next((number for number, part in enumerate(parts) if part.head), 0))

    # ---- training

    def batches(self, dataset: Any, *, epochs: int | None = None, shuffle: bool = True) -> Iterator[batches.Batch]:
        """Global batches from where training stands, each for one step() or skip(): the same samples in the same order under every plan.

        dataset: its samples are mappings with "input_ids", all of one length, and with "labels" if these differ from them. It has a length, or is a
        stream that every worker reads from the beginning to the end, in the stream's own order (see swell.torch.Elastic.batches()). epochs: None: no limit.
        """
        if is_stream(dataset):
            yield from self._streamed(dataset, epochs)
            self._finish()
            return
        if has_length(dataset) and len(dataset) < self.global_batch:
            raise ValueError(f"the dataset has {counted(len(dataset), 'sample')}, a step takes global_batch={self.global_batch} of them; give more samples, or a smaller "
                             "global_batch")
        share = None
        while share is not self._share:     # in another plan this worker has other samples
            share = self._share
            sampler = ElasticSampler(dataset, self.global_batch, shuffle=shuffle, seed=self.seed, drop_last=True, rank=0, world=1)
            if self.steps:      # checkpoints that name no order are of the first one
                sampler.load_state_dict({**(self._data or {"order": 1}), "samples": self.steps * self.global_batch})
            self._data = {name: value for name, value in sampler.state_dict().items() if name != "samples"}
            self._total = None if epochs is None else epochs * sampler.steps_per_epoch
            for batch in self._given_out(batches.batches(dataset, self.plan, self.place, self.device, sampler=sampler, epochs=epochs)):
                yield batch
                if share is not self._share:
                    break
        self._finish()

    def _streamed(self, dataset: Any, epochs: int | None) -> Iterator[Any]:
        stream = Stream(dataset, self.global_batch, micro_batch=self.global_batch, rank=self.rank, world=1)
        if self.steps and self._data is None:
            raise ValueError(f"the {counted(self.steps, 'step')} so far were not over a stream: where {type(dataset).__name__} goes on is not known; give the dataset that "
                             "they were over, or another directory")
        if self._data is not None:
            stream.load_state_dict(self._data)
        else:
            stream.check()
        self._stream, self._data, share = stream, stream.state_dict(), None
        while share is not self._share:     # in another plan this worker has other samples
            share = self._share
            for batch in self._given_out(batches.streamed(stream, self.plan, self.place, self.device, group=self._links.host, epochs=epochs)):
                yield batch
                if share is not self._share:
                    break
        self._stream = None

    def _given_out(self, made: Iterator[Any]) -> Iterator[Any]:
        """These batches; a checkpoint that comes before the step of one has the random numbers from before it was read, since the next start gives it again."""
        if self._goes_on_from is not None:
            restore_generators(self._goes_on_from)
            self._goes_on_from = None
        self._loop = loop = object()
        self._awaited = None
        try:
            while True:
                self._drawn = generators() if self._checkpoints is not None else None
                if (batch := next(made, None)) is None:
                    return
                self._awaited = batch
                yield batch
                if self._loop is not loop:
                    raise RuntimeError("another loop over engine.batches() has begun within this one, and a start could go on in one alone: give one dataset that has both, "
                                       "and evaluate() batches of the script's own")
                if self._awaited is not None:
                    self._awaited = None
                    raise RuntimeError("engine.step(batch) was not called for the last batch; call it once for each batch, before the next one is taken, or "
                                       "`if engine.skip(...): continue` on every worker, which leaves a batch out; evaluate() takes batches of the script's own")
        finally:
            if self._loop is loop:
                self._loop = None

    def _check_given(self, batch: GlobalBatch) -> None:
        """Raises where a step over this batch would move the position of batches() to another place than a start would find."""
        if batch is self._awaited:
            return
        if not isinstance(batch, batches.Batch):
            if self._loop is None:
                return
            raise RuntimeError("engine.step() was given a batch of the script's own within a loop over engine.batches(), whose position it would move: give it the loop's batches "
                               "alone, or train on the others before or after the loop")
        raise RuntimeError("engine.step() was called for a batch that has had its step, was left out by engine.skip(), or is of another loop over engine.batches(): call it once, "
                           "for the last batch that the loop gave")

    def step(self, batch: GlobalBatch) -> float | LateLoss:
        """One optimizer step over the global batch. Returns its loss, the same on every worker.

        batch: of batches(); or "input_ids" and "labels" of all samples, the same on every worker, and "attention_mask" and
        "position_ids" if there are. Ends this process with exit code 0 where it is to leave.
        """
        self._check_given(batch)
        self._poll()
        self._votes.steps()
        self._drawn = self._goes_on_from = self._awaited = None
        self._log.begin()
        if self._is_observed:
            losses = self.backward(batch)
        else:
            losses = self._observed(batch)
        gradients = self.gradients()
        loss, norm = self._totals.over(losses, gradients if self.max_grad_norm is not None else None)
        with self._regions.region("optimizer"):
            if norm is not None and self.max_grad_norm is not None:
                self._clip(list(gradients.values()), norm, self.max_grad_norm)
            self.optimizer.step()
            torch._foreach_zero_(self._state.gradients)
        if self._divides and self._links.dp is not None:
            self._regions.meet(self._links.dp)
            with self._regions.region("dp", None, self._state.parts.bytes // 2):       # half of what a sum of as many takes
                self._state.parts.gather(self._links.dp)
        if self.scheduler is not None:
            self.scheduler.step()
        self._advance(batch)
        if self._log.writes:
            self._log.step(self.steps, float(loss), self.global_batch * self._length, logs.flops_of_a_token(self._share.skeleton, self._length),
                           lr=self.optimizer.param_groups[0].get("lr"), norm=None if norm is None else float(norm),
                           **({"paced_late_s": round(self._regions.late_s, 6)} if isinstance(self._regions, paced.Paced) else {}))
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
        if self._awaited is None:
            raise RuntimeError("engine.skip() belongs into `for batch in engine.batches(dataset, ...)`, before engine.step(batch)")
        self._poll()
        if not self._votes.skips(bool(when)):
            return False
        batch, self._drawn, self._goes_on_from, self._awaited = self._awaited, None, None, None
        torch._foreach_zero_(self._state.gradients)     # of a backward() of the script's
        self._advance(batch)
        self._boundary()
        return True

    def _advance(self, batch: GlobalBatch) -> None:
        """The present batch is behind us."""
        self.steps += 1
        _request.made_step(self.steps, self._total)
        if self._stream is not None and isinstance(batch, batches.Batch):
            self._stream.advance()
            self._data = self._stream.state_dict()

    def _clip(self, gradients: list[torch.Tensor], norm: torch.Tensor, most: float) -> None:
        if self._reads_late:        # by 1 where the norm is not too large: nobody waits to see
            torch._foreach_mul_(gradients, torch.where(norm > most, most / (norm + 1e-6), torch.ones_like(norm)))
        elif float(norm) > most:
            torch._foreach_mul_(gradients, most / (float(norm) + 1e-6))

    def backward(self, batch: GlobalBatch) -> list[torch.Tensor]:
        """The passes of a step and the sums of its gradients, without the optimizer; step() calls it.

        Returns losses of this worker's samples, by micro-batch, where the head is.
        """
        return self._backward(batch, self._sums)

    def _backward(self, batch: GlobalBatch, sums: SumsBeside | None) -> list[torch.Tensor]:
        """backward(). sums: that begin beside the passes; None: all come after them."""
        mine = self._mine(batch)
        if sums is not None:
            sums.begin()
        losses = self._executor.train(mine, self._tokens(batch, mine), sums)
        self._sum_gradients(sums)
        return losses

    def _observed(self, batch: GlobalBatch) -> list[torch.Tensor]:
        """backward(), and what it takes of memory, with the sums over replicas after the passes, where they are counted; then this worker's role is known, so that its profile is reported."""
        self._is_observed = True
        assert self._session is not None
        for number, stage in enumerate(self.plan.stages):
            if stage.layers == 0:       # the runtime knows no such stage
                if self.rank == 0:
                    print(f"swell: no profile is reported: stage {number} of the plan has no layer", file=sys.stderr, flush=True)
                return self.backward(batch)
        mine = self._mine(batch)
        watched = next((memory.WholeActivations(chunk, self._recompute) for chunk in self._share.models() if chunk.layers), None)
        if self.device.type == "cpu":
            with memory.Peak(self._state.all()) as peak:
                self._whole = watched
                losses = self._backward(batch, None)
            peak_bytes = self._state.bytes + peak.most
        else:
            with memory.DevicePeak(self.device) as device_peak:
                self._whole = watched
                losses = self._backward(batch, None)
            peak_bytes = device_peak.most + self._session.gpu_bytes
        samples, length = mine[0].shape
        activation = length * self.config.hidden_size * torch.empty(0, dtype=self.dtype).element_size()
        whole = watched.kept_bytes / (samples * len(watched.stage.layers) * activation) if watched is not None else 0.0
        self._whole = None
        self._session.profiler.memory(peak_bytes)
        last = 12.0 * length * self.config.vocab_size if self._share.last else None     # probabilities, their gradient, the logits'
        self.observed_role = {"peak_bytes": peak_bytes, "whole": whole, "last_activation_bytes": last}
        units = [part.units for part in self.plan.contents.parts[self.place.stage]]
        if len(units) == 1 and not self._mtp_heads and not self.plan.schedule and self._schedule not in ("1f1b", "interleaved"):
            units = []      # the planner would take its memory for that of 1F1B, and replace its schedule by interleaved
        self._session.profiler.set_role(stage=self.place.stage, group=self.place.group, layers=self.plan.stages[self.place.stage].layers,
                                        local_batch=len(self.plan.stages[self.place.stage].samples(self.place.group)), activation=self.dtype,
                                        activation_shape=(length, self.config.hidden_size), whole_activations=whole, last_activation_bytes=last,
                                        tied_embedding=bool(self._share.skeleton.tied), chunks=units)
        return losses

    def profile(self) -> _native.Times | None:
        """Returns the times of the parts of a step on this worker; None before the times of five steps are known, or where none are taken."""
        return self._session.profiler.profile() if self._session is not None else None

    def evaluate(self, batch: GlobalBatch) -> float:
        """The loss of a global batch, without dropout and gradients; the same on every worker."""
        mine = self._mine(batch)
        tokens = self._tokens(batch, mine)
        self._share.train(False)
        if self._dropout is not None:
            self._dropout.training = False
        try:
            losses = [loss / tokens for loss in self._executor.evaluate(mine)]
        finally:
            self._share.train(True)
            if self._dropout is not None:
                self._dropout.training = True
        return float(self._totals.over(losses, None, mtp=False)[0])

    def gradients(self) -> dict[str, torch.Tensor]:
        """Returns this worker's gradients, by the parameter's name in the whole model."""
        return {name: parameter.grad for name, parameter in self._state.trained.items() if parameter.grad is not None}

    def _sum_gradients(self, sums: SumsBeside | None) -> None:
        """The sums over shards and replicas, and over the ends of a tied matrix. sums: those that are under way."""
        share, group, partial = self._share, self._links.dp, list(self._summed_over_shards().values())
        if self._links.tp is not None and partial:
            reduce.add_gradients(partial, self._links.tp)
        if sums is not None and group is not None:
            with self._regions.region("dp"):
                sums.wait()
                self._add_over_replicas(partial, group)
        elif group is not None:
            self._regions.meet(group)
            with self._regions.region("dp", None, _bytes(self._state.gradients)):
                reduce.add_gradients(self._state.gradients, group)
        (reduce.add_shared if share.skeleton.shared else reduce.add_tied)(share, self.plan, self.place, self._links)

    def _add_over_replicas(self, gradients: list[torch.Tensor], group: dist.ProcessGroup) -> None:
        if gradients:
            self._regions.meet(group)
            self._regions.beside(_bytes(gradients))
            reduce.add_gradients(gradients, group)

    def _mine(self, batch: GlobalBatch) -> list[MicroBatch]:
        if isinstance(batch, batches.Batch):
            found = batch.micro_batches
        else:
            batches.check(batch, "the batch of the script's own", ("input_ids", "labels"))
            for name, tensor in batch.items():
                if tensor.shape[0] != self.global_batch:
                    raise ValueError(f"{name} has {counted(tensor.shape[0], 'sample')}; a global batch has {self.global_batch}")
            size, mine, found = self.plan.micro_batch_samples, self.plan.stages[self.place.stage].samples(self.place.group), []
            for number in range(self.plan.micro_batches):
                part = {name: tensor[number * size + mine.start:number * size + mine.stop].to(self.device) for name, tensor in batch.items()}
                labels = part.pop("labels")
                found.append(MicroBatch(part, labels if self._share.predicts else None))
        self._length = found[0].shape[1]
        return found

    def _tokens(self, batch: GlobalBatch, mine: list[MicroBatch]) -> int | torch.Tensor:
        """Tokens that the whole global batch predicts; those with the head ask each other where they do not see all."""
        if not isinstance(batch, batches.Batch):
            return int((batch["labels"][:, 1:] != -100).sum())
        if not self._share.predicts:
            return 0
        count = sum((one.labels[:, 1:] != -100).sum() for one in mine if one.labels is not None)
        assert isinstance(count, torch.Tensor)
        if self._links.dp is not None:
            dist.all_reduce(count, group=self._links.dp)
        return count if self._reads_late else int(count)

    def _around(self, micro_batch: int, chunk: int) -> AbstractContextManager[Any]:
        stack = ExitStack()
        its = self._share.chunks[chunk]
        if self._whole is not None and its is not None and self._whole.stage in its.models and not self._whole.is_done:
            stack.enter_context(self._whole.watched())
        if self.autocast is not None:
            stack.enter_context(torch.autocast(self.device.type, self.autocast))
        if self._dropout is not None and self._dropout.training:
            mine = self.plan.stages[self.place.stage].samples(self.place.group)
            first = micro_batch * self.plan.micro_batch_samples
            stack.enter_context(self._dropout.at(self.steps, range(first + mine.start, first + mine.stop)))
        return stack

    # ---- leaving and saving

    def _boundary(self) -> None:
        if self.checkpoint_every and self.steps % self.checkpoint_every == 0:
            self._try_to_save()
        if not isinstance(self._arena, live.NativeArena):
            if self._session is not None and not _native.is_live():
                self._session.step(self.steps)
            return
        try:
            action = self._arena.boundary(self.steps, self._rest())
        except _native.NativeError as error:
            _request.not_live(error)
            self._arena = Ordinary()
            return
        if action is _native.Action.PREPARE:
            self._next = self._prepare()
        if action in (_native.Action.STOP, _native.Action.CHECKPOINT):
            self._try_to_save()
        if action in (_native.Action.STOP, _native.Action.SWITCH):
            self._end_agreement()
        if action is _native.Action.SWITCH and self._next is not None:
            self._stay(*self._next)
        elif action in (_native.Action.STOP, _native.Action.SWITCH):
            leave()

    # ---- staying

    def _prepare(self) -> tuple[Standing, _native.Session, live.NativeArena] | None:
        """Builds this worker's standing in the prepared generation, and offers it there, beside the training; None: it does not stay."""
        assert self._session is not None
        if others := _staying.other_groups(self._links.count()):
            _staying.decline(self._session, self.rank, f"process groups beside the engine's ({others})")
            return None
        try:
            session = self._session.next()
            world, decided = int(session.variable("WORLD_SIZE") or 1), session.variable("SWELL_PLAN") or ""
            if decided and Plan.parse(decided).world != world:
                decided = ""        # this generation's: the next one has none
            standing = self._stand(int(session.variable("RANK") or 0), world, decided, sums.of(self.plan))
            arena = live.NativeArena(session, standing.place.rank)
            arena.register(list(wanted(standing.share, standing.place, self._factory, replicas(standing.plan, standing.place, self._divides))), self.device)
            session.offer()
            return standing, session, arena
        except (ValueError, LookupError, OSError, NoRoom) as error:
            if getattr(error, "errno", None) != errno.ECANCELED:
                _staying.decline(self._session, self.rank, error)
            return None

    def _stay(self, standing: Standing, session: _native.Session, arena: live.NativeArena) -> None:
        """Train on under the next generation's plan, in this process."""
        self._next = None
        self._free_gradients()
        _staying.regroup(session, self.device)
        before = self._session
        self._begin(standing, session, arena, sources.read(self.config))
        gc.collect()        # modules of the share before refer to themselves
        if before is not None:
            _staying.let_go(before, self.rank, self.device)
        if self._agreement is not None:
            self._agreement = Agreement(self._links.host)

    def _free_gradients(self) -> None:
        self._sums = None
        self._state.gradients.clear()       # modules with hooks refer to themselves: what they hold is freed late
        for parameter in (*self._share.parameters.values(), *self._state.parts.stepped.values()):
            parameter.grad = None

    def save(self) -> None:
        """Write a checkpoint of this step; nothing where no directory was given. Every worker calls it.

        Raises OSError where it cannot be written, or read back. Those of checkpoint_every= are said to have failed, and training goes on.
        """
        if self._checkpoints is None:
            return
        drawn = gather(self._drawn or generators(), self._links.host)
        self._checkpoints.save(self.steps, self._state.saved_here(), self._state.tensors, {**self._rest(), "generators": drawn})
        if self._sizes_once_saved is not None:
            self._sizes, self._sizes_once_saved = self._sizes_once_saved(), None
            self._offer_sizes()

    def _try_to_save(self, says: bool = True) -> str:
        """save(); returns why it failed, the same on all workers. says: once, until one succeeds."""
        try:
            self.save()
        except (OSError, Unreadable) as error:
            why = str(error)
            if says and not self._save_fails and self.rank == 0:
                print(f"swell: {why}; training goes on", file=sys.stderr, flush=True)
            self._save_fails = why
            return why
        if self._save_fails:
            self._save_fails = ""
            self._offer_sizes()
        return ""

    def _told(self) -> dict[str, Any]:
        return {"max_grad_norm": plain(self.max_grad_norm), "autocast": str(self.autocast)}

    def _rest(self) -> dict[str, Any]:
        return {**self._state.rest(self.scheduler, self._told(), steps=self.steps, global_batch=self.global_batch, seed=self.seed, mtp_heads=self._mtp_heads), "data": self._data,
                "sums": sums.of(self.plan)}

    # ---- leaving by a checkpoint

    def _offer_sizes(self) -> None:
        """Tell swellrun the numbers of workers that there are plans for; none but the present one where something speaks against more."""
        if not _request.is_heard():
            return
        if not self._bar:
            _request.can_run_with(self._sizes)
            return
        print(f"swell: the job is lent nothing: {self._bar}", file=sys.stderr, flush=True)
        _request.can_run_with([_request.place().world], self._bar)

    def _poll(self) -> None:
        """Before a step: leaves with a checkpoint if swellrun has asked. Where it cannot be saved training goes on."""
        if self._agreement is None or not self._agreement.poll():
            return
        self._votes.check()
        if self.steps and (why := self._try_to_save(says=False)):
            _request.decline(why, self.world)
            return
        leave_with_checkpoint(self.steps, self._lock)

    def _end_agreement(self) -> None:
        """Ends the communication under way between the workers of this generation."""
        try:
            self._votes.end()
            if self._agreement is not None:
                self._agreement.end()
        except RuntimeError as error:       # a worker was killed at the boundary
            print(f"swell: rank {self.rank}: {error}", file=sys.stderr, flush=True)

    def _finish(self) -> None:
        """Training by batches() is over: whoever is asked to leave after it finds its end in a checkpoint."""
        self._votes.check()
        if self._agreement is not None:
            self._agreement.end()
            if self.steps:
                self._try_to_save()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as a plain transformers folder, for from_pretrained(). Every worker calls it; rank 0 takes the
        host's memory of the whole model."""
        skeleton = self._share.skeleton
        whole = export.gathered(skeleton, self.plan, self.place, {name: self._state.tensors[name] for name in self._share.own})
        if whole is not None:
            export.save_pretrained(folder, self.config, self.dtype, skeleton, whole)


def read_schedule(schedule: schedules.Schedule | str | None) -> schedules.Schedule | str:
    """A name stays what it is, since it fits every plan. "search": interleaved until a plan says the schedule that the planner found."""
    if schedule is None:
        return "interleaved"
    if schedule == "search":
        if not (sums.is_exact() and _native.is_live()):
            raise ValueError("schedule=\"search\" needs Swell's planner, which searches for jobs of swellrun with --elastic=mode=live,consistency=exact: submit so, or give "
                             "the text that swell plan --schedule search --json prints")
        return "interleaved"
    if not isinstance(schedule, str):
        return schedule
    if schedule in named_schedules.NAMES:
        return schedule
    return schedules.read(schedule)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _start(world: int) -> torch.device:
    """This worker's device, and the process group over all."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def _log(path: str | os.PathLike[str] | None, peak_flops: float | None, engine: Engine) -> logs.Log:
    constant: dict[str, Any] = {"generation": _request.place().generation, "world": engine.world, "plan": engine.plan.summary()}
    if os.environ.get("SWELL_PACED"):
        constant["paced"] = os.environ["SWELL_PACED"]
    return logs.Log(path, peak_flops, engine.world, constant)
