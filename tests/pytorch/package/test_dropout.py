# SPDX-License-Identifier: GPL-2.0-or-later
"""Dropout's masks by sample: the same however the samples are shared out, and otherwise those of dropout."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from swell._dropout import Draws, is_compiled
from swell._share import depends_on_workers


@pytest.fixture(autouse=True)
def no_pass_is_left():
    yield
    Draws.now = None


def through(module, values, parts, *, per=1, step=3, calls=1):
    """Returns the outputs for samples that several passes have in parts; per: rows of a sample."""
    draws, out, at = Draws(module, 5), [[] for _ in range(calls)], 0
    for part in parts:
        draws.begin(step, range(at, at + part))
        for call in range(calls):
            out[call].append(module(values[at * per:(at + part) * per].clone()))
        draws.end()
        at += part
    return [torch.cat(each) for each in out]


@pytest.mark.parametrize("kind, shape, per", [(nn.Dropout, (12, 7), 1), (nn.Dropout, (12, 50, 64), 1), (nn.Dropout, (12, 70000), 1), (nn.Dropout, (36, 8), 3), (nn.Dropout, (12,), 1), (nn.Dropout1d, (12, 9, 4), 1),
                                              (nn.Dropout2d, (12, 5, 3, 3), 1), (nn.Dropout3d, (12, 5, 2, 2, 2), 1)])
@pytest.mark.parametrize("inplace", [False, True])
def test_masks_are_those_of_the_samples_however_they_are_shared_out(kind, shape, per, inplace):
    values = torch.rand(shape) + 0.5
    module = kind(0.3, inplace)
    whole = through(module, values, [12], per=per, calls=2)
    assert all(torch.equal(*pair) for parts in ([5, 7], [1] * 12, [3, 3, 6]) for pair in zip(through(module, values, parts, per=per, calls=2), whole, strict=True))
    assert not torch.equal(whole[0], whole[1]), "each call has masks of its own"
    assert not torch.equal(through(module, values, [12], per=per, step=4)[0], whole[0])
    kept = whole[0] != 0
    torch.testing.assert_close(whole[0][kept], values[kept] / 0.7)
    assert module.eval()(values) is values


def test_masks_do_not_depend_on_what_wraps_the_model():
    def drawn(*wrappers):
        inner, root = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5)), nn.Module()
        root.add_module("0", inner)
        for name in wrappers:
            wrapper = nn.Module()
            wrapper.add_module(name, root)
            root = wrapper
        Draws(root, 5).begin(3, range(8))
        return [drop(torch.ones(8, 16)) for drop in list(inner)[1:]]
    whole = drawn()
    assert not torch.equal(*whole), "each module has masks of its own"
    assert all(torch.equal(*pair) for name in ("module", "_orig_mod", "_fsdp_wrapped_module") for pair in zip(drawn(name), whole, strict=True))
    alone = [nn.Sequential(nn.Dropout(0.5)), nn.Sequential(checkpoint_wrapper(nn.Dropout(0.5)))]
    assert torch.equal(*(through(each, torch.ones(8, 16), [8])[0] for each in alone))


@pytest.mark.parametrize("count, size", [(400, 64), (400, 1025), (400, 5000), (30, 1 << 16), (30, 70000)])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_as_many_values_are_dropped_as_p_says_and_without_a_pattern(count, size, p):
    module, values = nn.Dropout(p), torch.ones(count, size)
    kept = torch.stack([through(module, values, [count], step=step)[0] != 0 for step in range(3)]).double()
    spread = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 5 * spread / kept.numel() ** 0.5
    for dim in range(3):      # two steps, two samples and two values have nothing to do with each other
        along = ((kept - kept.mean()) * (kept.roll(1, dim) - kept.mean())).mean()
        assert abs(along) < 6 * spread ** 2 / kept.numel() ** 0.5, dim
    assert kept.mean((0, 2)).std() < 2 * spread / (3 * size) ** 0.5 and kept.mean((0, 1)).std() < 2 * spread / (3 * count) ** 0.5


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_pass_has_the_masks_of_the_first(reentrant):
    found = []
    for recomputes in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Linear(6, 6), nn.Dropout(0.4))
        draws, x = Draws(model, 1), torch.randn(8, 6, requires_grad=True)
        draws.begin(0, range(8))
        (checkpoint(model, x, use_reentrant=reentrant) if recomputes else model(x)).square().sum().backward()
        found.append([x.grad, *(each.grad for each in model.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_pass_has_the_masks_of_the_first_where_they_are_drawn_as_ever(reentrant):
    found = []
    for recomputes in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Linear(6, 6), nn.Dropout(0.4))
        draws, x = Draws(model, 1), torch.randn(10, 6, requires_grad=True)
        draws.begin(0, range(4))
        (checkpoint(model, x, use_reentrant=reentrant) if recomputes else model(x)).square().sum().backward()
        found.append([x.grad, *(each.grad for each in model.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


class Shared(nn.Module):
    """One dropout in two places of each of two blocks that are recomputed."""

    def __init__(self, **options):
        super().__init__()
        self.layers, self.drop, self.options = nn.ModuleList(nn.Linear(6, 6) for _ in range(4)), nn.Dropout(0.4), options

    def block(self, number, x):
        return self.drop(self.layers[number + 1](self.drop(self.layers[number](x))))

    def forward(self, x):
        for number in (0, 2):
            x = checkpoint(self.block, number, x, **self.options) if self.options else self.block(number, x)
        return x


@pytest.mark.parametrize("must", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_each_call_of_a_recomputed_module_has_the_mask_of_the_first_pass(reentrant, must):
    found = []
    for options in ({}, {"use_reentrant": reentrant}):
        torch.manual_seed(0)
        model = Shared(**options)
        draws, x = Draws(model, 1, must=must), torch.randn(8, 6, requires_grad=True)
        draws.begin(0, range(8))
        model(x).square().sum().backward()
        found.append([x.grad, *(each.grad for each in model.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_passes_of_one_step_that_are_recomputed_together_have_their_own_masks(reentrant):
    found = []
    for options in ({}, {"use_reentrant": reentrant}):
        torch.manual_seed(0)
        model = Shared(**options)
        draws, parts = Draws(model, 1), [torch.randn(4, 6, requires_grad=True) for _ in range(2)]
        losses = []
        for number, x in enumerate(parts):
            draws.begin(0, range(4 * number, 4 * number + 4))
            losses.append(model(x).square().sum())
        sum(losses).backward()
        found.append([*(x.grad for x in parts), *(each.grad for each in model.parameters())])
    for pair in zip(*found, strict=True):
        torch.testing.assert_close(*pair)


def test_recomputed_masks_that_are_not_known_are_named(capfd):
    model, x = Shared(use_reentrant=False, preserve_rng_state=False), torch.randn(8, 6, requires_grad=True)
    for must in (False, True):
        Draws(model, 1, must=must).begin(0, range(8))
        if must:
            with pytest.raises(RuntimeError, match=r"^drop \(Dropout\) is called 4 times in a pass and recomputed .*; leave .*preserve_rng_state as it is, or give Elastic"):
                model(x).sum().backward()
        else:
            model(x).sum().backward()
            assert capfd.readouterr().err.count("drop (Dropout): several of its calls in a pass are recomputed, with other random numbers") == 1


def test_draws_outside_of_a_pass_are_as_ever(capfd):
    model = nn.Sequential(nn.Dropout(0.5))
    draws = Draws(model, 1)
    torch.manual_seed(3)
    expected = nn.functional.dropout(torch.ones(10, 5), 0.5)
    torch.manual_seed(3)
    assert torch.equal(model(torch.ones(10, 5)), expected)
    draws.begin(0, range(4))
    for _ in range(2):
        torch.manual_seed(3)
        assert torch.equal(model(torch.ones(10, 5)), expected), "10 rows are not those of 4 samples"
    assert capfd.readouterr().err.count("0 (Dropout): the 10 rows of its input are not those of 4 samples") == 1
    other = copy.deepcopy(model).eval()
    assert torch.equal(other(torch.ones(4, 4)), torch.ones(4, 4)) and model.training, "an average of weights has the model's modules, and its own mode"
    assert isinstance(model[0], nn.Dropout) and repr(model[0]) == "Dropout(p=0.5, inplace=False)"


@pytest.mark.parametrize("size", [64, 2000, 70000])
def test_a_mask_takes_a_byte_a_value(size):
    module, values, saved = nn.Dropout(0.1), torch.ones(8, size, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: saved.append(kept) or kept, lambda kept: kept):
        through(module, values.clone(), [8])
    assert sum(each.nbytes for each in saved) == values.numel()


@pytest.mark.parametrize("shape, dim", [((16, 8, 4), 1), ((16, 4, 8), 2)])
def test_rows_that_may_be_of_time_draw_as_ever_and_are_said(shape, dim, capfd):
    module, values = nn.Sequential(nn.Dropout(0.5)), torch.ones(shape)
    torch.manual_seed(3)
    expected = nn.functional.dropout(values, 0.5)
    draws = Draws(module, 5)
    draws.begin(3, range(8))
    torch.manual_seed(3)
    assert torch.equal(module(values), expected)
    assert capfd.readouterr().err == (f"swell: 0 (Dropout): dimension {dim} of its input, of shape {shape}, may be that of the 8 samples, so that another number of workers draws "
                                      "other masks; losses differ within their noise\n")


def test_rows_of_one_sample_are_its_own(capfd):
    through(nn.Dropout(0.5), torch.ones(16, 1, 4), [1], per=16)
    assert not capfd.readouterr().err


KINDS = {"NestedTensor": lambda drop, rows: drop(torch.nested.nested_tensor(rows, layout=torch.jagged)).values(), "nested tensor": lambda drop, rows: drop(torch.nested.nested_tensor(rows)).values(),
         "tensor of torch.func": lambda drop, rows: torch.func.vmap(drop, randomness="different")(torch.stack([rows[0]] * 3)), "Marked": lambda drop, rows: drop(rows[0].as_subclass(Marked))}


class Marked(torch.Tensor):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_other_kinds_draw_as_ever_and_are_said(kind, capfd):
    rows = [torch.ones(count, 6) for count in (4, 2, 1, 3)]
    torch.manual_seed(3)
    expected = KINDS[kind](nn.Dropout(0.5), rows)
    module = nn.Sequential(nn.Dropout(0.5))
    draws = Draws(module, 5)
    draws.begin(3, range(4))
    torch.manual_seed(3)
    assert torch.equal(KINDS[kind](module, rows), expected)
    assert capfd.readouterr().err.count(f"0 (Dropout): which rows of its input, a {kind}, are those of a sample is not known") == 1


@pytest.mark.parametrize("kind, shape", [(nn.Dropout, (4, 6)), (nn.Dropout1d, (4, 6, 2)), (nn.Dropout2d, (4, 6, 2, 2)), (nn.Dropout3d, (4, 6, 2, 2, 2))])
def test_a_model_can_be_scripted_and_traced(kind, shape):
    model, values = nn.Sequential(kind(0.5)), torch.ones(shape)
    torch.manual_seed(3)
    expected = model(values)
    Draws(model, 5)
    for made in (torch.jit.script(model), torch.fx.symbolic_trace(model)):
        torch.manual_seed(3)
        assert torch.equal(made.train()(values), expected) and torch.equal(made.eval()(values), values)


def test_only_what_is_not_drawn_by_sample_is_named():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_dropout = 0.1
    model = nn.Sequential(nn.Dropout(0.1), nn.AlphaDropout(0.1), nn.MultiheadAttention(4, 1, dropout=0.1), nn.LSTM(2, 2, num_layers=2, dropout=0.1), Attention())
    Draws(model, 0)
    [said] = depends_on_workers(model)
    assert said.startswith("1 (AlphaDropout), 2 (MultiheadAttention), 3 (LSTM) and 1 more: another number of workers draws other masks")
    assert not is_compiled(model) and is_compiled(nn.Sequential(torch.compile(nn.Dropout(0.1))))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_a_saved_model_needs_no_swell_to_load(kind, tmp_path):
    model = nn.Sequential(kind(0.3, True))
    model[0].own = 1
    Draws(model, 0)
    torch.save(model, tmp_path / "model.pt")
    assert type(model[0]) is not kind
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)[0]
    assert type(loaded) is kind and (loaded.p, loaded.inplace, loaded.own) == (0.3, True, 1) and not any("swell" in name for name in vars(loaded))
