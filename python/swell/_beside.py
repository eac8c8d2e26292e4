# SPDX-License-Identifier: BSD-3-Clause
"""Finds state of a script that changes in training and that no checkpoint holds: other optimizers, schedules, averages of weights."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils.data.dataloader import _BaseDataLoaderIter

from swell._identity import bare
from swell._share import says_what_depends

__all__ = ["Beside"]

_MOST = 200_000     # objects that are followed
_VALUES, _PARAMETERS = 32, 64       # that are looked at, of each parameter and of the model
_FEWEST = 8         # values by which an average can be told from another thing
_FROM, _LOOKS = (1, 16, 256, 4096, 65536), 4        # steps from which on so many are looked at, one after the other
_MOVES = 3          # towards the weights that make it certain
_NEAR, _TOWARDS = 0.95, 0.1     # cosines by which an average in half precision is known
_FOLLOWED, _FOLLOWS, _RENEWALS = 8, 2000, 6     # things that do not move at each step: so many, for so many steps, and looks for one that is made anew
_GIVE = "give Elastic state={\"average\": average}, a module or what has state_dict() and load_state_dict()"
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)


def _parts_of(thing: Any) -> list[Any]:
    """Returns what a thing holds, as far as Python's collector follows it; a module's, what its state_dict() has: not what it keeps in a list."""
    if not isinstance(thing, torch.nn.Module) or type(thing).state_dict is not torch.nn.Module.state_dict or type(thing).get_extra_state is not torch.nn.Module.get_extra_state:
        return gc.get_referents(thing)
    own = (buffer for name, buffer in thing._buffers.items() if name not in thing._non_persistent_buffers_set)
    return [*thing._parameters.values(), *own, *thing._modules.values()]


def _held_by(things: Iterable[Any], but: Iterable[Any] = ()) -> dict[int, Any]:
    """Returns by its id() what things hold, themselves and through others, and not through `but`."""
    found, open_ = {id(each): each for each in but}, list(things)
    while open_ and len(found) < _MOST:
        thing = open_.pop()
        if id(thing) in found or isinstance(thing, _CODE):
            continue
        found[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            continue        # not what computed it
        open_ += _parts_of(thing)
    return found


def _is_lacking(other: Any, kept: list[Any]) -> bool:
    """Whether an optimizer, which another one has as a part, keeps values that no state_dict() of what is kept has."""
    mine = {id(value) for state in other.state.values() if isinstance(state, Mapping) for value in state.values() if isinstance(value, torch.Tensor)}
    torchs = [each for each in kept if isinstance(each, (torch.nn.Module, torch.optim.Optimizer, LRScheduler))]
    if not mine or id(other) in _held_by((each for each in kept if not isinstance(each, (torch.nn.Module, torch.optim.Optimizer, LRScheduler))), torchs):
        return False        # a part of state=, which says itself what it keeps
    for each in kept:
        if isinstance(each, torch.optim.Optimizer):
            try:
                mine -= {id(value) for state in each.state_dict()["state"].values() for value in state.values()}
            except Exception:       # of a script's own kind, or one that wants all workers
                return False
    return bool(mine)


class _Seen:
    """One thing that no checkpoint holds, and how far it had come. is_part: of the optimizer that is kept."""

    def __init__(self, thing: Any, held: Mapping[int, Any], is_part: bool = False, remedy: str = "") -> None:
        self._thing, self._changes, self._is_part, self._remedy = weakref.ref(thing), 0, is_part, remedy
        self._trains = [parameter for group in thing.param_groups for parameter in group["params"] if id(parameter) not in held] if isinstance(thing, torch.optim.Optimizer) else []
        self._was = self._now(thing)

    def _now(self, thing: Any) -> float:
        """Returns a number that rises with each change; reads nothing of a GPU."""
        if isinstance(thing, AveragedModel):
            return thing.n_averaged._version
        if isinstance(thing, LRScheduler):
            return thing.last_epoch
        if isinstance(thing, _BaseDataLoaderIter):
            return thing._num_yielded
        values = [value for state in thing.state.values() for value in state.values()]
        return sum(value._version for value in (*values, *self._trains) if isinstance(value, torch.Tensor)) + sum(value for value in values if isinstance(value, (int, float)))

    def why(self) -> str:
        """Returns what has changed, as a sentence; empty: nothing has, or it was an optimizer's only step."""
        thing = self._thing()
        if thing is None or (now := self._now(thing)) == self._was:
            return ""
        self._was, self._changes = now, self._changes + 1
        if isinstance(thing, _BaseDataLoaderIter):
            if self._changes < 2:
                return ""
            return (f"the loop reads a second loader beside batches(), of a {type(thing._dataset).__name__}, whose position no checkpoint holds and whose samples each worker reads for itself: "
                    "give batches() one dataset that has both, such as torch.utils.data.StackDataset(one, other)")
        kind, name = type(thing).__name__, "average" if isinstance(thing, AveragedModel) else "schedule" if isinstance(thing, LRScheduler) else "other"
        if name == "other":
            if self._changes < 2:
                return ""
            if self._is_part:
                return (f"the optimizer steps another one, {kind}, whose state its state_dict() lacks, and each start would make anew: have both share one state (self.state = other.state), also after "
                        "load_state_dict(): other.state, other.param_groups = self.state, self.param_groups")
            does = f"another optimizer of the script's, {kind}, steps in this loop"
            remedy = "give Elastic state={\"other\": optimizer}" + (" and its module" if self._trains else "")
        elif name == "average":
            does, remedy = f"the script updates an average of weights, {kind}, as it trains", "give Elastic state={\"average\": average}"
        else:
            does, remedy = f"the script steps a schedule of its own, {kind}, as it trains", "give Elastic scheduler=schedule, or state={\"schedule\": schedule} where the script steps it"
        return f"{does}, which no checkpoint holds, and each start would make anew: {self._remedy or remedy}"


