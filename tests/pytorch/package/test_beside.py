# SPDX-License-Identifier: GPL-2.0-or-later
"""Averages of the weights that a script makes by itself are found, and nothing else is taken for one."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from swell import _beside
from swell._beside import Beside

gc.freeze()     # what was imported is not looked through


class Holds:
    """As given to Elastic(state=...)."""

    def __init__(self, thing):
        self.thing = thing

    def state_dict(self):
        return {"thing": self.thing}

    def load_state_dict(self, state):
        self.thing = state["thing"]


class Returns:
    """Its state is that of something that it does not hold itself."""

    def __init__(self, make):
        self.state_dict, self.load_state_dict = make, None


class Script:
    """The loop's work after each step. state: what it gives to Elastic."""

    def __init__(self, model):
        self.model, self.steps, self.state = model, 0, []
        self.kept = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.begin(model)

    def begin(self, model):
        pass


def network():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def said(kind, wrap=lambda model: model, made=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2), steps=8):
    torch.manual_seed(1)
    model = wrap(network())
    optimizer, script = made(model.parameters()), kind(model)
    beside, x = Beside([model, optimizer, *script.state], optimizer), torch.randn(8, 4)
    for script.steps in range(1, steps + 1):
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        script.after(model)
        optimizer.zero_grad()
        if why := beside.why():
            return why
    return ""


# ---- found


class InPlace(Script):
    def after(self, model):
        for name, value in model.named_parameters():
            self.kept[name].mul_(0.99).add_(value.detach(), alpha=0.01)


class Anew(Script):
    def after(self, model):
        self.kept = {name: 0.9 * self.kept[name] + 0.1 * value.detach() for name, value in model.named_parameters()}


class Copied(Script):
    def begin(self, model):
        self.copy = copy.deepcopy(model)

    @torch.no_grad()
    def after(self, model):
        for mine, value in zip(self.copy.parameters(), model.parameters()):
            mine.lerp_(value, 0.05)


class Shadows(Script):
    """As of torch_ema and diffusers, whose decay rises."""

    def begin(self, model):
        self.shadow = [value.detach().clone() for value in model.parameters()]

    def after(self, model):
        decay = min(0.999, (1 + self.steps) / (10 + self.steps))
        for mine, value in zip(self.shadow, model.parameters()):
            mine.sub_((1 - decay) * (mine - value.detach()))


class Mean(Script):
    """Averages the weights of all steps so far, with buffers beside."""

    def after(self, model):
        for name, value in model.state_dict().items():
            self.kept[name] += (value - self.kept[name]) / (self.steps + 1)


class Late(InPlace):
    def after(self, model):
        if self.steps > 10:
            super().after(model)


class ByParameter(Script):
    """As optimizers of research keep it."""

    def begin(self, model):
        self.kept = {value: value.detach().clone() for value in model.parameters()}

    def after(self, model):
        for value, mine in self.kept.items():
            mine.data.lerp_(value.detach(), 0.02)


class Buffers(Script):
    """As of latent diffusion: a module with a buffer for each parameter, by names without dots, and numbers beside."""

    def begin(self, model):
        self.module = nn.Module()
        self.module.register_buffer("decay", torch.tensor(0.95))
        self.module.register_buffer("num_updates", torch.tensor(0))
        for name, value in model.named_parameters():
            self.module.register_buffer(name.replace(".", ""), value.detach().clone().data)

    @torch.no_grad()
    def after(self, model):
        self.module.num_updates += 1
        shadow = dict(self.module.named_buffers())
        for name, value in model.named_parameters():
            mine = shadow[name.replace(".", "")]
            mine.sub_((1 - self.module.decay) * (mine - value))


class Vector(Script):
    def begin(self, model):
        self.vector = nn.utils.parameters_to_vector(model.parameters()).detach()

    def after(self, model):
        self.vector = torch.lerp(self.vector, nn.utils.parameters_to_vector(model.parameters()).detach(), 0.1)


class InDoubles(Script):
    """In another type than the weights', as where these are in bfloat16."""

    def begin(self, model):
        self.kept = {name: value.detach().double() for name, value in model.named_parameters()}

    def after(self, model):
        for name, value in model.named_parameters():
            self.kept[name].lerp_(value.detach().double(), 0.03)


class EachFifth(InPlace):
    def after(self, model):
        if self.steps % 5 == 0:
            super().after(model)


class EachTenthAnew(Anew):
    def after(self, model):
        if self.steps % 10 == 0:
            super().after(model)


class EachTenthOfACopy(Copied):
    """As of ema_pytorch: weights are copied at first, and averaged from then on, by `.data`."""

    def after(self, model):
        if self.steps < 20:
            self.copy.load_state_dict(model.state_dict())
        elif self.steps % 10 == 0:
            for mine, value in zip(self.copy.parameters(), model.parameters()):
                mine.data.lerp_(value.data, 0.05)


