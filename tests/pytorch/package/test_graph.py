# SPDX-License-Identifier: GPL-2.0-or-later
"""Exported graphs against what configurations and hand counts say."""

import json
import os
import subprocess

import pytest
import torch
from torch import nn

from swell import graph as exported

SEQUENCE = 256
transformers = pytest.importorskip("transformers")

# Sizes at which a norm's or a bias's share of the work is that of real models; two layers are enough.
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(n_layer=2, n_embd=1024, n_head=16),
    "llama": lambda: transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16,
                                              num_key_value_heads=4),
    "opt": lambda: transformers.OPTConfig(hidden_size=1024, ffn_dim=4096, num_hidden_layers=2, num_attention_heads=16, word_embed_proj_dim=1024),
    "qwen3": lambda: transformers.Qwen3Config(hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16,
                                              num_key_value_heads=8, head_dim=128, vocab_size=50000, tie_word_embeddings=True),
    "bert": lambda: transformers.BertConfig(num_hidden_layers=12),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(hidden_size=1024, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=8,
                                                     head_dim=64, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=512,
                                                     vocab_size=50000),
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Exports a family once: its configuration, its folder and the graph's file there."""
    made = {}

    def export(family):
        if family not in made:
            folder, config = tmp_path_factory.mktemp(family), CONFIGS[family]()
            config.save_pretrained(folder)
            made[family] = config, folder, write_graph(folder, SEQUENCE)
        return made[family]

    return export


def write_graph(folder, sequence):
    path = folder / f"graph-{sequence}.json"
    assert exported.main([str(folder), "--sequence", str(sequence), "-o", str(path)]) == 0
    return path


def read(path):
    return json.loads(path.read_text())