class _Followed:
    """Tensors that have not moved at each step of a look, and may be an average that is updated at some steps alone."""

    def __init__(self, kind: str, tensors: list[torch.Tensor], values: torch.Tensor, weights: torch.Tensor) -> None:
        self.kind, self.values, self.weights, self.moves = kind, values, weights, 0
        self._tensors = [weakref.ref(each) for each in tensors]
        self._largest = max(range(len(tensors)), key=lambda at: tensors[at].numel())
        self._probe = self._probed(tensors)

    def tensors(self) -> list[torch.Tensor] | None:
        """Returns them; None: they are gone."""
        found = [each() for each in self._tensors]
        return None if any(each is None for each in found) else found       # type: ignore[return-value]

    def has_changed(self, tensors: list[torch.Tensor]) -> bool:
        """Whether their values are others than before. Reads nothing of a GPU: there a change through `.data` is not seen."""
        before, self._probe = self._probe, self._probed(tensors)
        return bool(before != self._probe)

    def _probed(self, tensors: list[torch.Tensor]) -> Any:
        one = tensors[self._largest]
        if not _is_readable(one):
            return None
        return one.detach().reshape(-1)[:_FEWEST].tolist() if one.device.type == "cpu" and one.is_contiguous() else one._version


class _Averages:
    """Finds averages of the weights that the script makes by itself: modules, dicts and lists of tensors of the parameters' names, or of their shapes in their order, or one vector of all.

    Their values alone tell: from one update to the next all of them move towards the weights by one and the same part of the way, within rounding. Copies of
    the weights, of gradients and of other trainings do not. An average that hardly moves yet is found at later steps. A value that some steps leave as it is, is
    followed for a while.
    """

    def __init__(self, kept: list[Any], remedy: str) -> None:
        self._kept, self._remedy, self._calls = kept, remedy, 0
        self._followed: list[_Followed] = []
        self._follows, self._renewals = 0, 0
        self._seen: list[tuple[str, torch.Tensor, int]] = []    # at the look before: kind, values, and how often in a row they had moved so
        self._weights = torch.empty(0)
        self._first, self._before = torch.empty(0), set[int]()      # some values of the weights as Elastic() began, and ids of the objects that had their shapes then

    def why(self) -> str:
        """Returns what there is and no checkpoint holds, as a sentence; empty: nothing that is known. Reads a few values of a GPU at few steps."""
        self._calls += 1
        if self._followed and (why := self._follow()):
            return why
        begin = max((each for each in _FROM if each <= self._calls), default=0)
        if self._calls >= begin + _LOOKS:
            self._seen.clear()
            return ""
        trained = self._trained()
        if not trained:
            return ""
        weights, before = _sampled(list(trained.values())), self._weights
        self._weights, seen = weights, list[tuple[str, torch.Tensor, int]]()
        is_last, known = self._calls == begin + _LOOKS - 1, {id(one) for each in self._followed for one in each.tensors() or []}
        for kind, thing, tensors in self._candidates(set(map(id, trained.values()))):
            now, dtype = _sampled(tensors), tensors[0].dtype
            moves = 0 if torch.equal(now, before) else max((self._moves(each, kind, now, weights, before, dtype) for each in self._seen), default=0)
            if moves >= _MOVES and not self._is_kept(thing, tensors):
                return self._found(kind)
            seen.append((kind, now, moves))
            if is_last and len(self._followed) < _FOLLOWED and known.isdisjoint(map(id, tensors)):
                self._followed.append(_Followed(kind, tensors, now, weights))
        self._seen = seen
        if is_last:
            self._follows, self._renewals = 0, 0
        return ""

    def _found(self, kind: str) -> str:
        return f"the script keeps an average of the weights of its own, {kind}, as it trains, which no checkpoint holds, and each start would make anew: {self._remedy or _GIVE}"

    def note_copies(self) -> None:
        """Note the weights as Elastic() begins, and the objects that have their shapes by then. A copy that the script makes later is one of other weights in each start."""
        if trained := self._trained():
            self._first = _sampled(list(trained.values()))
            self._before = {id(thing) for _, thing, _ in self._candidates(set(map(id, trained.values())))}

    def say_copies(self) -> None:
        """Say once, after the first step, that the script has copied those weights since."""
        if not (trained := self._trained() if self._first.numel() else {}):
            return
        for kind, thing, tensors in self._candidates(set(map(id, trained.values()))):
            if id(thing) not in self._before and torch.equal(_sampled(tensors), self._first) and not self._is_kept(thing, tensors):
                print(f"swell: the script has taken a copy of the weights, {kind}, since Elastic(), and each start takes it anew from the weights with which it goes on: take it before Elastic(), or give it as state=",
                      file=sys.stderr, flush=True)
                return

    def _trained(self) -> dict[str, torch.Tensor]:
        """Returns the parameters that are trained, by name, and notes their shapes; nothing where one has no values."""
        trained = {bare(name): _local(parameter) for name, parameter in self._kept[0].named_parameters() if parameter.requires_grad}
        self._shapes = {name: one.shape for name, one in trained.items()}
        return {} if any(one.device.type == "meta" for one in trained.values()) else trained

    def _follow(self) -> str:
        """As why(), between looks: at the steps alone in which what is followed has changed."""
        self._follows += 1
        there = [(each, each.tensors()) for each in self._followed]
        changed = [(each, tensors) for each, tensors in there if tensors is None or each.has_changed(tensors)]
        if self._follows > _FOLLOWS:
            self._followed = []
        trained = self._trained() if changed else {}
        if not trained:
            return ""
        weights = _sampled(list(trained.values()))
        if gone := [each for each, tensors in changed if tensors is None]:
            changed = [(each, tensors) for each, tensors in changed if tensors is not None] + self._renewed(gone, set(map(id, trained.values())))
        for each, tensors in changed:
            if not all(map(_is_readable, tensors or [])) or [one.shape for one in tensors or []] != list(self._shapes.values()):
                continue
            assert tensors is not None
            now = _sampled(tensors)
            moved = False if torch.equal(now, weights) or now.shape != each.values.shape or weights.shape != each.weights.shape else \
                _moves_towards(each.values, now, weights, each.weights, tensors[0].dtype)
            each.values, each.weights = now, weights
            each.moves = each.moves if moved is None else (each.moves + 1) * moved
            if each.moves >= _MOVES and not self._is_kept(tensors, tensors):
                return self._found(each.kind)
        return ""

    def _renewed(self, gone: list[_Followed], own: set[int]) -> list[tuple[_Followed, list[torch.Tensor] | None]]:
        """Returns what has been made in the place of each of these, of the same kind; they are followed in their place."""
        self._renewals += 1
        if self._renewals > _RENEWALS:
            self._followed = [each for each in self._followed if each not in gone]
            return []
        found: list[tuple[_Followed, list[torch.Tensor] | None]] = []
        known = {id(one) for each in self._followed for one in each.tensors() or []}
        made = [(kind, tensors) for kind, _, tensors in self._candidates(own) if known.isdisjoint(map(id, tensors))]
        for each in gone:
            for kind, tensors in made:
                if kind == each.kind:
                    new = _Followed(kind, tensors, each.values, each.weights)
                    new.moves = each.moves
                    found.append((new, tensors))
        self._followed = [*(each for each in self._followed if each not in gone), *(each for each, _ in found)][:_FOLLOWED]
        return [each for each in found if each[0] in self._followed]

    @staticmethod
    def _moves(before: tuple[str, torch.Tensor, int], kind: str, now: torch.Tensor, weights: torch.Tensor, weights_before: torch.Tensor, dtype: torch.dtype) -> int:
        """Returns how often in a row these values have moved towards the weights since `before`, also where they stand in another dict now; 0: they have not, or are another thing's."""
        of_kind, was, moves = before
        if of_kind != kind or was.shape != now.shape:
            return 0
        moves_ = _moves_in_half if dtype in (torch.float16, torch.bfloat16) else _moves_towards
        moved = moves_(was, now, weights, weights_before, dtype)
        return moves if moved is None else (moves + 1) * moved

    def _candidates(self, own: set[int]) -> list[tuple[str, Any, list[torch.Tensor]]]:
        """Returns what has a tensor of each parameter's name and shape, and is not the parameters themselves."""
        model, found = self._kept[0], list[tuple[str, Any, list[torch.Tensor]]]()
        of_model = set(map(id, model.modules()))
        kinds = {kind for module in (model, getattr(model, "module", model), getattr(model, "_orig_mod", model)) for kind in type(module).__mro__} - set(torch.nn.Module.__mro__)
        roles: dict[type, str] = {}     # found once for a type, as there are half a million objects
        for thing in gc.get_objects():
            kind = type(thing)
            role = roles.get(kind)
            if role is None:
                role = roles[kind] = "row" if kind in (list, tuple) else "dict" if dict in kind.__mro__ and kind.__module__ in ("builtins", "collections") else \
                    "module" if torch.nn.Module in kind.__mro__ and not kinds.isdisjoint(kind.__mro__) else "vector" if kind in (torch.Tensor, torch.nn.Parameter) else "other"
            if role == "other":
                continue
            try:
                if (tensors := self._tensors_of(thing, role, of_model)) is not None and own.isdisjoint(map(id, tensors)):
                    found.append(("a dict" if role == "dict" else f"a {kind.__name__}", thing, tensors))
            except Exception:       # each thing of a script's fails in its own way, as one that is still being made
                continue
        return found

    def _tensors_of(self, thing: Any, role: str, of_model: set[int]) -> list[torch.Tensor] | None:
        """Returns its tensors in the order of the parameters; None: it has not one of each."""
        if role == "vector":
            counts = [shape.numel() for shape in self._shapes.values()]
            if len(counts) < 2 or thing.dim() != 1 or thing.numel() != sum(counts) or not _is_readable(thing):
                return None
            return [one.view(shape) for one, shape in zip(thing.detach().split(counts), self._shapes.values(), strict=True)]
        if role == "row":
            # A tuple that another frame or thread is making has places without an object, which only the collector may visit.
            if len(thing) != len(self._shapes) or len(gc.get_referents(thing)) != len(thing):
                return None
            tensors = list(thing)
        elif role == "dict":
            if len(thing) < len(self._shapes) or not isinstance(next(reversed(thing.values())), torch.Tensor):
                return None
            by_name = {bare(key): each for key, each in list(thing.items()) if type(key) is str}
            tensors = [by_name.get(each) for each in self._shapes]
            if any(each is None for each in tensors):       # by names, or by objects, of its own
                tensors = [each for each in thing.values() if isinstance(each, torch.Tensor) and each.dim()]
        elif id(thing) in of_model:
            return None
        else:
            by_name = {bare(key): each for key, each in thing.named_parameters()}
            tensors = [by_name.get(each) for each in self._shapes]
        if not all(isinstance(each, torch.Tensor) for each in tensors):
            return None
        locals_ = [_local(each) for each in tensors]
        return locals_ if all(map(_is_readable, locals_)) and [each.shape for each in locals_] == list(self._shapes.values()) else None

    def _is_kept(self, thing: Any, tensors: list[torch.Tensor]) -> bool:
        """Whether a checkpoint holds it: it is reached from what is kept, or stands in a state of that."""
        held = _held_by(self._kept)
        if len(held) >= _MOST or id(thing) in held:
            return True
        # state_dict() and `.data` return other objects over the same memory.
        memory = {_memory(each) for each in held.values() if isinstance(each, torch.Tensor)} - {0}
        if not memory.isdisjoint(map(_memory, tensors)):
            return True
        # A copy of what is held, as for an evaluation, is made anew from that.
        one = max(tensors, key=torch.Tensor.numel)
        mine = _sampled([one])

        def is_like(each: torch.Tensor) -> bool:
            return each.shape == one.shape and _is_readable(each) and torch.equal(_sampled([each]), mine)
        if any(is_like(_local(each)) for each in held.values() if isinstance(each, torch.Tensor)):
            return True
        others = [each for each in self._kept[2:] if not isinstance(each, (torch.nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler))]
        if others and dist.is_initialized() and dist.get_world_size() > 1:
            return True     # to ask for a script's own state on one worker alone may wait for the others
        return any(is_like(each) for kept in others for each in _tensors(kept.state_dict()))


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """Returns the tensors of a state, at any depth."""
    if isinstance(state, torch.Tensor):
        yield _local(state)
    elif isinstance(state, (Mapping, list, tuple)):
        for each in state.values() if isinstance(state, Mapping) else state:
            yield from _tensors(each)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def _memory(tensor: torch.Tensor) -> int:
    """Returns where its values are; 0: they are nowhere, or it does not say."""
    local = _local(tensor)
    return local.untyped_storage().data_ptr() if _is_readable(local) else 0


