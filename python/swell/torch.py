# SPDX-License-Identifier: BSD-3-Clause
"""An elastic loop around a model that is trained with DistributedDataParallel or fully_shard."""

from __future__ import annotations

import copy
import gc
import inspect
import numbers
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from swell import _identity, _native, _request, _staying, data
from swell._across import say_what_is_across, say_what_is_across_in
from swell._agreement import Agreement, cpu_group, leave, leave_with_checkpoint
from swell._apart import Outputs
from swell._averaged import average_what_is_trained
from swell._beside import Beside
from swell._carried import carried_names, say_what_counts, say_what_sets_data, used_in_losses
from swell._changing import Changing
from swell._counted import counted
from swell._deepspeed import refuse_deepspeed
from swell._dropout import Draws, is_compiled
from swell._divided import Divided
from swell._drawn import DrawnLoader
from swell._generators import generators, is_same, of_rank, restore_generators, seed_generators
from swell._loaded import Loaded
from swell._meshes import Place, by_mesh, place_of
from swell._noise import Noise
from swell._plain import plain
from swell._profile import Profile
from swell._rates import say_rates_by_workers, say_scaled_rates
from swell._replayed import Replayed
from swell._rounded import multiply_gradients, powers_of_two, say_what_is_rounded
from swell._share import fails_on_one_sample, kept_buffers, say_what_changes, say_what_depends, says_what_depends, why_no_mean
from swell._stream import Stream, compare, is_stream
from swell.checkpoint import Checkpoints, Unreadable, readable, why_not_kept
from swell.engine import Engine
from swell.live import LiveState, fsdp_parameters, join

__all__ = ["Agreement", "Elastic", "Engine", "Schedule", "Stateful", "cpu_group"]


class Stateful(Protocol):
    """Whatever has a state to save, the same on all workers: a schedule, an average of weights."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Schedule(Stateful, Protocol):
    """A learning rate's schedule, such as torch.optim.lr_scheduler has."""

    def step(self) -> None: ...


def _check_given(model: Any, scaler: Any, **counts: Any) -> None:
    """Raises TypeError or ValueError where an argument cannot be what it is for."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model= is of type {type(model).__name__}; give one torch.nn.Module, which may have several models as its parts")
    if scaler is not None and not callable(getattr(scaler, "unscale_", None)):
        raise TypeError(f"scaler= is of type {type(scaler).__name__}; give a torch.amp.GradScaler, or leave it out")
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{name}={value!r}; give a whole number of at least 1")


def _check_optimizer(given: Any) -> None:
    """Raises TypeError where this is not one optimizer."""
    if isinstance(given, (list, tuple, dict)):
        each = list(given.values()) if isinstance(given, dict) else list(given)
        raise TypeError(f"optimizer= has {counted(len(each), 'optimizer')} ({', '.join(type(one).__name__ for one in each)}), and Elastic steps one: give one with their "
                        "parameters as groups, or those that the script steps itself as state={\"name\": optimizer}")
    if not (hasattr(given, "param_groups") and callable(getattr(given, "step", None))):
        raise TypeError(f"optimizer= is of type {type(given).__name__}; give an optimizer over the model's parameters, such as torch.optim.AdamW(model.parameters())")


def _check_kind(given: Any, model: torch.nn.Module) -> None:
    """Raises TypeError where torch cannot load the optimizer's state, or make its step over shards: a start would fail that comes after the first."""
    kinds = type(getattr(given, "optimizer", given)).__mro__        # within Accelerate's
    if torch.optim.SparseAdam in kinds:
        raise TypeError("optimizer= is a SparseAdam, whose state torch.distributed.checkpoint cannot load: no start could go on; give torch.nn.Embedding sparse=False, and "
                        "another optimizer, such as AdamW")
    if torch.optim.Adafactor in kinds and any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise TypeError("optimizer= is an Adafactor, which cannot step over parameters that fully_shard has sharded; use DistributedDataParallel, or another optimizer, such as AdamW")


def _check_steps(optimizer: Any, scheduler: Any) -> None:
    """Raises TypeError where the first step would fail, as one of them wants an argument that Elastic has not."""
    for name, thing, remedy in (("optimizer", optimizer, "give another one, such as AdamW"),
                                ("scheduler", scheduler, "leave it out, give it as state={\"plateau\": scheduler}, and step it in the loop")):
        step = getattr(type(thing), "step", None)       # a schedule wraps that of its optimizer's object
        if not inspect.isfunction(step):
            continue
        wants = [each for each, is_of in list(inspect.signature(step).parameters.items())[1:]
                 if is_of.default is is_of.empty and is_of.kind in (is_of.POSITIONAL_ONLY, is_of.POSITIONAL_OR_KEYWORD)]
        if wants:
            raise TypeError(f"{name}= is a {type(thing).__name__}, whose step() wants {' and '.join(wants)}, and Elastic calls it without: {remedy}")


_OF_OPTIMIZER = -1      # in the place of a worker's number
_loops: list[weakref.ref[Elastic]] = []     # the one whose batches() have begun last


