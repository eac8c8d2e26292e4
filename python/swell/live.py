# SPDX-License-Identifier: BSD-3-Clause
"""The training state in libswell's memory, so that the next generation's programs take it over without a checkpoint.

Parameters, buffers and the optimizer's state stand in Swell's memory from the start, on the host or on a GPU; at a switch they stay where
they are, or are copied to where the next plan wants them (swell._slots). Everything else, as the schedule and the data's position, is written beside them.
"""

from __future__ import annotations

import ctypes
import errno
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from swell import _native, _request, _staying
from swell._agreement import adopt
from swell._generators import generators, restore_generators
from swell._native import Action, Generation, Kind, NativeError, Session
from swell._slots import LAYER, Fixed, Kept, NoRoom, Unsupported, free_on, give_room, like, no_room, plain, reset_peak, share_of, span_of, wait_for_room

__all__ = ["LiveState", "Unsupported", "fsdp_parameters", "join", "state_of_a_step"]

_JOB_BYTES = 1 << 20        # of what is the same on all workers and no tensor; untouched pages take no memory
_WORKER_BYTES = 1 << 16     # of a worker's random number generators
_LENGTH = 8
_PAGE, _SLAB = 1 << 12, 1 << 28     # of memory of a GPU: what a tensor takes a multiple of, and what is taken at once at most for small ones


def fsdp_parameters(model: torch.nn.Module) -> dict[int, Any]:
    """Returns the record that fully_shard keeps of each sharded parameter, by the parameter's id()."""
    found: dict[int, Any] = {}
    for module in model.modules():
        get = getattr(module, "_get_fsdp_state", None)
        if get is None:
            continue
        state = get()
        groups = getattr(state, "_fsdp_param_groups", None)     # since PyTorch 2.12
        if groups is None:
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        for group in groups:
            for each in group.fsdp_params:
                found[id(each.sharded_param)] = each
    return found


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Names as they are at any number of workers."""
    for name, parameter in _bare(model).named_parameters():
        yield name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", ""), parameter


def _buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.nn.Module, str]]:
    """Those that belong to the state, once each, with a module and its name there: others are made anew by the model."""
    seen: set[int] = set()
    for prefix, module in _bare(model).named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set and id(buffer) not in seen:
                seen.add(id(buffer))
                yield (f"{prefix}.{name}" if prefix else name).replace("_orig_mod.", ""), buffer, module, name


# ---- what an optimizer will keep


def _step_of(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]], state: Mapping[torch.Tensor, dict[str, Any]]) -> Any:
    """Makes a step of the optimizer's kind over other groups and state, and returns the state after it. The optimizer is not touched."""
    kind = type(optimizer)
    probe = object.__new__(kind)
    probe.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})
    probe.__dict__.update({"param_groups": groups, "state": defaultdict(dict, state), "_optimizer_step_pre_hooks": OrderedDict(),
                           "_optimizer_step_post_hooks": OrderedDict()})
    step: Any = kind.step
    if getattr(step, "hooked", False):
        step = step.__wrapped__     # without the hooks that count steps
    step(probe)
    return probe.__dict__["state"]


def _plainly(group: Mapping[str, Any], parameters: list[torch.Tensor]) -> dict[str, Any]:
    """A group's options, for other parameters, wherever these are."""
    rate = group.get("lr")
    return {**group, "params": parameters, "foreach": False, "fused": False, "capturable": False,
            **({"lr": float(rate)} if isinstance(rate, torch.Tensor) else {})}


