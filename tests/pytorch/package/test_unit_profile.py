# SPDX-License-Identifier: GPL-2.0-or-later
"""Units of a model measured alone, against the engine that trains the whole of it."""

import json

import pytest
import torch

from swell import profile
from swell.engine import Engine, alone
from swell.engine.plan import Plan
from swell.engine.skeleton import Skeleton

transformers = pytest.importorskip("transformers")
LAYERS, TOKENS = 4, 16


def config(layers=LAYERS, **options):
    return transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
                                    vocab_size=64, max_position_embeddings=TOKENS, bos_token_id=1, eos_token_id=2, **options)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """A few repetitions are enough where times are not compared."""
    monkeypatch.setattr(alone, "_MOST", 1)


@pytest.fixture
def model(tmp_path):
    config().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def measured(monkeypatch):
    """Stands in for the device, where tables and not times are looked at; returns what it was asked for."""
    asked = []

    def measure(skeleton, begin, end, samples, tp, *rest):
        asked.append((begin, end, samples, tp))
        return alone.Measured(*(float(samples * (end - begin)) for _ in range(9)))
    monkeypatch.setattr(alone, "measure", measure)
    return asked


def run(model, *arguments):
    """Profiles a model and returns its table."""
    out = model.parent / "table.json"
    assert profile.main([str(model), "--device", "cpu", "--cache", str(model.parent / "kept"), "-o", str(out), *map(str, arguments)]) == 0
    return json.loads(out.read_text())


def units(table):
    return {(one["unit"], one["samples"], one["tp"]): one for one in table["devices"][0]["units"]}


def plan_file(model, plan):
    path = model.parent / "plan.json"
    path.write_text(json.dumps(plan.to_json()))
    return path


def test_runs_what_the_workers_of_a_plan_have_and_each_once(model, measured):
    plan = Plan.symmetric(LAYERS, 8, 2, pp=2, dp=2, tp=2)
    table = run(model, "--plan", plan_file(model, plan))
    assert table["devices"][0]["complete"]
    assert set(units(table)) == {("embedding", 2, 2), ("layer", 2, 2), ("head", 2, 2), ("pass", 2, 2)}
    # A layer and three of them, as a shard; embedding and head are the same on every shard.
    assert sorted(measured) == [(0, 1, 2, 1), (1, 2, 2, 2), (1, 4, 2, 2), (5, 6, 2, 1)]


def test_units_hold_together_what_the_engine_holds(model):
    its = units(run(model, "--samples", 2))
    assert its["layer", 2, 1]["forward_s"] > 0 and its["layer", 2, 1]["backward_s"] > 0
    engine = Engine(config(), torch.optim.AdamW, global_batch=2, micro_batch=2)
    total = LAYERS * its["layer", 2, 1]["state_bytes"] + its["embedding", 2, 1]["state_bytes"] + its["head", 2, 1]["state_bytes"]
    assert total == engine._generation.state.bytes


def test_a_shard_computes_its_columns_alone():
    skeleton, options = Skeleton(config()), alone.Options(TOKENS)
    whole, half = (alone.measure(skeleton, 1, 2, 2, tp, options, torch.device("cpu"), 0.0) for tp in (1, 2))
    norms = 2 * 32 * 4 * 4      # two norms of 32 with gradient and two moments, on both shards; and a step a parameter
    assert half.gradient_bytes - 256 == (whole.gradient_bytes - 256) / 2
    assert half.state_bytes < whole.state_bytes / 2 + norms + 64
    assert half.kept_bytes < whole.kept_bytes


def test_measures_the_backward_pass_in_two(model):
    assert units(run(model))["layer", 1, 1]["weights_s"] == 0
    split = units(run(model, "--split"))["layer", 1, 1]
    assert split["inputs_s"] > 0 and split["weights_s"] > 0


def test_the_next_run_of_a_model_measures_nothing(model, measured):
    first = run(model)
    measured.clear()
    assert run(model) == first and not measured


def test_a_config_json_stands_for_its_folder(model, measured):
    first = run(model)
    out = model.parent / "of-file.json"
    assert profile.main([str(model / "config.json"), "--device", "cpu", "--cache", str(model.parent / "kept"), "-o", str(out)]) == 0
    assert json.loads(out.read_text()) == first, "with the folder's name"