def _is_readable(tensor: torch.Tensor) -> bool:
    """Whether it is an ordinary tensor with values: not a fake one of torch.compile()'s, a lazy module's, a sparse or quantized one, or one whose memory is given back."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested and tensor.is_floating_point() and \
        tensor.itemsize > 1 and tensor.device.type != "meta" and (not tensor.numel() or tensor.untyped_storage().nbytes() > 0)


def _sampled(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Returns some values of these, on the host."""
    found = []
    for tensor in tensors[::-(-len(tensors) // _PARAMETERS)]:
        if count := tensor.numel():
            at = torch.arange(0, count, -(-count // _VALUES), device=tensor.device)
            found.append(torch.take(tensor.detach(), at).double())
    return torch.cat([each.cpu() for each in found]) if found else torch.empty(0, dtype=torch.float64)


def _moves_towards(was: torch.Tensor, now: torch.Tensor, weights: torch.Tensor, before: torch.Tensor, dtype: torch.dtype) -> bool | None:
    """Whether all values have moved towards the weights by the same part of the way; None: they have not moved, or so little that rounding hides it, or they
    have moved as the weights have since the look before: where these go straight on, all that follows them does so."""
    moved, way, ahead = now - was, weights - was, weights - before
    if not torch.isfinite(moved).all() or not torch.isfinite(way).all():
        return False
    if not moved.any():
        return None
    noise = 8 * torch.finfo(dtype).eps * torch.maximum(torch.maximum(was.abs(), now.abs()), weights.abs())
    part = float(moved @ way) / max(float(way @ way), 1e-300)
    if not 0 < part < 1 - 1e-6 or bool(((moved - part * way).abs() > noise).any()):
        return False
    if not bool(((moved - float(moved @ ahead) / max(float(ahead @ ahead), 1e-300) * ahead).abs() > 4 * noise).any()):
        return None
    return True if int((moved.abs() > 16 * noise).sum()) >= _FEWEST else None


def _moves_in_half(was: torch.Tensor, now: torch.Tensor, weights: torch.Tensor, before: torch.Tensor, dtype: torch.dtype) -> bool | None:
    """As _moves_towards(), where rounding hides by which part of the way each value moves: whether all together move towards the weights, stay near them, and are no
    copy of them, nor of those of the look before."""
    moved, way = now - was, weights - was
    if not torch.isfinite(moved).all() or not torch.isfinite(way).all():
        return False
    if not moved.any():
        return None
    if any(each.shape == now.shape and torch.equal(each.to(dtype).double(), now) for each in (weights, before)):
        return False
    return bool(_alike(now, weights) > _NEAR and _alike(moved, way) > _TOWARDS)


def _alike(one: torch.Tensor, other: torch.Tensor) -> float:
    """Returns the cosine of the angle between them."""
    return float(one @ other) / max(float(one.norm() * other.norm()), 1e-300)


class Beside:
    """Finds what the script changes beside what is kept.

    kept: the model, its optimizer, and all else that checkpoints hold. A schedule that is made later than this may begin where the training goes on, and is left
    alone. remedy: what a framework's script does; empty: what one with Elastic does.
    """

    def __init__(self, kept: Iterable[Any], optimizer: Any, remedy: str = "") -> None:
        self._kept, self._seen, self._has_looked, self._has_failed = list(kept), list[_Seen](), False, False
        self._remedy, self._averages = remedy, _Averages(self._kept, remedy)
        self._has_schedule = hasattr(optimizer.step, "_wrapped_by_lr_sched")
        self._own: Any = None
        with suppress(Exception):       # as why()
            if says_what_depends():
                self._averages.note_copies()

    def leave_alone(self, reading: Any) -> None:
        """The iterator that batches() reads; None: a stream, which may read loaders of its own."""
        self._own = reading

    def why(self) -> str:
        """Returns what changes and no checkpoint holds, as a sentence; empty: nothing that is known. Call it after each step. Raises nothing: it ends no training."""
        if self._has_failed:
            return ""
        try:
            return self._look()
        except Exception:       # what a script has may fail in any way; it is looked at no more
            self._has_failed = True
            return ""

    def _look(self) -> str:
        if self._has_looked:
            return next(filter(None, (each.why() for each in self._seen)), "") or self._averages.why()
        self._has_looked = True
        self._averages.say_copies()
        found = _there(torch.optim.Optimizer, LRScheduler, AveragedModel, _BaseDataLoaderIter)
        held = _held_by(self._kept)
        if not self._has_schedule or any(isinstance(each, LRScheduler) and id(each) in held for each in found):
            found = [each for each in found if not isinstance(each, LRScheduler) or isinstance(each, ReduceLROnPlateau)]
        lost = (each for each in found if id(each) not in held)
        self._seen = [_Seen(each, held, remedy=self._remedy) for each in lost if (id(each.optimizer) in held if isinstance(each, LRScheduler) else
                                                             not isinstance(each, _BaseDataLoaderIter) or self._own is not None and each is not self._own)]
        self._seen += [_Seen(each, held, is_part=True, remedy=self._remedy) for each in found if isinstance(each, torch.optim.Optimizer) and id(each) in held and _is_lacking(each, self._kept)]
        return ""


def _there(*kinds: type) -> list[Any]:
    """Returns all objects of these kinds; takes a tenth of a second among half a million others."""
    wanted, open_ = set[Any](), list[Any](kinds)
    while open_:
        kind = open_.pop()
        wanted.add(kind)
        open_ += type.__subclasses__(kind)
    return [thing for thing in gc.get_objects() if type(thing) in wanted]
