# SPDX-License-Identifier: BSD-3-Clause
"""Compares the values that a start has loaded with those that stand there later, whatever kinds of values a script has."""

from __future__ import annotations

import functools
import sys

import pytest
import torch

from swell._changing import Changing
from swell._loaded import Loaded, _digest

_COMPLEX = torch.complex(torch.arange(4.0), torch.arange(4.0))


@pytest.mark.parametrize("tensor", [
    torch.arange(24.0).reshape(2, 3, 4), torch.arange(24.0).reshape(4, 6).t(), torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last), torch.arange(24.0)[::2],
    torch.arange(6, dtype=torch.bfloat16), torch.tensor([True, False]), torch.tensor(3.0), torch.zeros(0), _COMPLEX, _COMPLEX.conj(), torch.ones(2, 3).expand(4, 2, 3),
], ids=["rows", "transposed", "channels_last", "every second", "bf16", "bool", "one", "none", "complex", "conj", "expanded"])
def test_a_digest_is_of_the_values(tensor: torch.Tensor) -> None:
    same = tensor.clone(memory_format=torch.preserve_format)
    assert _digest(tensor) == _digest(same) == _digest(tensor)
    if same.numel():
        same.copy_(same.logical_not())
        assert _digest(tensor) != _digest(same)


def test_a_digest_takes_little_memory() -> None:
    tensor = torch.zeros(1 << 25, dtype=torch.bfloat16)     # 64 MiB; its sum at once would take 256 MiB
    with torch.profiler.profile(profile_memory=True) as profile:
        _digest(tensor)
    assert 0 < max((each.cpu_memory_usage for each in profile.events() or []), default=0) <= 1 << 26


def test_an_inference_tensor_is_no_reason_to_end() -> None:
    with torch.inference_mode():
        made = torch.ones(3)
    assert _digest(made) == _digest(made.clone())


def _optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_state_that_is_not_of_a_parameter_stands() -> None:
    model, optimizer = _optimizer()
    optimizer.state["n"] = 0        # type: ignore[index]
    optimizer.state[next(model.parameters())][3] = 1
    loaded = Loaded(model, optimizer, is_live=True, keeps=True)
    torch.nn.init.zeros_(model.weight)      # type: ignore[arg-type]
    assert loaded.are_others() and loaded.put_back() and not loaded.are_others()
    assert optimizer.state["n"] == 0        # type: ignore[index]


def test_moments_that_were_removed_are_not_put_back_in_part() -> None:
    model, optimizer = _optimizer()
    loaded = Loaded(model, optimizer, is_live=True, keeps=True)
    optimizer.state.clear()
    torch.nn.init.zeros_(model.weight)      # type: ignore[arg-type]
    assert loaded.are_others() and not loaded.put_back()
    assert not model.weight.any()       # type: ignore[operator]


class _Text:
    @functools.lru_cache
    def tokens(self) -> int:
        return 1


class _Odd:
    def __getattribute__(self, name: str) -> object:
        if name == "__dict__":
            raise RuntimeError("not now")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("read", ["inference", "cached", "odd"])
def test_things_of_a_script_that_cannot_be_looked_at_stop_no_training(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        features = torch.ones(3)
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "_READ", {"inference": features, "cached": _Text().tokens, "odd": _Odd()}[read], raising=False)

    def loss() -> object:
        return _READ      # type: ignore[name-defined]  # noqa: F821
    changing = Changing({"the model": torch.nn.Linear(1, 1)})
    changing._is_open = True
    changing.add({"loss": loss}, [])
    for _ in range(6):
        changing.stepped()