def test_reads_a_config_with_a_byte_order_mark_and_the_text_part_of_a_model_with_others(tmp_path, measured, capsys):
    text = config().to_dict()
    for name, said in {"marked": text, "nested": {"model_type": "gemma3", "text_config": {**text, "model_type": "gemma3_text", "head_dim": 8},
                                                  "vision_config": {"hidden_size": 16, "num_hidden_layers": 27}}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(said), encoding="utf-8-sig")
        table = run(tmp_path / name)
        assert table["model"]["layers"] == LAYERS and table["model"]["hidden"] == 32 and ("layer", 1, 1) in units(table)
    (tmp_path / "nested" / "config.json").write_text(json.dumps({"model_type": "llama", "text_config": text}))
    assert profile.main([str(tmp_path / "nested")]) == 1
    assert "a model_type of \"llama\" has no \"text_config\"" in capsys.readouterr().err


def test_a_degree_that_does_not_divide_the_heads_is_left_out_of_a_grid(model, measured, capsys):
    grid = model.parent / "grid.json"
    grid.write_text(json.dumps({"rows": [{"type": "cpu", "plan": Plan.symmetric(LAYERS, 8, 2, tp=tp).to_json()} for tp in (2, 4)]}))
    assert {tp for _, _, tp in units(run(model, "--grid", grid))} == {2}
    assert "TP 4 is left out" in (said := capsys.readouterr().out) and "num_key_value_heads=2 does not divide over a tensor parallel degree of 4" in said


def test_takes_no_result_of_other_software_options_or_device(model, measured):
    for change in ({"software": {"torch": "1.0"}}, {"options": {"recompute": True}}, {"device": "another one"}):
        run(model)
        for path in (model.parent / "kept").iterdir():
            kept = json.loads(path.read_text())
            path.write_text(json.dumps({**kept, "key": {**kept["key"], **change}}))
        measured.clear()
        run(model)
        assert len(measured) == 4


def test_says_what_does_not_fit_and_measures_the_rest(model, monkeypatch, capsys):
    monkeypatch.setattr(alone.os, "sysconf", lambda name: 1 if name == "SC_PAGE_SIZE" else 100_000)
    its = units(run(model, "--samples", "1,4096"))
    assert its["head", 1, 1]["forward_s"] > 0
    assert its["head", 4096, 1]["fits"] is False and "free" in its["head", 4096, 1]["why"]
    assert "head, 4096 samples, TP 1: does not fit" in capsys.readouterr().out


def test_ends_at_its_time_with_the_results_so_far(model, measured, capsys):
    run(model, "--samples", 1)
    table = run(model, "--samples", "1,2", "--time", 1e-9)
    assert not table["devices"][0]["complete"] and {name[1] for name in units(table)} == {1}
    assert "time was up before 4 of 8 runs" in capsys.readouterr().out


def test_a_table_keeps_what_it_has_of_other_types(model, measured):
    run(model, "--type", "a100")
    for _ in range(2):
        assert [one["type"] for one in run(model, "--type", "h100")["devices"]] == ["h100", "a100"]
    assert [one["type"] for one in run(model, "--type", "h100", "--recompute")["devices"]] == ["h100"]


def test_layers_that_differ_are_entries_of_their_own(tmp_path, measured):
    transformers.Gemma3TextConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=64,
                                  layer_types=["sliding_attention"] * 3 + ["full_attention"]).save_pretrained(tmp_path / "tiny")
    table = run(tmp_path / "tiny", "--sequence", 16)
    assert [one["layers"] for one in table["devices"][0]["units"] if one["unit"] == "layer"] == [3, 1]


def test_a_module_of_mtp_heads_runs_alone(model):
    its = units(run(model, "--mtp-heads", 1))
    assert its["module", 1, 1]["gradient_bytes"] > its["layer", 1, 1]["gradient_bytes"]


@pytest.mark.parametrize("arguments, says", [
    (["--plan", "PLAN"], "has a plan of 6 layers, and the model has 4"),
    (["--tp", "3"], "num_attention_heads=4 does not divide over a tensor parallel degree of 3"),
    (["--grid", "GRID"], "has no row with a plan; write it by swell plan --grid --json"),
    (["--plan", "no-such-file"], "No such file"),
])
def test_says_in_one_sentence_what_is_wrong(model, arguments, says, capsys):
    grid = model.parent / "grid.json"
    grid.write_text('{"rows": [{"type": "h100", "gpus": 1}]}')
    named = {"PLAN": plan_file(model, Plan.symmetric(6, 2, 1)), "GRID": grid}
    assert profile.main([str(model), "--device", "cpu", "--cache", str(model.parent / "kept"), *(str(named.get(one, one)) for one in arguments)]) == 1
    error = capsys.readouterr().err
    assert says in error and len(error.strip().splitlines()) == 1