def _without_memory(key: str, value: Any) -> Any:
    """A value that an optimizer keeps, for a step that needs no memory; the number of the step itself, which is read on the host."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.tensor(float(value)) if key == "step" and value.numel() == 1 else torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")


def state_of_a_step(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """Returns the values that the optimizer keeps of each parameter once it has stepped, by the parameter's id(): tensors without memory, or values.

    Found by a step of its kind over parameters that have no memory; the optimizer itself is not touched.
    """
    stands_for: dict[int, torch.Tensor] = {}
    has: dict[torch.Tensor, dict[str, Any]] = {}
    groups = []
    for group in optimizer.param_groups:
        made = []
        for parameter in group["params"]:
            one = torch.empty(tuple(parameter.shape), dtype=parameter.dtype, device="meta", requires_grad=True)
            one.grad = torch.empty_like(one)
            stands_for[id(parameter)] = one
            if there := optimizer.state.get(parameter):     # made with the optimizer, as Adagrad does
                has[one] = {key: _without_memory(key, value) for key, value in there.items()}
            if parameter.requires_grad:
                made.append(one)
        groups.append(_plainly(group, made))
    try:
        state = _step_of(optimizer, groups, has)
    except Exception as error:
        raise Unsupported(f"what {type(optimizer).__name__} keeps of a parameter cannot be told before it steps: {error}") from error
    return {number: dict(state.get(one, {})) for number, one in stands_for.items()}


def _begins_as_zeros(optimizer: torch.optim.Optimizer) -> bool:
    """Whether steps from state that is zero are bitwise those from none, for each group and kind of parameter."""
    kinds = {(number, parameter.dtype, parameter.dim()) for number, group in enumerate(optimizer.param_groups)
             for parameter in group["params"] if parameter.requires_grad}
    try:
        return all(_steps_alike(optimizer, optimizer.param_groups[number], dtype, dim) for number, dtype, dim in kinds)
    except Exception:       # a kind that steps on GPUs alone
        return False


def _is_on_device(value: torch.Tensor, group: Mapping[str, Any]) -> bool:
    """Whether the optimizer has it where the parameter is; else on the host, which reads it in each step. value: of state_of_a_step()."""
    return value.device.type != "cpu" or bool(group.get("capturable")) or bool(group.get("fused"))


def _steps_alike(optimizer: torch.optim.Optimizer, group: Mapping[str, Any], dtype: torch.dtype, dim: int) -> bool:
    value = torch.arange(1, 1 + 2 ** dim).reshape((2,) * dim).to(dtype)
    ends: list[list[torch.Tensor]] = []
    zeros: dict[str, torch.Tensor] = {}
    for begins_with_zeros in (False, True):
        parameter = value.clone().requires_grad_()
        state: Mapping[torch.Tensor, dict[str, Any]] = {parameter: zeros} if begins_with_zeros else {}
        for factor in (0.5, -0.25):
            parameter.grad = (value * factor).to(dtype)
            state = _step_of(optimizer, [_plainly(group, [parameter])], state)
        kept = state.get(parameter, {})
        if any(each is not None and not isinstance(each, torch.Tensor) for each in kept.values()):
            return False
        zeros = {key: torch.zeros_like(each) for key, each in kept.items() if each is not None}
        ends.append([parameter.detach(), *(each for each in kept.values() if each is not None)])
    return len(ends[0]) == len(ends[1]) and all(map(torch.equal, *ends))


# ---- the state


class LiveState:
    """The state of a loop, registered with a session.

    things: others that have a state, by name: their tensors are handed over where they stand, the rest with the job's.
    Raises Unsupported, before anything is changed, where some of it cannot be handed over.
    """

    def __init__(self, session: Session, model: torch.nn.Module, optimizer: torch.optim.Optimizer, things: Mapping[str, Any], *,
                 rank: int) -> None:
        self.session, self.model, self.optimizer, self.things, self.rank = session, model, optimizer, things, rank
        self._peak = 0          # of torch's memory on a GPU, as it was last said to another program
        self._trains = False    # with the same tensors, until the generation of this begins
        self.boundaries = 0     # passed so far, as the session counts them
        self._fixed: list[Fixed] = []
        self._kept: list[Kept] = []
        self._empty: list[tuple[torch.Tensor, str, torch.dtype]] = []       # kept of parameters of which this worker has nothing
        self._own: dict[str, torch.Tensor] = {}
        self._why_not = ""      # the state, as the script has changed it since, cannot be handed over
        fsdp = fsdp_parameters(model)
        names: dict[int, str] = {}
        for name, parameter in _parameters(model):
            names[id(parameter)] = name
            self._fix(f"parameter.{name}", parameter, Kind.PARAMETER, fsdp.get(id(parameter)))
        for name, buffer, module, key in _buffers(model):
            self._fix(f"buffer.{name}", buffer, Kind.PARAMETER, buffers=module._buffers, key=key)
        number = 0
        will_keep = state_of_a_step(optimizer)
        self._values: list[tuple[str, torch.Tensor, str]] = []     # what it keeps that is no tensor
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), f"optimizer.{number}")
                number += 1
                if id(parameter) not in names:
                    raise Unsupported(f"the optimizer has a parameter of shape {tuple(parameter.shape)} that the model has not")
                for key, value in will_keep[id(parameter)].items():
                    if isinstance(value, torch.Tensor):
                        on_device = _is_on_device(value, group)
                        self._keep(name, parameter, key, value, parameter.device if on_device else torch.device("cpu"))
                    else:
                        self._values.append((name, parameter, key))
        for name, thing in things.items():
            for path, tensor in _tensors(thing.state_dict(), name):
                self._own[path] = tensor
            again = dict(_tensors(thing.state_dict(), name))
            for path in [path for path in again if path in self._own and again[path].data_ptr() != self._own[path].data_ptr()]:
                del self._own[path]     # made anew each time: goes with the job's
        if why := self._overlap():
            raise Unsupported(why)
        is_one_layer = not any(map(LAYER.search, names.values()))
        for each in [*self._fixed, *self._kept]:
            try:
                each.register(session, is_one_layer)
            except torch.OutOfMemoryError as error:
                left = self._kept[self._kept.index(each):] if isinstance(each, Kept) else self._kept
                raise no_room(each.device, sum(one.bytes for one in left if one.gpu == each.gpu)) from error
        for path, tensor in self._own.items():
            session.register(f"state.{path}", tensor.dtype, tuple(tensor.shape), kind=Kind.SCHEDULER, address=tensor.data_ptr())
        session.register("swell.job", "uint8", (_JOB_BYTES,), kind=Kind.DATA_POSITION)
        session.register(f"swell.worker.{rank}", "uint8", (_WORKER_BYTES,), kind=Kind.RNG, optional=True)

    def _fix(self, name: str, tensor: torch.Tensor, kind: Kind, fsdp: Any = None, **options: Any) -> None:
        if tensor.device.type == "meta":
            raise Unsupported(f"{name} is on meta and has no memory; call model.to_empty() and load or make its values first")
        share = share_of(name, tensor)
        if share is not None:
            self._fixed.append(Fixed(name, share, tensor, kind, fsdp, **options))

    def _overlap(self) -> str:
        """Names a tensor that shares memory with a parameter or a buffer without being the same object, so that live mode would part them; empty: none does."""
        present = [(one.name, found) for one in self._fixed if (found := one.present()) is not None]
        known = {id(tensor) for _, tensor in present}
        spans = [(*span_of(tensor), name, True) for name, tensor in present if tensor.layout is torch.strided]
        spans += [(*span_of(tensor), f"state.{path}", False) for path, tensor in self._own.items()]
        spans += [(*span_of(buffer), f"buffer.{name}", False) for name, buffer in _bare(self.model).named_buffers() if type(buffer) is torch.Tensor and
                  buffer.layout is torch.strided and buffer.device.type != "meta" and buffer.numel() and id(buffer) not in known]
        reach: dict[tuple[str, bool], tuple[int, str]] = {}
        for device, begin, end, name, is_ours in sorted(spans):
            for theirs in (True, False) if is_ours else (True,):
                until, other = reach.get((device, theirs), (0, ""))
                if begin < until:
                    return f"{name} shares memory with {other} and is another tensor: live mode would part them; make them one torch.nn.Parameter or buffer"
            if end > reach.get((device, is_ours), (0, ""))[0]:
                reach[device, is_ours] = end, name
        return ""

    def _keep(self, name: str, parameter: torch.Tensor, key: str, value: torch.Tensor, device: torch.device) -> None:
        is_like = value.shape == parameter.shape
        if type(value) is not torch.Tensor:
            raise Unsupported(f"{type(self.optimizer).__name__} keeps a {key} of {name} as a {type(value).__name__}, whose memory Swell does not know")
        if is_like:
            share = share_of(name, parameter)
        elif isinstance(parameter, DTensor) and value.numel() > 1:
            raise Unsupported(f"{type(self.optimizer).__name__} keeps a {key} of shape {tuple(value.shape)} of {name}, which is sharded")
        else:
            share = share_of(name, value)
        if share is None:
            self._empty.append((parameter, key, value.dtype))
        else:
            self._kept.append(Kept(f"optimizer.{name}.{key}", share, value.dtype, parameter, key, is_like, device))

    # ---- taking over

    def adopt(self) -> Generation:
        """Take the state over, or begin with what model and optimizer are. Blocks until this generation begins."""
        with torch.no_grad():
            if self._may_lack_room() and (moving := [one for one in self._fixed if one.put_off()]):
                for one in moving:
                    one.let_go()
                torch.cuda.empty_cache()    # the shim's memory for this state is taken while this waits
        generation = adopt(self.session)
        self.boundaries = generation.step
        with torch.no_grad():
            for each in [*self._fixed, *self._kept]:
                each.map(self.session)
            for one in self._fixed:
                one.bind(generation.fresh)
            if generation.fresh:
                self._begin_as_zeros()
                self.follow()
        if (gpu := self._gpu()) is not None and not self._trains:
            reset_peak(gpu)     # the model was there twice
        return generation

    def _may_lack_room(self) -> bool:
        """Whether torch's memory of the model is to go before the shim takes memory for the state: another program may need it, or that may not fit."""
        gpu = self._gpu()
        if gpu is None or self._trains:
            return False
        if _request.place().generation > 0:
            return True
        bytes_there = sum(one.bytes + _PAGE for one in [*self._fixed, *self._kept] if one.gpu is not None)
        return free_on(gpu) < bytes_there + bytes_there // 64 + _SLAB       # the last slab, and the ends of others

    def _begin_as_zeros(self) -> None:
        """The optimizer has its state before it first steps, where it would begin with zeros: else its memory would be there twice."""
        states = self.optimizer.state
        if any(states.get(each.parameter) for each in self._kept) or not _begins_as_zeros(self.optimizer):
            return
        for each in self._kept:
            each.bind(states[each.parameter])
        self._make_empty()

    def _make_empty(self) -> None:
        """Adds the optimizer's values for parameters of which this worker has nothing."""
        for parameter, key, dtype in self._empty:
            if self.optimizer.state.get(parameter):
                self.optimizer.state[parameter][key] = like(parameter, torch.empty_like(plain(parameter.detach()), dtype=dtype))

    def take_over(self) -> tuple[Any, bool] | None:
        """adopt(), then taken(); None where the state is new. Where the switch is called off this program leaves."""
        generation = self.adopt()
        return None if generation.fresh else self.taken()

    def taken(self) -> tuple[Any, bool]:
        """Returns the value that the generation before gave to its last boundary(), and whether this worker's random numbers go on.

        Restores what the optimizer, the other things and the generators were.
        """
        job, worker = self._read("swell.job"), self._read(f"swell.worker.{self.rank}")
        gpu = self._gpu()
        if gpu is not None and not self._trains:
            wait_for_room(gpu, (worker or {}).get("peak", 0))       # the first step takes as much beside the state
        with torch.no_grad():
            unmade = set(job["unmade"])
            for each in self._kept:
                if each.name not in unmade:
                    each.bind(self.optimizer.state[each.parameter])
            self._make_empty()
        by_name = {(name, key): parameter for name, parameter, key in self._values}
        for (name, key), value in job["values"].items():
            self.optimizer.state[by_name[name, key]][key] = value
        for group, options in zip(self.optimizer.param_groups, job["groups"], strict=True):
            group.update(options)
        for name, thing in self.things.items():
            thing.load_state_dict(_filled(job["things"][name], self._own, name))
        if worker is not None:
            restore_generators(worker)
        return job["rest"], worker is not None

    def let_go(self) -> None:
        """Another one has taken over, in this process: nothing is mapped of a GPU by this one any more, but where the script has tensors over it."""
        if (gpu := self._gpu()) is None:
            return
        for each in [*self._fixed, *self._kept]:
            each.forget()
        _staying.let_go(self.session, self.rank, gpu)

    def _gpu(self) -> torch.device | None:
        return next((each.device for each in self._fixed if each.gpu is not None), None)

    def _read(self, name: str) -> Any:
        at, _ = self.session.address(name)
        length = ctypes.c_uint64.from_address(at).value
        return pickle.loads(ctypes.string_at(at + _LENGTH, length)) if length else None

    def next(self) -> LiveState | None:
        """The same state in the generation that PREPARE told of, offered to that; None where it is not prepared any more, or declined.

        Its take_over() comes after the boundary() of this one that says SWITCH.
        """
        try:
            session = self.session.next()
            made = LiveState(session, self.model, self.optimizer, self.things, rank=int(session.variable("RANK") or 0))
            made._trains = True
            if any(one.is_own for one in made._fixed):
                raise Unsupported(_staying.OVERWRITTEN)
            session.offer()
            return made
        except (Unsupported, NoRoom, TypeError, OSError) as error:
            if not isinstance(error, NativeError) or error.errno != errno.ECANCELED:
                _staying.decline(self.session, self.rank, error)
            return None

    # ---- at each boundary

    def follow(self) -> None:
        """Move to its memory what the optimizer has made or loaded since, at its first step or by a load, and what the script has put elsewhere."""
        with torch.no_grad():
            try:
                if (left := [one for one in self._fixed if one.has_left()]) and (why := self._overlap()):
                    raise Unsupported(why)
                for one in left:
                    one.come_back()
                for each in self._kept:
                    state = self.optimizer.state.get(each.parameter)
                    if state:
                        each.follow(state)
            except Unsupported as error:
                self._why_not = self._why_not or str(error)

    def boundary(self, rest: Any) -> Action:
        """A step boundary: the state is whole. rest: small, the same on all workers; taken() gives it back.

        Every worker calls it equally often. Blocks during a switch. NativeError with ENOTSUP: the script has made of it what cannot be handed over.
        """
        self.follow()
        if self._why_not:
            raise NativeError(errno.ENOTSUP, self._why_not)
        gpu = self._gpu()
        if gpu is not None and self.session.make_room():
            self._peak = give_room(gpu)     # the next program's memory comes beside this one's
        states = self.optimizer.state
        job = {"rest": rest, "unmade": [each.name for each in self._kept if each.value is None],
               "values": {(name, key): states[parameter][key] for name, parameter, key in self._values if key in states.get(parameter, {})},
               "groups": [{key: value for key, value in group.items() if key != "params"} for group in self.optimizer.param_groups],
               "things": {name: _hollow(thing.state_dict(), self._own, name) for name, thing in self.things.items()}}
        self._write("swell.job", job, _JOB_BYTES)
        self._write(f"swell.worker.{self.rank}", {**generators(), "peak": self._peak}, _WORKER_BYTES)     # beside the job, which a switch may bring in pieces from several
        self.boundaries += 1
        return self.session.step(self.boundaries)

    def _write(self, name: str, value: Any, limit: int) -> None:
        try:
            text = pickle.dumps(value, protocol=5)
        except Exception as error:      # each kind of object fails in its own way
            raise NativeError(errno.EINVAL, f"a state that is to be handed over cannot be pickled: {error}") from error
        if len(text) > limit - _LENGTH:
            raise NativeError(errno.EMSGSIZE, f"the states given to Elastic(state=...) take {len(text)} bytes beside tensors that stay in place; at most "
                             f"{limit - _LENGTH} can be handed over: keep their tensors, as torch.nn.Module does, from step to step")
        at, _ = self.session.address(name)
        ctypes.memmove(at + _LENGTH, text, len(text))
        ctypes.c_uint64.from_address(at).value = len(text)