class Each300th(Shadows):
    def after(self, model):
        if self.steps % 300 == 0:
            super().after(model)


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pytest.mark.parametrize("kind, steps", [(InPlace, 8), (Anew, 8), (Copied, 8), (Shadows, 8), (Mean, 8), (Late, 24), (ByParameter, 8), (Buffers, 8), (Vector, 8), (InDoubles, 8), (EachFifth, 40), (EachTenthAnew, 60),
                                         (EachTenthOfACopy, 70), (Each300th, 1300)])
def test_an_average_of_the_script_s_own_is_found(kind, steps):
    why = said(kind, steps=steps)
    assert why.startswith("the script keeps an average of the weights of its own, a ") and "which no checkpoint holds" in why
    assert said(kind, steps=steps, made=lambda parameters: torch.optim.SGD(parameters, lr=1e-2))
    assert said(kind, steps=steps, wrap=Wrapped)


# ---- not taken for one


class Gradients(Script):
    def after(self, model):
        self.kept = {name: value.grad.clone() for name, value in model.named_parameters()}


class AverageOfGradients(Script):
    def after(self, model):
        for name, value in model.named_parameters():
            self.kept[name].mul_(0.9).add_(value.grad, alpha=0.1)


class Copies(Script):
    def begin(self, model):
        self.copy = copy.deepcopy(model)

    def after(self, model):
        self.kept = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.copy.load_state_dict(model.state_dict())


class StepBefore(Script):
    def begin(self, model):
        self.now = self.kept

    def after(self, model):
        self.kept, self.now = self.now, {name: value.detach().clone() for name, value in model.named_parameters()}


class Middle(Script):
    """Between the step before and this one, as for a plot."""

    def begin(self, model):
        self.before = self.kept

    def after(self, model):
        now = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.kept, self.before = {name: (self.before[name] + now[name]) / 2 for name in now}, now


class FromTheStart(Script):
    """On the way from where training began to the weights."""

    def begin(self, model):
        self.first = copy.deepcopy(self.kept)

    def after(self, model):
        for name, value in model.named_parameters():
            self.kept[name].copy_(0.5 * self.first[name] + 0.5 * value.detach())


class Best(Script):
    def after(self, model):
        if self.steps % 3 == 1:
            self.kept = copy.deepcopy(dict(model.named_parameters()))


class OtherTraining(Script):
    def begin(self, model):
        self.other = copy.deepcopy(model)

    def after(self, model):
        x = torch.randn(8, 4)
        nn.functional.mse_loss(self.other(x), model(x).detach()).backward()
        with torch.no_grad():
            for value in self.other.parameters():
                value -= 0.05 * value.grad
                value.grad = None


class CopiesEachTenth(Copies):
    def after(self, model):
        if self.steps % 10 == 0:
            super().after(model)


class StepsEachTenth(OtherTraining):
    """Another training that makes a step now and then, as a discriminator."""

    def after(self, model):
        if self.steps % 10 == 0:
            super().after(model)


class BetweenEachTenth(Middle):
    def after(self, model):
        if self.steps % 10 == 0:
            super().after(model)


class FromTheStartEachTenth(FromTheStart):
    def after(self, model):
        if self.steps % 10 == 0:
            super().after(model)


class GradientsByParameter(Script):
    """Sums the gradients of all steps since the last tenth."""

    def begin(self, model):
        self.kept = {value: torch.zeros_like(value) for value in model.parameters()}

    def after(self, model):
        for value, mine in self.kept.items():
            mine.add_(value.grad) if self.steps % 10 else mine.zero_()


class GivenEachFifth(EachFifth):
    def begin(self, model):
        self.state = [Holds(self.kept)]


class Given(InPlace):
    def begin(self, model):
        self.state = [Holds(self.kept)]


class GivenAnew(Anew):
    def begin(self, model):
        self.state = [Returns(lambda: {"average": {name: value.clone() for name, value in self.kept.items()}})]


class GivenModule(Copied):
    def begin(self, model):
        super().begin(model)
        self.state = [self.copy]


class CopyOfWhatIsGiven(GivenModule):
    def after(self, model):
        super().after(model)
        self.kept = {name: value.clone() for name, value in self.copy.state_dict().items()}


class Unchanging(Script):
    def after(self, model):
        pass


class WithinTheModel(nn.Module):
    """As a momentum encoder."""

    def __init__(self, module):
        super().__init__()
        self.module, self.teacher = module, copy.deepcopy(module).requires_grad_(False)

    def forward(self, x):
        return self.module(x)


