# SPDX-License-Identifier: GPL-2.0-or-later
"""Averages of the weights that a script makes by itself are found, and nothing else is taken for one."""

import copy
import gc

import pytest
import torch
from torch import nn

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
    """What a loop does after each step. state: what it gives to Elastic."""

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
    """Of the weights of all steps so far, with buffers beside."""

    def after(self, model):
        for name, value in model.state_dict().items():
            self.kept[name] += (value - self.kept[name]) / (self.steps + 1)


class Late(InPlace):
    def after(self, model):
        if self.steps > 10:
            super().after(model)


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pytest.mark.parametrize("kind, steps", [(InPlace, 8), (Anew, 8), (Copied, 8), (Shadows, 8), (Mean, 8), (Late, 24)])
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


QUIET = [Gradients, AverageOfGradients, Copies, StepBefore, Middle, FromTheStart, Best, OtherTraining, Given, GivenAnew, GivenModule, Unchanging]


@pytest.mark.parametrize("kind", QUIET)
def test_what_is_no_average_or_is_held_is_left_alone(kind):
    for made in (lambda parameters: torch.optim.AdamW(parameters, lr=1e-2), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)):
        for wrap in (lambda model: model, Wrapped):
            assert not said(kind, wrap, made, steps=24)


def test_an_average_within_the_model_is_left_alone():
    assert not said(Teaches, WithinTheModel, steps=24)