def _tensors(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a state that can be handed over where they stand."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors(each, f"{path}.{key}")
    elif type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu" and value.numel() and value.is_contiguous():
        yield path, value.detach()


def _hollow(value: Any, own: Mapping[str, torch.Tensor], path: str) -> Any:
    """A state without the tensors that are handed over where they stand."""
    if path in own:
        return None
    if isinstance(value, Mapping):
        return {key: _hollow(each, own, f"{path}.{key}") for key, each in value.items()}
    return value


def _filled(value: Any, own: Mapping[str, torch.Tensor], path: str) -> Any:
    """The same with them."""
    if path in own:
        return own[path]
    if isinstance(value, Mapping):
        return {key: _filled(each, own, f"{path}.{key}") for key, each in value.items()}
    return value


def join(model: torch.nn.Module, optimizer: torch.optim.Optimizer, things: Mapping[str, Any], *, rank: int,
         group: dist.ProcessGroup | None, stays: bool = False) -> LiveState | None:
    """Register the state with this worker's shim, where swellrun was started with mode=live; None on all workers if one cannot.

    group: of all workers, on the CPU; its connections are made by this. stays: this process can train on where GPUs go back;
    it does if all can. The first worker says what cannot be handed over.
    """
    if not _native.is_live():
        return None
    session, live, why = None, None, ""
    if group is not None:
        all_stay = torch.tensor([int(stays)], dtype=torch.int32, device="cpu")
        dist.all_reduce(all_stay, op=dist.ReduceOp.MIN, group=group)
        stays = bool(all_stay.item())
    try:
        session = _native.open_session(stays_if_none_is_new=stays)
        if session is not None:
            live = LiveState(session, model, optimizer, things, rank=rank)
    except (Unsupported, TypeError, OSError) as error:
        why = str(error)
    except NoRoom as error:
        assert session is not None
        _staying.give_way(session, rank, error)
        raise
    can = torch.tensor([int(live is not None)], dtype=torch.int32, device="cpu")
    if group is not None:
        dist.all_reduce(can, op=dist.ReduceOp.MIN, group=group)
    if can.item():
        return live
    if why and rank == 0:
        print(f"swell: {why}: this job is resized by restarts", file=sys.stderr, flush=True)
    if session is not None:
        session.close()
    return None