class Elastic:
    """Makes a loop elastic: it leaves with a checkpoint when asked, and goes on over other workers.

    ::

        elastic = Elastic(model, optimizer, directory="checkpoints", global_batch=512)
        for batch in elastic.batches(dataset, epochs=3):
            elastic.step(loss_of(model, batch))

    The constructor comes after init_process_group(), DistributedDataParallel or fully_shard, and loads the
    newest complete checkpoint. The global batch stays what it is at any number of workers, as do the
    order of the samples and thereby the loss.

    model: trained by all workers alike. Its loss is a mean over the samples of its input.
    optimizer: over the model's parameters.
    directory: for checkpoints; one that all workers see, and no other run uses.
    global_batch: samples of one optimizer step, over all workers.
    micro_batch: samples of one forward pass at most; more are accumulated. By default what a worker
        has of the global batch on the GPUs that the job asked for.
    scheduler: of the learning rate; stepped once an optimizer step.
    max_grad_norm: to clip gradients to; None: not at all.
    checkpoint_every: optimizer steps between checkpoints while training goes on; 0: none.
    state: other things to save and load, by name.
    scaler: of a loss in float16; scales it, unscales gradients before they are clipped, and is saved. Give step() the loss itself.
    seed: of the order of the samples.
    dropout_by_sample: whether nn.Dropout, and 1d to 3d, draw masks by seed, step, sample (dimension 0 of their inputs) and module, which no number of
        workers changes; not within torch.compile(). Dropout within other functions, such as attention's, is drawn by each worker. True: a mask
        that is recomputed, and not known, raises.
    warm_up: runs a forward and a backward pass of something; where the next workers start beside the training, they do
        this before they take it over, so that what is compiled and allocated is there.

    Under `swellrun --elastic=mode=live` the state stands in libswell's memory, and the constructor waits until the
    workers before it have handed it over: what takes long, such as making the dataset, comes before it. Where GPUs go back,
    the workers that are left train on in their processes, within the same loop: rank, world and the default process
    group are others then.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, directory: str | os.PathLike[str],
                 global_batch: int, micro_batch: int | None = None, scheduler: Schedule | None = None,
                 max_grad_norm: float | None = None, checkpoint_every: int = 1000, keep: int = 2,
                 state: Mapping[str, Stateful] | None = None, seed: int = 0, warm_up: Callable[[], Any] | None = None,
                 scaler: torch.amp.GradScaler | None = None, dropout_by_sample: bool | None = None) -> None:
        refuse_deepspeed(type(self).__name__, model, optimizer)
        _check_given(model, scaler, global_batch=global_batch, micro_batch=1 if micro_batch is None else micro_batch)
        _check_optimizer(optimizer)
        _check_steps(optimizer, scheduler)
        _check_kind(optimizer, model)
        here = _request.place()
        if here.world > 1 and not dist.is_initialized():
            raise RuntimeError(f"there are {here.world} workers; call torch.distributed.init_process_group() before Elastic()")
        self.model, self.optimizer, self.scheduler, self.scaler = model, optimizer, scheduler, scaler
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self._wrapped: torch.nn.Module = getattr(model, "_orig_mod", model)     # what shares gradients, within torch.compile()
        self.global_batch, self.seed = global_batch, seed
        self._check_made()
        self._place = place_of(model, self.rank, self.world)
        self.micro_batch = micro_batch or -(-global_batch // min(self._basic_shares(), global_batch))
        self.max_grad_norm, self.checkpoint_every = max_grad_norm, checkpoint_every
        self.steps = 0      # done since training began
        self._total: int | None = None      # those at its end, where batches() knows them
        self.samples = 0    # trained on since training began
        self._state = dict(state or {})
        self._state.update({name: thing for name, thing in (("scheduler", scheduler), ("scaler", scaler)) if thing is not None})
        self._replayed = Replayed(self._state, optimizer)
        self._most_workers = global_batch       # with more of them some would never have a sample
        self._needs_one_pass = False    # each worker may make one pass only, since the script steps another optimizer in each pass
        self._sampler: data.ElasticSampler | Stream | None = None
        self._needs_two = fails_on_one_sample(model)
        self._batches = {global_batch}      # sizes of global batches, in samples
        self._is_save_due = False       # of a checkpoint between others, at the next boundary
        self._has_looked = False        # at the first loss
        self._save_fails = ""       # why the newest save failed
        self._looked_beside = 0     # after so many steps
        self._looked_at_loss = 0    # of the step that this start begins with
        self._puts = False      # whether the script puts other values in the place of loaded ones before its loop
        self._lost = ""     # what each start would make anew, as the first worker sees it
        self._alike: dict[str, Any] = {"global_batch": global_batch, "kinds": _identity.kinds({"optimizer": self._saved_optimizer(), **self._given()}), "told": self._told()}
        self._averaged = average_what_is_trained(model)
        self._unkept = why_not_kept(self._wrapped, self._saved_optimizer())     # so that no save succeeds
        self._bar = self._unkept or self._why_no_growth()
        self._check_model()
        self._offer_sizes()
        self._draws = Draws(model, seed, must=bool(dropout_by_sample)) if dropout_by_sample is not False and not is_compiled(model) else None
        say_what_depends(model)
        self._buffers = kept_buffers(model) if says_what_depends() else None        # until the first pass is over
        self._noise, self._says_carried = Noise("the training step"), says_what_depends()
        _request.listen(leaves_at_once=True)
        self._agreement = Agreement(cpu_group())
        self._checkpoints = Checkpoints(directory, self._wrapped, self._saved_optimizer(), keep=keep, group=cpu_group())
        self._drawn: dict[str, Any] | None = None       # random numbers to go on with
        self._data: dict[str, Any] | None = None        # what the samples' order depends on
        self._passes: list[data.Piece] = []     # of the present global batch
        self._pass = 0
        self._is_given = False      # the batch of that pass, which awaits its step
        self._is_skipped = False    # the present global batch
        self._partial: tuple[torch.Tensor, torch.Tensor, torch.Tensor, int] | None = None       # a parameter, its gradient of the passes so far where others follow, and a copy of that
        self._may_draw = True       # the optimizer
        self._came_from: tuple[int, list[Any]] | None = None        # workers and rates with which the run came here, until the first step
        self._scheduled: Any = None     # of the schedule, where it was stepped last
        self._loss: torch.Tensor | None = None
        self._part = torch.zeros(())    # of the present global batch's loss
        self._next: LiveState | None = None     # of the generation that is being prepared, where this process stays
        self._has_moved = False     # to another world, within batches()
        if hasattr(self._saved_optimizer(), "register_step_pre_hook"):
            me = weakref.ref(self)
            self._saved_optimizer().register_step_pre_hook(lambda *_: one._optimizer_steps() if (one := me()) is not None else None)
        for each in (getattr(each, "optimizer", each) for each in self._state.values() if isinstance(each, torch.optim.Optimizer)):      # within Accelerate's
            each.register_step_post_hook(lambda other, *_, me=weakref.ref(self): one._other_steps(other) if (one := me()) is not None else None)
        self._beside = Beside([model, optimizer, *self._state.values()], optimizer) if _request.under_swellrun() and self.rank == 0 else None
        self._outputs = Outputs(model) if self._beside is not None else None       # until the first loss is looked at
        self._divided, self._changing = Divided(), Changing({"the model": model, "the optimizer": self._saved_optimizer(), "the schedule": scheduler})
        self._live = self._go_live(warm_up)
        self._profile = Profile(self._live.session, model, rank=self.rank) if self._live is not None else None
        if self._live is not None and self._take_over(self._live):
            self._beside = None     # by workers that have looked; it would hold the switch up
            self._forget_outputs()
        else:
            self._load()
            self._looked_at_loss = self.steps
            self._look_at_trained()
            if self._live is not None:
                self._live.follow()
        self._loaded: Loaded | None = Loaded(model, self._saved_optimizer(), is_live=self._live is not None, keeps=self._puts)       # until the loop begins

    # ---- what is looked at before anything is lent

    def _why_no_growth(self) -> str:
        """Why a start over more workers would fail or be another training; empty: nothing speaks against it."""
        if why := readable(self._state):
            return why
        if self.world == 1 and not self._is_shared() and (how := self._how_to_wrap()):
            return f"{type(self.model).__name__} can train on one worker alone, as nothing would average its gradients over more: {how}"
        return ""

    def _check_made(self) -> None:
        """Raises TypeError where a parameter is made by the first pass only: no checkpoint could be loaded before."""
        for name, parameter in self.model.named_parameters():
            if torch.nn.parameter.is_lazy(parameter):
                raise TypeError(f"{name} has no shape yet (a lazy module makes it in its first pass): make a pass on every worker, such as with a batch of zeros, before "
                                "the model is wrapped and given to Elastic")

    def _basic_shares(self) -> int:
        """The number of shares of samples on the GPUs that the job asked for."""
        return max(1, _request.place().basic_workers // self._place.together)

    def _is_shared(self) -> bool:
        return isinstance(self._wrapped, DistributedDataParallel) or hasattr(self._wrapped, "set_requires_gradient_sync")

    def _check_model(self) -> None:
        """Raises where the model cannot be trained here, or, for what more workers would show, cannot be on any number of them."""
        if self.world > 1 and not self._is_shared():
            raise TypeError(f"{type(self.model).__name__} is trained by {self.world} workers, but nothing averages its gradients; wrap it "
                            "in DistributedDataParallel or fully_shard before Elastic()")
        share = -(-self.global_batch // min(self._place.count, self._basic_shares()))
        if self._has_static_graph() and share > self.micro_batch:
            raise ValueError(f"static_graph=True does not go with passes that share no gradients: a worker has {share} samples of the global "
                             f"batch, micro_batch={self.micro_batch}; leave micro_batch out, or static_graph")
        if self.scaler is not None and any(isinstance(parameter, DTensor) for parameter in self.model.parameters()):
            raise TypeError("a GradScaler does not see the overflows of other workers' shards; with fully_shard train in bfloat16, without scaler=")

    def _offer_sizes(self) -> None:
        """Tell swellrun the numbers of workers; none but the present one where something speaks against more."""
        why = self._bar or self._lost
        if not why:
            together, unit = self._place.together, self._place.unit
            _request.can_run_with(world for world in range(unit, self._most_workers * together + 1, unit)
                                  if (not self._needs_two or self._has_two_each(world // together)) and (not self._needs_one_pass or self._has_one_pass(world // together)))
            return
        if self.rank == 0 and _request.under_swellrun():
            print(f"swell: the job is lent nothing: {why}", file=sys.stderr, flush=True)
        _request.can_run_with([self.world], why)

    def _has_two_each(self, world: int) -> bool:
        """Whether each pass of each of so many workers has two samples or more."""
        unit = self._sampler.unit if isinstance(self._sampler, Stream) else 1
        return all(unit * data.smallest_pass(batch // unit, world, self._sampler.micro_batch if self._sampler is not None else self.micro_batch) >= 2
                   for batch in self._batches)

    def _has_one_pass(self, shares: int) -> bool:
        """Whether each of so many shares of a global batch is one pass."""
        return all(-(-batch // shares) <= self.micro_batch for batch in self._batches)

    def _look_at_trained(self) -> None:
        """Be lent nothing from when the script trains what no start could, or, in live mode, what the next workers would not."""
        if self._bar:
            return
        trained = self._checkpoints.trained
        why = trained.why_not_live() if self._live is not None else trained.why_not()
        if why := why or (self._averaged.why_not() if self._averaged is not None else ""):
            self._bar, self._live, self._profile = why, None, None
            self._offer_sizes()

    def _look_beside(self) -> None:
        """Be lent nothing from when the script changes what no checkpoint holds. The first worker's word: it is what a script may change there alone."""
        if self._beside is None or self._lost or self.steps == self._looked_beside:
            return
        self._looked_beside = self.steps
        if why := self._beside.why():
            self._lost = why
            self._offer_sizes()

    def _look_at_loss(self, loss: torch.Tensor) -> None:
        """Be lent nothing where the loss of a pass is not a mean over its samples: another number of workers would divide it into others."""
        piece = self._passes[self._pass]
        unit = self._sampler.unit if isinstance(self._sampler, Stream) else 1
        samples = unit * (piece.end - piece.begin)
        why = self._divided.why(loss, samples) if self.global_batch > 1 else ""
        if self.global_batch > 1 and self.steps == self._looked_at_loss:
            if self._outputs is not None:
                self._outputs.say_what_meets(samples)
            why = why_no_mean(loss, samples) or (self._outputs.why_not_apart(loss, samples) if self._outputs is not None else "") or why
        if why:
            self._lost = why
            self._offer_sizes()

    def _forget_outputs(self) -> None:
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None

    # ---- what a program asks

    @property
    def sizes(self) -> list[int]:
        """Numbers of workers that have equal shares of the global batch: for sbatch --elastic=sizes=...

        Others, up to one worker a sample, train the same model, with some workers idle for part of a step.
        """
        return [self._place.together * shares for shares in data.sizes(self.global_batch, self._basic_shares()) if not self._place.together * shares % self._place.unit]

    def mean_loss(self) -> float:
        """The loss of the last step that was not skipped: the mean over the whole global batch; nan where this start has made none yet.

        Call it on every worker: on one alone it waits for ever.
        """
        if self._loss is None:
            return float("nan")
        total = self._loss.clone()
        if self.world > 1:
            dist.all_reduce(total)
        return float(total.item()) / self._place.together

    # ---- the loop

    def batches(self, dataset: Any, *, epochs: int | None = None, steps: int | None = None, shuffle: bool = True,
                drop_last: bool = False, **loader: Any) -> Iterator[Any]:
        """This worker's batches, from where training stands to its end; call step() for each, or skip().

        dataset: of map style, as torch.utils.data.DataLoader takes it; or a stream that every worker reads whole, in an order of its own:
            a dataset or a loader with state_dict(), or an ElasticIterable. The remainder of its epoch is dropped.
        epochs, steps: where training ends, counted from its very beginning; whichever comes first.
        shuffle, drop_last: as in DataLoader; what is left of an epoch is a smaller global batch.
        loader: further arguments of DataLoader, such as num_workers and collate_fn.

        Leaves with a checkpoint and exit code 0 when swellrun asks. At the end there is a checkpoint, too.
        """
        if epochs is None and steps is None:
            raise ValueError("batches() needs epochs or steps: where does training end?")
        if given := [name for name in ("batch_size", "sampler", "batch_sampler") if name in loader]:
            raise TypeError(f"batches() is given {' and '.join(f'{name}=' for name in given)}, and orders and divides the samples itself, so that no resize changes them: "
                            "leave it out, give global_batch and micro_batch to Elastic(), and an order of your own as the dataset's, with shuffle=False")
        self._keep_loaded()
        _loops[:] = [weakref.ref(self)]
        if loader.get("collate_fn") is not None:
            say_what_is_across_in(loader["collate_fn"], takes_samples=True)
        self._total = steps
        self._checkpoints.take_over(self._checkpoints.group)
        sampler = self._sampler = self._sampler_of(dataset, shuffle, drop_last, loader)
        if self._data is not None:
            sampler.load_state_dict(self._data)
        elif isinstance(sampler, Stream):
            sampler.check()
        if epochs is not None and isinstance(sampler, data.ElasticSampler):
            self._total = min(each for each in (steps, epochs * sampler.steps_per_epoch) if each is not None)

        def over() -> bool:
            return (epochs is not None and sampler.epoch >= epochs) or (steps is not None and self.steps >= steps)

        def read() -> Iterator[Any]:
            self._has_moved = False
            assert isinstance(sampler, data.ElasticSampler)
            made = iter(DrawnLoader(dataset, batch_sampler=sampler, **loader))
            if self._beside is not None:
                self._beside.leave_alone(made)
            self._draw_on()
            return made

        self._replayed.begin(is_over=over())
        if isinstance(sampler, Stream):
            if self._beside is not None:
                self._beside.leave_alone(None)
            yield from self._streamed(sampler, over)
        while not over():
            epoch, batches = sampler.epoch, read()
            while sampler.epoch == epoch and not over():
                self.poll()     # not in step(): what the program logs of a step comes first
                if self._has_moved:
                    batches = read()        # this worker has another share
                yield from self._global_batch(batches)
        self._agreement.end()
        if self.steps:
            self._save(wait=True)
        self._replayed.end()
        self._checkpoints.lock.release()

    def _check_alone(self) -> None:
        """Raises where another Elastic's loop has begun within this one's: both would answer one request to leave, each with a part of the state."""
        other = _loops[0]() if _loops else self
        if other is self:
            return

        def name(each: Elastic | None) -> str:
            return type(getattr(getattr(each.model, "_orig_mod", each.model), "module", each.model)).__name__ if each is not None else "another model"
        raise RuntimeError(f"the Elastic of {name(self)} and that of {name(other)} train in one loop, and one loop has one Elastic: put both models into one "
                           "torch.nn.Module with one optimizer of several groups, or train the second one after the loop of the first")

    def _sampler_of(self, dataset: Any, shuffle: bool, drop_last: bool, loader: dict[str, Any]) -> data.ElasticSampler | Stream:
        if not is_stream(dataset):
            sampler = data.ElasticSampler(dataset, self.global_batch, micro_batch=self.micro_batch, shuffle=shuffle, seed=self.seed,
                                          drop_last=drop_last, rank=self._place.index, world=self._place.count)
            if rest := sampler.epoch_samples % self.global_batch:
                self._batches = {self.global_batch, rest}
                self._offer_sizes()
            return sampler
        if others := sorted(set(loader) - {"collate_fn"}):
            raise ValueError(f"{', '.join(others)}: batches() reads {type(dataset).__name__} in this process; for readers beside it give a loader with "
                             "state_dict(), such as torchdata's StatefulDataLoader")
        stream = Stream(dataset, self.global_batch, micro_batch=self.micro_batch, rank=self._place.index, world=self._place.count, collate=loader.get("collate_fn"))
        if stream.units < self._most_workers:
            self._most_workers = stream.units
            self._offer_sizes()
        return stream

    def _streamed(self, stream: Stream, over: Callable[[], bool]) -> Iterator[Any]:
        is_compared = self.world == 1
        while not over():
            self.poll()
            self._has_moved = False
            self._draw_on()
            if not stream.pull():
                continue
            if not is_compared:
                is_compared = True
                compare(stream, self._checkpoints.group)
            yield from self._global_batch(iter(stream.share()))

    def _global_batch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """This worker's batches of the next global batch."""
        assert self._sampler is not None
        self._passes = self._sampler.pieces_at(self._sampler.samples)
        for self._pass, piece in enumerate(self._passes):
            self._share_gradients(self._pass == len(self._passes) - 1)
            batch = next(batches)
            if self._draws is not None:
                unit = self._sampler.unit if isinstance(self._sampler, Stream) else 1
                self._draws.begin(self.steps, range(piece.begin * unit, piece.end * unit))
            self._is_given, self._is_skipped = True, False
            if self._outputs is not None:
                self._outputs.begin()
            self._noise.begin()
            yield batch
            if self._says_carried:
                self._say_what_is_carried()
            if self._has_moved:     # where the program polls: the global batch begins anew
                return
            if self._is_given:
                raise RuntimeError("elastic.step(loss) was not called for the last batch; call it once for each batch, before the next one is taken, or "
                                   "`if elastic.skip(...): continue` on every worker, which leaves a batch out; give what reads ahead to batches(), as num_workers=")
            if self._is_skipped:
                for _ in self._passes[self._pass + 1:]:
                    next(batches)
                return

    def _say_what_is_carried(self) -> None:
        self._says_carried = False
        if not self._lost:
            say_what_is_across(self)
        kept = [*self._state.values(), *(value for each in self._state.values() for value in getattr(each, "__dict__", {}).values())]
        say_what_counts()
        say_rates_by_workers()
        say_what_sets_data()
        self._changing.add(used_in_losses(), [self, self.model, self.optimizer, *kept])
        if names := carried_names(kept):
            print(f"swell: the loop carries {', '.join(names)} from one step to the next, which each start begins anew: give what the training depends on as state=, within an object that has state_dict() and "
                  "load_state_dict()", file=sys.stderr, flush=True)

    def step(self, loss: torch.Tensor) -> bool:
        """Train on one batch: backward, and with the last of a global batch the optimizer's step.

        loss: scalar, the mean over the batch's samples. Returns whether the optimizer has stepped.
        """
        self._check_alone()
        if self._has_moved:     # it polled between a batch and its step
            return False
        if self._buffers is not None:
            say_what_changes(self.model, self._buffers)
            self._buffers = None
        if not self._has_looked:
            self._has_looked = True
            self._check_scale(loss)
            if self.global_batch > 1:
                say_what_is_rounded(loss, "; a micro_batch that divides each worker's share keeps passes alike")
        if self._sampler is None or not self._passes:
            raise RuntimeError("elastic.step() belongs into `for batch in elastic.batches(dataset, ...)`")
        if not self._is_given:
            raise RuntimeError("elastic.step() was called for a batch that elastic.skip() has left out: go on to the next one where it returns True" if self._is_skipped else
                               "elastic.step() was called twice for one batch; call it once, with the sum of what is trained on it")
        self._is_given = False
        self._check_partial()
        if self._beside is not None and not self._lost:
            self._look_at_loss(loss)
        self._forget_outputs()
        if self._pass == len(self._passes) - 1:
            self._agreement.steps()
        self._noise.end(self.model, self._draws)
        share = self._passes[self._pass].counted / self._sampler.batch_at(self._sampler.samples)
        # Gradients are averaged over those that have samples of their own; the mean over the global batch is a sum over workers. In half precision a factor that is not a power of two would
        # have each number of workers round other gradients, and any factor have those of a scaled loss overflow at other steps, so that the rest of it comes when they are summed.
        scale, rest = (1, self._place.count) if "scaler" in self._state else powers_of_two(self._place.count)
        profile = self._profile
        if profile is not None:
            profile.begin_backward()
        weighted = loss * (share * scale)
        self._backward(self.scaler.scale(weighted) if self.scaler is not None else weighted)
        if self._draws is not None:
            self._draws.end()
        if profile is not None:
            profile.end_backward()
        if self._pass == 0:
            self._part = torch.zeros_like(loss, requires_grad=False)
        self._part = self._part + loss.detach() * share
        if self._pass < len(self._passes) - 1:
            self._note_partial()
            return False
        self._loss = self._part
        self._check_gradients()
        multiply_gradients(self.model.parameters(), rest)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.max_grad_norm is not None:
            self._clip(self.max_grad_norm)
        if profile is not None:
            profile.begin_optimizer()
        self._say_scaled_rates()
        has_stepped = self._step_as_others()
        if profile is not None:
            profile.end_optimizer()
        if self.scheduler is not None and has_stepped:
            self._step_schedule(self.scheduler)
        self._advance()
        return True

    def skip(self, when: bool | torch.Tensor = True) -> bool:
        """Leave the present global batch out, on all workers, where one of them says so. Returns whether it is left out.

        ::

            if elastic.skip(not torch.isfinite(loss)):
                continue
            elastic.step(loss)

        Every worker calls it for each batch, before step(), and waits for the others. A batch that is left out counts as a step whose samples are trained on:
        weights, optimizer, schedule and scaler stay as they are, and gradients of its other passes are dropped. So runs over any numbers of workers
        leave the same global batches out where `when` holds for a batch if it holds for one of its samples.
        """
        self._check_alone()
        if self._has_moved:     # it polled before: the batch comes again
            return True
        if self._sampler is None or not self._passes:
            raise RuntimeError("elastic.skip() belongs into `for batch in elastic.batches(dataset, ...)`")
        if self._is_skipped:
            return True
        if not self._is_given:
            raise RuntimeError("elastic.skip() was called for a batch that elastic.step() has trained on; call it before")
        if not self._agreement.skips(bool(when)):
            return False
        self._is_given, self._is_skipped, self._partial = False, True, None
        if self._draws is not None:
            self._draws.end()
        self._drop_passes()
        self._advance()
        return True

    def _drop_passes(self) -> None:
        """Drop what fully_shard keeps of passes without synchronization, which zero_grad() does not see, and has gathered for a backward pass."""
        for module in self._wrapped.modules():
            if hasattr(module, "set_requires_gradient_sync"):
                getattr(module, "reshard")()
        for each in fsdp_parameters(self._wrapped).values():
            each.unsharded_accumulated_grad = None
            if (unsharded := getattr(each, "_unsharded_param", None)) is not None:      # None before the first pass
                unsharded.grad = None

    def _advance(self) -> None:
        """The present global batch is behind us."""
        assert self._sampler is not None
        self.optimizer.zero_grad()
        self._sampler.advance()
        self._changing.stepped()
        self.steps += 1
        _request.made_step(self.steps, self._total)
        self.samples = self._sampler.samples
        self._data = self._sampler.state_dict()
        # Not saved here: what the script does after a step, such as to update an average of weights, is a part of the state.
        self._is_save_due = bool(self.checkpoint_every) and self.steps % self.checkpoint_every == 0

    def _check_scale(self, loss: torch.Tensor) -> None:
        """Raises where a GradScaler has scaled the loss already: its gradients would reach the optimizer as they are."""
        factor = next((saved for name in ("_saved_other", "_saved_self")
                       if isinstance(saved := getattr(loss.grad_fn, name, None), torch.Tensor) and saved.numel() == 1), None)
        if factor is None:
            return
        for thing in gc.get_objects():
            kinds = type(thing).__mro__
            if torch.amp.GradScaler in kinds and thing._scale is not None and thing._scale.data_ptr() == factor.data_ptr():
                raise RuntimeError("the loss given to elastic.step() is scaled by a GradScaler already; give the loss itself, and "
                                   "Elastic(scaler=...), which scales, unscales, steps and updates")

    def _say_scaled_rates(self) -> None:
        """Before a start's first step."""
        came_from, self._came_from = self._came_from, None
        if came_from is not None and came_from[0] and not self.rank:
            say_scaled_rates(came_from[1], came_from[0], [group["lr"] for group in self.optimizer.param_groups], self.world)

    def _step_as_others(self) -> bool:
        """As _step_optimizer(). Random numbers that an optimizer or its hooks draw, as noise of gradients, are by seed and step: each worker draws the same, at any number of workers.

        A start's first step shows whether one draws.
        """
        if not self._may_draw:
            return self._step_optimizer()
        before = generators()
        seed_generators(self.seed, self.steps, _OF_OPTIMIZER)
        seeded = generators()
        try:
            return self._step_optimizer()
        finally:
            self._may_draw = not is_same(seeded, generators())
            restore_generators(before)

    def _step_optimizer(self) -> bool:
        """Returns whether it has stepped: a scaler skips the step where gradients overflow."""
        if self.scaler is None:
            self.optimizer.step()
            return True
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return bool(self.scaler.get_scale() >= scale)

    def _step_schedule(self, schedule: Schedule) -> None:
        """Be lent nothing where the script steps it, too: it may do so once a pass, of which another number of workers makes another number."""
        if self._scheduled is not None and self._scheduled != getattr(schedule, "last_epoch", None) and self._beside is not None and not self._lost:
            self._lost = f"the script steps {type(schedule).__name__}, which Elastic steps once for each global batch: leave scheduler.step() out of the loop"
            self._offer_sizes()
        schedule.step()
        self._scheduled = getattr(schedule, "last_epoch", None)

    def _note_partial(self) -> None:
        """Note the gradient of the smallest parameter, to which other passes of the global batch are added."""
        found = min((each for each in self.model.parameters() if each.grad is not None), key=torch.Tensor.numel, default=None)
        if found is not None and found.grad is not None:
            self._partial = found, found.grad, found.grad.detach().clone(), found.grad._version

    def _check_partial(self) -> None:
        """Raises where the script has dropped the gradients of passes so far; where it has changed them, be lent nothing: another number of workers makes other passes."""
        partial, self._partial = self._partial, None
        if partial is None or not self._pass:
            return
        parameter, gradient, values, version = partial
        if parameter.grad is gradient and (gradient._version == version or torch.equal(gradient, values)):      # as where a norm alone is taken
            return
        if parameter.grad is None or not parameter.grad.any():
            raise RuntimeError("gradients were dropped between two passes of one global batch, whose sum they are a part of: leave optimizer.zero_grad() out of the loop, or put it under "
                               "`if elastic.step(loss):`; elastic.step() zeroes gradients itself")
        if self._beside is not None and not self._lost:
            self._lost = ("gradients are changed between passes of one global batch, of which another number of workers makes others: leave clip_grad_norm_() and the like out of the loop, and give "
                          "Elastic max_grad_norm=, which clips the whole sum")
            self._offer_sizes()

    def _optimizer_steps(self) -> None:
        """Raises where the script steps the optimizer between two passes of one global batch."""
        if self._partial is not None:
            raise RuntimeError("the optimizer was stepped between two passes of one global batch, with a part of its gradients: leave optimizer.step() out of the loop; elastic.step() does it "
                               "with the last pass")

    def _other_steps(self, other: torch.optim.Optimizer) -> None:
        """An optimizer of state= has stepped. If it steps in each pass, the job is lent only numbers of workers with which each worker makes one pass."""
        if self._beside is None or self._lost or not self._passes or not (self._is_given or self._pass < len(self._passes) - 1):
            return
        if len(self._passes) > 1:
            self._lost = (f"{type(other).__name__} of state= steps in each pass, and the number of passes changes with the number of workers: leave micro_batch out, or step it where elastic.step() returns True")
            self._offer_sizes()
        elif not self._needs_one_pass:
            self._needs_one_pass = True
            self._offer_sizes()

    def _check_gradients(self) -> None:
        """Raises where a gradient is this worker's alone."""
        if self.world == 1 or self._averaged is None:
            return
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not self._averaged.has(parameter):
                raise RuntimeError(f"{name} has a gradient that DistributedDataParallel does not average over the {self.world} workers: it was "
                                   "frozen in the forward pass, or that did not call the wrapped model; set requires_grad before the pass, and call "
                                   "what DistributedDataParallel returns")

    def poll(self) -> None:
        """Leave, with a checkpoint, if swellrun has asked. For phases that take no steps.

        Evaluation, warm-up and compilation call it now and then, every worker equally often; training resumes
        from the last optimizer step. Does not return when it leaves: raises SystemExit with code 0.
        """
        self._try_to_save(self._checkpoints.look)
        self._look_at_trained()
        self._look_beside()
        if self._live is not None:
            self._pass_boundary(self._live)
        if self._agreement.poll():
            self._leave()
        if self._is_save_due:
            self._save(wait=False)

    # ---- what subclasses for frameworks change

    def _how_to_wrap(self) -> str:
        """Says how to change a model that one worker trains into one that several can train together; empty: it is one already."""
        return "wrap it in DistributedDataParallel or fully_shard before Elastic() where WORLD_SIZE is 1, too, and not only where it is more"

    def _told(self) -> dict[str, Any]:
        """Returns the options that a start may change, by name; one line says a change."""
        return {"max_grad_norm": plain(self.max_grad_norm), **_identity.factors(self._schedules())}

    def _given(self) -> dict[str, Any]:
        """Returns what the script has given beside the model and the optimizer, as messages call it."""
        return {name if name in ("scheduler", "scaler") else f"state[{name!r}]": thing for name, thing in self._state.items() if not name.startswith("swell.")}

    def _schedules(self) -> dict[str, Any]:
        """Returns what has the schedules among them."""
        return self._given()

    def _has_static_graph(self) -> bool:
        """Whether DistributedDataParallel takes the graph for the same in each pass, on this number of workers or on more."""
        return bool(getattr(self._wrapped, "static_graph", False))

    def _saved_optimizer(self) -> torch.optim.Optimizer:
        return self.optimizer

    def _backward(self, loss: torch.Tensor) -> None:
        loss.backward()     # type: ignore[no-untyped-call]

    def _clip(self, norm: float) -> None:
        meshes = list(by_mesh(self.model))
        if len(meshes) < 2:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)
            return
        norms = [torch.nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None]) for parameters in meshes]
        total = torch.linalg.vector_norm(torch.stack([each.full_tensor() if isinstance(each, DTensor) else each for each in norms]))
        for parameters in meshes:
            torch.nn.utils.clip_grads_with_norm_(parameters, norm, total)

    def _why_not_stay(self) -> str:
        """Why this process cannot train on in another world; empty: it can."""
        return _staying.why_not(self._wrapped, self.optimizer, groups=3)

    def _share_gradients(self, share: bool) -> None:
        """Whether the next forward and backward pass averages gradients over workers."""
        if isinstance(self._wrapped, DistributedDataParallel):
            self._wrapped.require_backward_grad_sync = share
        elif hasattr(self._wrapped, "set_requires_gradient_sync"):
            getattr(self._wrapped, "set_requires_gradient_sync")(share)

    # ---- live mode

    def _go_live(self, warm_up: Callable[[], Any] | None) -> LiveState | None:
        """Register the state with this worker's shim, where there is one; None on all workers if one of them cannot."""
        if self._place.together > 1:
            if _native.is_live() and self.rank == 0:
                print(f"swell: {self._place.together} workers train on the same samples (tensor parallelism): this job is resized by restarts", file=sys.stderr, flush=True)
            return None
        why_not = self._why_not_stay() if _native.is_live() else ""
        live = join(self._wrapped, self._saved_optimizer(), self._state, rank=self.rank, group=self._checkpoints.group, stays=not why_not)
        if live is None:
            return None
        if why_not and self.rank == 0 and isinstance(self._wrapped, DistributedDataParallel):
            print(f"swell: {why_not}: where GPUs go back, all workers start anew", file=sys.stderr, flush=True)
        if warm_up is not None and _request.place().generation > 0:
            warm_up()
            self.optimizer.zero_grad()
        return live

    def _take_over(self, live: LiveState) -> bool:
        """Wait until this generation begins. Returns whether it has a state to go on with."""
        _request.begun()        # what is taken over stands in no checkpoint
        taken = live.take_over()
        if taken is None:
            return False
        self._checkpoints.take_over(self._checkpoints.group)
        rest, has_generators = taken
        self._restore(rest, reseed=not has_generators)
        return True

    def _pass_boundary(self, live: LiveState) -> None:
        """The boundary of a step: here the state is whole, and the next workers may take it over."""
        try:
            if self._profile is not None:
                unit = self._sampler.unit if isinstance(self._sampler, Stream) else 1
                self._profile.boundary(unit * sum(piece.counted for piece in self._passes) / max(1, len(self._passes)))
            action = live.boundary(self._rest(with_state=False))
        except _native.NativeError as error:
            _request.not_live(error)
            self._live = self._profile = None
            return
        if action is _native.Action.PREPARE:
            why_not = self._why_not_stay()
            self._next = live.next() if not why_not else None
            if why_not:
                _staying.decline(live.session, self.rank, why_not)
        if action is _native.Action.SWITCH:
            if self._next is None:
                self._agreement.end()
                self._checkpoints.finish()
                leave()
            self._stay(self._next)
        if action is _native.Action.STOP:
            _request.ask()

    def _stay(self, live: LiveState) -> None:
        """Train on in the next generation: what is of the world before is ended or made anew, the state is that of the boundary."""
        for end in (self._agreement.end, self._checkpoints.finish):
            try:
                end()
            except (RuntimeError, OSError) as error:        # a worker that leaves was killed at the boundary
                print(f"swell: rank {self.rank}: {error}", file=sys.stderr, flush=True)
        self.optimizer.zero_grad()
        taken = live.take_over()
        assert isinstance(self._wrapped, DistributedDataParallel) and taken is not None
        _staying.regroup_ddp(self._wrapped, live.session)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._place = Place(self.rank, self.world)      # of DistributedDataParallel
        self._agreement = Agreement(cpu_group())
        self._checkpoints.take_over(cpu_group())
        before, self._live, self._next, self._has_moved, self._passes = self._live, live, None, True, []
        self._loss = None       # as a new worker has it: all have mean_loss() wait for each other, or none
        if self._sampler is not None:
            self._sampler.rank, self._sampler.world = self.rank, self.world
        if self._profile is not None:
            self._profile.go_on(live.session, rank=self.rank)
        if before is not None:
            before.let_go()
        rest, has_generators = taken
        self._restore(rest, reseed=not has_generators)

    # ---- checkpoints

    def _rest(self, with_state: bool = True) -> dict[str, Any]:
        """Returns the state that is neither the model's nor the optimizer's."""
        rest: dict[str, Any] = {"steps": self.steps, "data": self._data, "global_batch": self.global_batch, "loops": self._replayed.count(), "world": self.world, "puts": self._puts}
        if with_state:
            rest["state"] = {name: thing.state_dict() for name, thing in self._state.items()}
        return rest

    def _restore(self, rest: dict[str, Any], reseed: bool) -> None:
        _identity.check_same({"numbers": {"global_batch": rest["global_batch"]}}, global_batch=self.global_batch)
        self.steps, self._data, self._scheduled, self._partial = rest["steps"], rest["data"], None, None
        self.samples = rest["data"]["samples"] if rest["data"] else 0
        self._replayed.restore(rest.get("loops", 0))
        self._puts = rest.get("puts", False)
        self._came_from = rest.get("world", 0), [copy.deepcopy(group["lr"]) for group in self.optimizer.param_groups]
        for name, thing in self._state.items():
            if name in rest.get("state", ()):
                thing.load_state_dict(rest["state"][name])
        # Workers that train on the same samples draw the same numbers.
        mine = of_rank(rest.get("generators", ()), self.rank) if reseed and self._place.together == 1 else None
        if mine is not None:
            restore_generators(mine)
        elif reseed:
            seed_generators(self.seed, self.steps, self._place.index)
        self._drawn = generators()

    def _draw_on(self) -> None:
        """Random numbers go on where the boundary before had them: what has been made since then, as a loader, drew some again."""
        drawn, self._drawn = self._drawn, None
        if drawn is not None:
            restore_generators(drawn)

    def _generators_of_all(self) -> list[dict[str, Any]]:
        """The workers' generators(), by rank, on the first one, which writes them."""
        group, mine = self._checkpoints.group, generators()
        if group is None:
            return [mine]
        each: list[dict[str, Any]] = [{}] * dist.get_world_size(group)
        dist.gather_object(mine, each if self.rank == 0 else None, group=group, group_dst=0)
        return each

    def _keep_loaded(self) -> None:
        """Have the weights and moments of this start again where the script has put others in their place: each start would do so."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        are_others = torch.tensor([int(loaded.are_others())], device="cpu")
        if self._checkpoints.group is not None:
            dist.all_reduce(are_others, op=dist.ReduceOp.MAX, group=self._checkpoints.group)
        if not are_others.item():
            return
        if not self.steps:      # with which the run begins
            self._puts = True
            return
        why = f"the script has put other weights, or other values of the optimizer, in the place of those of step {self.steps} since Elastic() has loaded them: load and initialize before Elastic()"
        if self._live is not None:
            if not loaded.put_back():
                raise RuntimeError(why)
        if self.rank == 0:
            print(f"swell: {why}; those of step {self.steps} are loaded again", file=sys.stderr, flush=True)
        if self._live is None:
            options = [{name: value for name, value in group.items() if name != "params"} for group in self.optimizer.param_groups]
            self._load()
            if not loaded.is_reloaded:      # options that the script has set stay
                for group, given in zip(self.optimizer.param_groups, options):
                    group.update(given)
        self._puts = True

    def _load(self) -> None:
        rest = self._checkpoints.load(**self._alike)
        if rest is None:
            return
        self._restore(rest, reseed=True)

    def _save(self, wait: bool, says: bool = True) -> str:
        """Save a checkpoint. Returns why that failed, the same on all workers; empty: it did not."""
        self._is_save_due = False
        self._agreement.check()
        if self._unkept:
            return self._unkept
        self._try_to_save(self._checkpoints.finish, says)
        rest = {**self._rest(), "generators": self._generators_of_all()}
        return self._try_to_save(lambda: self._checkpoints.save(self.steps, rest, wait=wait, data=self._data, **self._alike), says)

    def _try_to_save(self, act: Callable[[], None], says: bool = True) -> str:
        """Do a part of a save, of which all workers learn alike how it goes. says: once why it fails, until one succeeds."""
        whole = self._checkpoints.whole
        try:
            act()
        except (OSError, Unreadable) as error:
            why = str(error)
            if says and not self._save_fails and self.rank == 0:
                print(f"swell: {why}; training goes on", file=sys.stderr, flush=True)
            self._save_fails = why
            return why
        if self._checkpoints.whole != whole and self._save_fails:
            self._save_fails = ""
            self._offer_sizes()
        return ""

    def _leave(self) -> None:
        """Leave with a checkpoint. Where it cannot be saved: train on, and have swellrun lend nothing."""
        why = ""
        if self.steps:      # else there is nothing to lose
            why = self._checkpoints.trained.why_not() or self._save(wait=True, says=False)
        if why:
            _request.decline(why, self.world)
            return
        leave_with_checkpoint(self.steps, self._checkpoints.lock)