class Teaches(Script):
    @torch.no_grad()
    def after(self, model):
        for mine, value in zip(model.teacher.parameters(), model.module.parameters()):
            mine.lerp_(value, 0.05)


QUIET = [Gradients, AverageOfGradients, Copies, StepBefore, Middle, FromTheStart, OtherTraining, Given, GivenAnew, GivenModule, CopyOfWhatIsGiven, Unchanging]
SELDOM = [CopiesEachTenth, StepsEachTenth, BetweenEachTenth, FromTheStartEachTenth, GradientsByParameter, GivenEachFifth, Best, Unchanging]


@pytest.mark.parametrize("kind", QUIET)
def test_anything_but_an_average_is_left_alone_and_so_is_a_held_one(kind):
    for made in (lambda parameters: torch.optim.AdamW(parameters, lr=1e-2), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)):
        for wrap in (lambda model: model, Wrapped):
            assert not said(kind, wrap, made, steps=24)


@pytest.mark.parametrize("kind", SELDOM)
def test_what_changes_seldom_and_is_no_average_or_is_held_is_left_alone(kind):
    for made in (lambda parameters: torch.optim.AdamW(parameters, lr=1e-2), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), Sign):
        assert not said(kind, made=made, steps=120)


class TeachesByState(Script):
    @torch.no_grad()
    def after(self, model):
        self.state_of_it = model.teacher.state_dict()       # other tensors, of the same memory
        for name, value in model.module.state_dict().items():
            self.state_of_it[name].lerp_(value, 0.05)


class TeachesByList(Script):
    @torch.no_grad()
    def after(self, model):
        self.row = [value.data for value in model.teacher.parameters()]
        for mine, value in zip(self.row, model.module.parameters()):
            mine.lerp_(value, 0.05)


@pytest.mark.parametrize("kind", [Teaches, TeachesByState, TeachesByList])
def test_an_average_within_the_model_is_left_alone(kind):
    assert not said(kind, WithinTheModel, steps=24)


class Sign(torch.optim.Optimizer):
    """Steps of one length, as Lion's."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for value in group["params"]:
                value.sub_(value.grad.sign(), alpha=group["lr"])


@pytest.mark.parametrize("kind", [StepBefore, Middle, FromTheStart])
@pytest.mark.parametrize("made", [Sign, lambda parameters: torch.optim.SGD(parameters, lr=1e-4), lambda parameters: torch.optim.AdamW(parameters, lr=1e-5)], ids=["sign", "sgd", "adamw"])
def test_weights_that_follow_others_in_a_straight_line_are_not_an_average(kind, made):
    assert not said(kind, made=made, steps=24)


class Unreadable(InPlace):
    """Beside its average: things of the parameters' number or kind whose shapes or values nobody can read."""

    def begin(self, model):
        values, fakes = [value.detach() for value in model.parameters()], FakeTensorMode()
        self.freed = [value.clone() for value in values]
        for value in self.freed:
            value.untyped_storage().resize_(0)
        self.others = [[nn.UninitializedParameter() for _ in values], [fakes.from_tensor(value) for value in values], [value.to_sparse() for value in values], [value.to(torch.float8_e4m3fn) for value in values],
                       nn.Sequential.__new__(nn.Sequential)]


def test_unreadable_values_do_not_end_training():
    assert said(Unreadable)


def test_what_stays_as_it_is_is_followed_for_a_while_alone(monkeypatch):
    looks = []
    monkeypatch.setattr(_beside, "_FOLLOWS", 30)
    monkeypatch.setattr(_beside._Followed, "has_changed", lambda self, tensors: looks.append(id(self)) or False)
    assert not said(Unchanging, steps=100)
    assert 10 < max(map(looks.count, looks)) < 60   # tensors that tests before left behind are followed, too


class Fails(InPlace):
    def begin(self, model):
        self.state = [Returns(lambda: 1 / 0)]


def test_a_state_that_fails_ends_no_training():
    assert not said(Fails)


def test_a_tuple_that_is_being_made_is_not_read():
    ten = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))      # a tuple of what a generator makes begins with ten places
    optimizer = torch.optim.SGD(ten.parameters(), lr=1e-2)
    beside = Beside([ten, optimizer], optimizer)

    def train():
        for each in ten.parameters():
            assert not beside.why()
            yield each.detach()
    assert len(tuple(train())) == 10


def test_a_script_s_state_is_not_asked_for_on_one_of_several_workers(monkeypatch):
    asked = []

    class Asks(InPlace):
        def begin(self, model):
            self.state = [Returns(lambda: asked.append(True) or {})]
    assert said(Asks) and asked
    asked.clear()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert not said(Asks) and not asked