def counted(config):
    """Parameters and forward operations of a sample, as models/model.cc counts them from a config.json."""
    read = config.to_dict()
    h, layers, heads = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    query = heads * (read.get("head_dim") or h // heads)
    kv = query * (read.get("num_key_value_heads") or heads) // heads
    family, vocabulary = config.model_type, config.vocab_size
    matrices = 3 if family in ("llama", "qwen3", "qwen3_moe") else 2
    ffn = read.get("intermediate_size") or read.get("ffn_dim") or 4 * h
    attention = 2 * h * query + 2 * h * kv
    mlp = visited = matrices * h * ffn
    if family == "qwen3_moe":
        each = matrices * h * config.moe_intermediate_size
        mlp, visited = config.num_experts * each + h * config.num_experts, config.num_experts_per_tok * each + h * config.num_experts
    positions = {"gpt2": 1024, "bert": 512, "opt": 2050}.get(family, 0)
    tied = config.tie_word_embeddings
    parameters = layers * (attention + mlp + 4 * h) + (1 if tied else 2) * vocabulary * h + positions * h
    flop = layers * (2 * SEQUENCE * (attention + visited) + 4 * SEQUENCE ** 2 * query) + 2 * SEQUENCE * vocabulary * h
    return parameters, flop


@pytest.mark.parametrize("family", CONFIGS)
def test_a_graph_and_its_config_agree_within_one_percent(family, exports):
    config, _, path = exports(family)
    graph = read(path)
    parameters, flop = counted(config)
    assert graph["parameters"] == pytest.approx(parameters, rel=0.01)
    assert graph["forward_flop"] == pytest.approx(flop, rel=0.01)
    largest = max(graph["repeats"], key=lambda repeat: repeat["operators"])
    assert largest["times"] == config.num_hidden_layers


@pytest.mark.parametrize("family", CONFIGS)
def test_an_exported_graph_has_the_parameters_of_the_module(family, exports):
    _, folder, path = exports(family)
    module, _, _ = exported.transformers_model(str(folder), SEQUENCE, torch.bfloat16)
    assert read(path)["parameters"] == pytest.approx(sum(p.numel() for p in module.parameters()), rel=0.001)


def test_amounts_are_those_of_one_sample_and_grow_with_the_sequence(exports):
    _, folder, path = exports("gpt2")
    short, long = read(write_graph(folder, SEQUENCE // 2)), read(path)
    assert 2 < long["forward_flop"] / short["forward_flop"] < 2.1
    kept = [sum(one["kept_split_bytes"] + one["kept_whole_bytes"] for one in graph["operators"]) for graph in (short, long)]
    assert kept[1] == pytest.approx(2 * kept[0], rel=0.05)


def test_heads_columns_and_experts_can_be_split_and_norms_cannot(exports):
    by_name = {one["name"].split(".", 2)[-1]: one["split"] for one in read(exports("qwen3_moe")[2])["operators"]}
    assert by_name["0.self_attn:scaled_dot_product_attention"]["heads"] == 16
    assert by_name["0.self_attn.q_proj:linear"]["columns"] == 1024
    assert by_name["0.mlp.experts:_grouped_mm"]["experts"] == 8
    assert set(by_name["0.input_layernorm:mul"]) == {"samples"}
    assert set(by_name["0.post_attention_layernorm:mul"]) == {"samples"}


def test_keeps_what_autograd_keeps(tmp_path):
    """A chain counted by hand: two products keep their inputs, a relu its output, which the second product keeps, too."""
    module = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    program = exported.export(module.to("meta"), (torch.zeros(2, 8, device="meta"),))
    graph = exported.graph_of(program, "chain", 2)
    up, relu, down = graph["operators"]
    assert (up["flop"], down["flop"]) == (2 * 8 * 32, 2 * 32 * 4)
    assert graph["parameters"] == 8 * 32 + 32 + 32 * 4 + 4
    assert (up["kept_whole_bytes"], up["kept_split_bytes"]) == (4 * 8, 0)
    assert (relu["kept_split_bytes"], down["kept_split_bytes"], down["kept_whole_bytes"]) == (4 * 32, 0, 0)
    assert up["split"] == {"samples": 2, "columns": 32} and relu["split"] == up["split"] and down["split"] == up["split"]
    assert [one["inputs"] for one in graph["operators"]] == [[], [0], [1]]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.one(x)) + x)


def convolutional():
    """A user's function: four blocks of convolutions, and a head."""
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *(Block(64) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        return module, (torch.zeros(2, 3, 16, 16),)


def test_a_function_of_the_user_is_exported_with_its_blocks_folded(tmp_path, monkeypatch):
    monkeypatch.chdir(os.path.dirname(__file__))
    path, program = tmp_path / "graph.json", tmp_path / "program.pt2"
    assert exported.main(["test_graph:convolutional", "-o", str(path), "--program", str(program)]) == 0
    graph = json.loads(path.read_text())
    assert max(repeat["times"] for repeat in graph["repeats"]) == 4
    assert graph["forward_flop"] == 2 * 16 * 16 * 9 * (64 * 3 + 4 * 64 * 64) + 2 * 64 * 10
    assert graph["parameters"] == 9 * (64 * 3 + 4 * 64 * 64) + 64 + 4 * 2 * 64 + 640 + 10
    assert torch.export.load(program).graph_module is not None


def with_three_samples():
    return nn.Linear(4, 4), (torch.zeros(3, 4),)


def without_inputs():
    return nn.Linear(4, 4)


@pytest.mark.parametrize("function, says", [("with_three_samples", "[3, 4]"), ("without_inputs", "returned a Linear")])
def test_inputs_of_another_number_of_samples_are_refused(function, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(os.path.dirname(__file__))
    assert exported.main([f"test_graph:{function}", "-o", str(tmp_path / "none.json")]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("model", ["no-such-folder", "test_graph:nothing", "no_such_module:f"])
def test_models_that_cannot_be_exported_are_named_in_one_line(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(os.path.dirname(__file__))
    assert exported.main([model, "-o", str(tmp_path / "none.json")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and model in lines[0]
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt", "qwen3", "bert"])
def test_swell_plan_reads_the_graph_and_finds_the_layers(family, exports):
    stage = os.environ.get("SWELL_STAGE", "")
    swell = os.path.join(stage, "bin", "swell")
    if not stage or not os.path.exists(swell):
        pytest.skip("SWELL_STAGE has no swell")
    config, _, path = exports(family)
    ran = subprocess.run([swell, "plan", "--json", "--model", str(path), "--cluster", "1x8-h100", "--plan", "1-1-1", "--free", "1"],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    assert rows[0]["plan"]["stages"][0]["layers"] == config.num_hidden_layers
    assert rows[0]["samples_per_s"] > 0
