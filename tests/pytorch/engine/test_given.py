# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments that programs give to the engine: forms of a plan, families that nobody describes, and errors that name the value and what to give."""

import functools
import json
import os
import re
import socket

import models
import pool
import pytest
import torch
import transformers

from swell.engine import Engine, Plan, given
from swell.engine.skeleton import Skeleton

ROOT = os.path.join(pool.HERE, "..", "..", "..")
GROUP = {"node": "n1", "gpu_type": "h100", "gpus": [0], "local_batch": 12}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def engine(**options):
    return Engine(options.pop("config", None) or models.CONFIGS["llama"](), options.pop("optimizer", sgd),
                  **{"global_batch": models.BATCH, "plan": models.PLANS["one worker"], **options})


def plan_json(stage=None, group=None, **whole):
    return {"micro_batches": 1, "stages": [{"layers": 4, "tp": 1, "groups": [{**GROUP, **(group or {})}], **(stage or {})}], **whole}


# ---- forms of a plan


def test_a_plan_is_written_by_hand_after_the_man_page():
    with open(os.path.join(ROOT, "man", "swell.1")) as file:
        of_man, = re.findall(r'^\.nf\n(\{"micro_batches".*?)\n\.fi$', file.read(), re.MULTILINE | re.DOTALL)
    with open(os.path.join(ROOT, "docs", "planner.md")) as file:
        of_docs, = re.findall(r'((?:^    .*\n)+)', file.read().split("## JSON of a plan")[1], re.MULTILINE)
    plan = Plan.parse(of_man)
    plan.check(models.LAYERS, models.BATCH, 4)
    assert plan.summary() == "3L dp2 tp1 | 1L dp1 tp2" and Plan.from_json(json.loads(of_docs)) == plan
    assert plan.to_json() == json.loads(of_man), "the form that the core writes"


def under(rank, plan):
    made = Engine(models.model(models.CONFIGS["llama"]()), sgd, global_batch=models.BATCH, micro_batch=2, plan=plan)
    return made.plan.summary(), made.step(models.batch())


def test_a_text_names_the_degrees_of_a_plan(tmp_path):
    models.model(models.CONFIGS["llama"]())
    texts = {"pp2": "2L dp2 tp1 | 2L dp2 tp1", "PP2-TP2": "2L dp1 tp2 | 2L dp1 tp2"}
    results = pool.run(tmp_path, [(4, under, (text,)) for text in texts] + [(4, under, (lambda world: f"pp2dp{world // 2}",))])
    losses = [result[0][1] for result in results]
    assert [result[0][0] for result in results] == [*texts.values(), "2L dp2 tp1 | 2L dp2 tp1"]
    assert max(losses) - min(losses) < 1e-4


def begun(rank, decided, generation, **plans):
    for name, value in (("SWELL_PLAN", decided), ("SWELL_GENERATION", generation)):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        return Engine(models.model(models.CONFIGS["llama"]()), sgd, global_batch=models.BATCH, micro_batch=2, **plans).plan.summary()
    except ValueError as error:
        return str(error)


def test_an_initial_plan_stands_until_one_is_decided(tmp_path):
    models.model(models.CONFIGS["llama"]())
    decided = json.dumps(Plan.symmetric(4, models.BATCH, 2, pp=4, dp=1, tp=1).to_json())
    runs = [(4, "pp2", decided, "0", "1L dp1 tp1 | 1L dp1 tp1 | 1L dp1 tp1 | 1L dp1 tp1"), (4, "pp2", None, "0", "2L dp2 tp1 | 2L dp2 tp1"),
            (2, "pp2", None, "3", "2L dp1 tp1 | 2L dp1 tp1"), (3, "pp2", None, "3", "4L dp3 tp1"),
            (4, "pp1dp2", None, "3", "2L dp2 tp1 | 2L dp2 tp1"), (3, "pp2dp1", None, "3", "2L dp1 tp1 | 1L dp1 tp1 | 1L dp1 tp1"), (3, "pp1dp2", None, "3", "4L dp3 tp1")]
    results = pool.run(tmp_path, [(world, functools.partial(begun, initial_plan=initial), (told, generation)) for world, initial, told, generation, _ in runs]
                       + [(3, functools.partial(begun, initial_plan="pp2"), (None, "0"))])
    assert [result[0] for result in results[:-1]] == [run[-1] for run in runs]
    assert "needs a multiple of 2 workers, there are 3" in results[-1][0]


def exactly(rank, folder, exact, steps, plans):
    """Trains on in a folder; returns the plan and the losses, or why it does not start."""
    os.environ.pop("SWELL_PLAN", None)
    os.environ.update(SWELL_GENERATION="1", SWELL_CONSISTENCY="exact" if exact else "relaxed")
    try:
        made = Engine(models.model(models.CONFIGS["llama"]()), sgd, global_batch=models.BATCH, micro_batch=2, directory=folder, **plans)
    except ValueError as error:
        return str(error), []
    finally:
        del os.environ["SWELL_CONSISTENCY"]
    losses = [made.step(models.batch()) for _ in range(steps)]
    made.save()
    return made.plan.summary(), losses


def test_an_exact_job_keeps_the_degrees_of_its_checkpoint(tmp_path):
    models.model(models.CONFIGS["llama"]())
    folder, alone, other = (str(tmp_path / name) for name in ("run", "alone", "relaxed"))
    begun, more, relaxed, wrong, told, reference = (result[0] for result in pool.run(tmp_path / "pool", [
        (2, exactly, (folder, True, 2, {})), (4, exactly, (folder, True, 2, {})), (2, exactly, (other, False, 1, {})),
        (3, exactly, (folder, True, 1, {})), (3, exactly, (folder, True, 1, {"plan": "pp1dp3"})), (2, exactly, (alone, True, 4, {}))]))
    assert begun[0] == "4L dp2 tp1" and more[0] == "2L dp2 tp1 | 2L dp2 tp1"
    assert begun[1] + more[1] == reference[1], "bit for bit"
    assert wrong[0] == ("the job is exact and was trained with dp2 tp1 with 2+2 samples in 3 micro-batches, which 3 workers cannot keep with 4 layers; "
                        "start a multiple of 2, up to 8")
    assert told[0].startswith("the job is exact and was trained with dp2 tp1 with 2+2 samples in 3 micro-batches, the plan (4L dp3 tp1) has dp3 tp1 with ")
    again = pool.run(tmp_path / "pool", [(4, exactly, (other, False, 1, {}))])[0][0]
    assert again[0] == "4L dp4 tp1", "a relaxed one takes what is fastest"


def offered(rank, folder, plan, exact=True):
    """The numbers of workers that swellrun hears of."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as shim:
        shim.bind("")
        os.environ["SWELL_SHIM"] = "@" + shim.getsockname()[1:].decode()
        try:
            why, _ = exactly(rank, folder, exact, 0, {"plan": plan})
            return shim.recv(65536, socket.MSG_DONTWAIT).decode() if rank == 0 else why
        finally:
            del os.environ["SWELL_SHIM"]


def test_an_exact_job_with_a_plan_of_its_own_offers_what_keeps_its_sums(tmp_path):
    models.model(models.CONFIGS["llama"]())
    runs = [(4, "pp2", True, "sizes 4"), (2, "pp1", True, "sizes 2"), (4, lambda world: f"pp{world // 2}dp2", True, "sizes 2 4 6 8"),
            (4, lambda world: models.PLANS["pp4"] if world == 4 else f"dp{world}", True, "sizes 4"), (4, "pp2", False, "sizes 2 4 6 12")]
    results = pool.run(tmp_path / "pool", [(world, offered, (str(tmp_path / str(number)), plan, exact)) for number, (world, plan, exact, _) in enumerate(runs)])
    assert [result[0] for result in results] == [run[-1] for run in runs]


def test_an_exact_job_goes_on_where_its_stages_have_different_degrees(tmp_path):
    models.model(models.CONFIGS["llama"]())
    job = 3, exactly, (str(tmp_path / "run"), True, 1, {"initial_plan": models.plan(3, (1, 1, [4]), (3, 1, [1, 3]))})
    for result in pool.run(tmp_path / "pool", [job, job]):
        assert result[0][0] == "1L dp1 tp1 | 3L dp2 tp1" and len(result[0][1]) == 1, result[0]


def test_a_plan_for_the_whole_run_leaves_no_place_for_an_initial_one():
    with pytest.raises(ValueError, match=re.escape("plan='pp1' and initial_plan='pp2': the first is for the whole run, the other until Swell decides")):
        engine(plan="pp1", initial_plan="pp2")
    with pytest.raises(ValueError, match=re.escape("initial_plan='pp0' is neither degrees")):
        engine(plan=None, initial_plan="pp0")


def test_swellrun_hears_for_which_numbers_of_workers_a_text_has_a_plan():
    assert given.sizes("pp2", 4, 12, 2, 4096) == [2, 4, 6, 12] and given.sizes("pp2dp2", 4, 12, 2, 4096) == [4]
    assert given.sizes(json.dumps(plan_json()), 4, 12, 2, 4096) == [1]


@pytest.mark.parametrize("value, words", [
    (3, "plan=3 is of type int: give degrees such as \"pp2dp2\""),
    ({"micro_batches": 1}, "is of type dict: give degrees such as"),
    ("plan.json", "plan='plan.json' is neither degrees nor JSON: give degrees such as"),
    ("pp2pp2", "plan='pp2pp2' is neither degrees nor JSON"),
    ("pp0", "plan='pp0' is neither degrees"),
    ("pp2", "plan=\"pp2\" needs a multiple of 2 workers, there are 1"),
    ("pp2dp2", "plan=\"pp2dp2\" is for 4 workers, there are 1; leave \"dp\" out for any multiple of 2"),
    (lambda world: None, "the function of plan= returned None for 1 worker: let it return a Plan"),
    ("{", "the plan is not JSON"),
    (json.dumps(plan_json(group={"gpus": 2})), "stage 0, group 0 has \"gpus\": 2; give a list of indexes of GPUs, such as [0, 1]"),
    (json.dumps(plan_json(group={"gpus": ["0"]})), "stage 0, group 0 has \"gpus\": [\"0\"]; give a list of indexes"),
    (json.dumps(plan_json(group={"node": 1})), "stage 0, group 0 has \"node\": 1; give the node's name in quotes"),
    (json.dumps(plan_json(group={"local_batch": 0})), "stage 0, group 0 has \"local_batch\": 0; give a whole number of at least 1"),
    (json.dumps(plan_json(stage={"groups": {}})), "stage 0 has \"groups\": {}; give a list of TP groups"),
    (json.dumps(plan_json(stage={"groups": [7]})), "stage 0, group 0 is 7; give {\"node\": NAME"),
    (json.dumps(plan_json(stage={"tp": "2"})), "stage 0 has \"tp\": \"2\"; give a whole number of at least 1"),
    (json.dumps(plan_json(stages=4)), "the plan has \"stages\": 4; give a list of stages"),
    ('{"stages": []}', "the plan lacks \"micro_batches\"; give a whole number of at least 1"),
])
def test_a_wrong_plan_is_named_with_what_to_give(value, words):
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        engine(plan=value)


# ---- other arguments


class Few(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return models.batch(samples=1)


def instance():
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.25)


@pytest.mark.parametrize("options, words", [
    ({"optimizer": instance()}, "optimizer= is a AdamW already; give what makes it of parameters, such as lambda parameters: torch.optim.AdamW(parameters, lr=0.25)"),
    ({"optimizer": "adamw"}, "optimizer='adamw'; give what makes an optimizer of parameters"),
    ({"optimizer": lambda parameters: None}, "the function of optimizer= returned None; let it return an optimizer"),
    ({"scheduler": torch.optim.lr_scheduler.ConstantLR(instance())}, "scheduler= is a ConstantLR; give what makes it of the optimizer"),
    ({"scheduler": lambda optimizer: None}, "the function of scheduler= returned None; let it return a schedule"),
    ({"global_batch": 0}, "global_batch=0; give a whole number of at least 1"),
    ({"global_batch": 12.0}, "global_batch=12.0; give a whole number"),
    ({"micro_batch": -2}, "micro_batch=-2; give a whole number of at least 1"),
    ({"checkpoint_every": -1}, "checkpoint_every=-1; give a whole number of at least 0"),
    ({"dtype": "bfloat16"}, "dtype='bfloat16'; give a floating point dtype, such as torch.bfloat16"),
    ({"autocast": torch.float16}, "autocast=torch.float16: its gradients need a GradScaler, which the Engine has not; give torch.bfloat16"),
    ({"autocast": True}, "autocast=True; give a floating point dtype"),
    ({"max_grad_norm": 0}, "max_grad_norm=0; give a number above 0, or None"),
    ({"log": "nowhere/losses.jsonl"}, "log='nowhere/losses.jsonl' cannot be written (No such file or directory); make the folder nowhere, or leave log= out"),
    ({"log": pool.HERE}, "cannot be written (Is a directory); give a file that this user may write"),
    ({"directory": __file__}, "is a file; give a folder for checkpoints"),
    ({"config": "meta-llama/Llama-2-7b"}, "'meta-llama/Llama-2-7b' is not a folder with a config.json; give one that save_pretrained() wrote"),
    ({"config": 4}, "4 is of type int; give a config of transformers, a folder with weights, or a model"),
    ({"config": torch.nn.Linear(2, 2)}, "the model is a Linear, not one of transformers; train it by swell.torch.Elastic"),
    ({"description": "nowhere.json"}, "description='nowhere.json' cannot be read (No such file or directory); give the path of a JSON file"),
    ({"description": __file__}, "is not JSON"),
    ({"description": {"inputs": "wte", "layers": "layers", "outputs": []}}, "has inputs='wte'; give a list of paths of modules"),
    ({"description": {"inputs": [], "layers": "h", "outputs": []}}, "llama has no list of layers 'model.h', which its description names"),
    ({"description": {"inputs": [], "layers": "layers", "outputs": [], "divided": {"layers.*": "n"}}}, "llama divides layers.*: 'n'; give a list of the numbers' names"),
])
def test_a_wrong_argument_is_named_with_what_to_give(options, words):
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        engine(**options)


def test_a_dataset_of_less_than_one_step_is_named():
    with pytest.raises(ValueError, match="the dataset has 5 samples, a step takes global_batch=12 of them; give more samples, or a smaller global_batch"):
        next(engine().batches(Few()))


def undescribed(rank, family, lacks, plan):
    """Checks the error of a description that lacks something."""
    with open(os.path.join(ROOT, "python", "swell", "engine", "families", f"{family}.json")) as file:
        description = json.load(file)
    description.pop(lacks)
    made = Engine(models.model(models.CONFIGS[family]()), sgd, global_batch=models.BATCH, plan=plan, description=description)
    try:
        made.step(models.batch())
    except ValueError as error:
        return str(error)
    return ""


def test_a_description_without_the_numbers_that_shards_divide_is_an_error(tmp_path):
    """Checks that each family is refused without them: with OPT two tokens would be read as one, without an error of torch's."""
    for family in ("gpt2", "opt"):
        models.model(models.CONFIGS[family]())
    results = pool.run(tmp_path, [(2, undescribed, (family, "divided", models.PLANS["tp2"])) for family in ("gpt2", "opt")]
                       + [(1, undescribed, ("opt", "divided", models.PLANS["one worker"]))])
    for result, what in zip(results, ("gpt2", "opt"), strict=False):
        assert all(f"a layer of {what} cannot be computed in 2 shards as its description says" in said and '"divided" the numbers' in said for said in result)
    assert results[2] == [""]


def test_a_launcher_between_swellrun_and_the_engine_is_refused_without_a_directory_too():
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="a launcher within the program gave this process WORLD_SIZE=1"):
        for name, value in (("SWELL_GENERATION", "0"), ("WORLD_SIZE", "1"), ("SWELL_WORLD_SIZE", "2")):
            patch.setenv(name, value)
        engine()


# ---- families that nobody describes

SIZES = dict(vocab_size=models.VOCABULARY, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LAYERS = dict(SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
WHOLE = {
    "persimmon": lambda: transformers.PersimmonConfig(**LAYERS, intermediate_size=48),
    "nemotron": lambda: transformers.NemotronConfig(**LAYERS, num_key_value_heads=2, intermediate_size=48),
    "biogpt": lambda: transformers.BioGptConfig(**LAYERS, intermediate_size=48, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "gpt_neox_japanese": lambda: transformers.GPTNeoXJapaneseConfig(**LAYERS, intermediate_multiple_size=2, hidden_dropout=0.0, attention_dropout=0.0),
}


def whole_family(rank, name, plan, options):
    made = Engine(models.model(WHOLE[name]()), sgd, global_batch=models.BATCH, plan=plan, micro_batch=2, **options)
    return [made.step(models.batch(seed=number)) for number in range(2)]


def plain(rank, name):
    model, batch = models.model(WHOLE[name]()), None
    optimizer, losses = sgd(model.parameters()), []
    for number in range(2):
        batch = models.batch(seed=number)
        loss = model(input_ids=batch["input_ids"], labels=batch["labels"], use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def test_a_family_without_a_description_trains_data_parallel(tmp_path):
    jobs = []
    for name, make in WHOLE.items():
        models.model(make())
        jobs += [(1, plain, (name,)), (2, whole_family, (name, None, {"schedule": "zero-bubble" if name == "persimmon" else None, "recompute": name == "nemotron"}))]
    results = pool.run(tmp_path, jobs)
    for name, (expected,), found in zip(WHOLE, results[::2], results[1::2], strict=True):
        assert all(abs(a / b - 1) < 1e-5 for one in found for a, b in zip(one, expected, strict=True)), f"{name}: {found}, by one process {expected}"


def test_a_family_without_a_description_is_not_cut_and_says_so():
    assert Skeleton(WHOLE["persimmon"]()).layers == 1
    for plan in (models.PLANS["pp2"], Plan.symmetric(1, 12, 2, tp=2), Plan.symmetric(2, 12, 2)):
        with pytest.raises(ValueError, match="persimmon is one layer to every plan.*give plan=\"dpN\" or none, or describe it by Engine"):
            Skeleton(WHOLE["persimmon"]()).check(plan)


@pytest.mark.parametrize("make, words", [
    (transformers.T5Config, "t5 is not a causal language model to transformers.*train it by swell.torch.Elastic"),
    (transformers.BertConfig, "bert sees later tokens too.*set is_decoder=True in its config"),
])
def test_a_model_that_predicts_no_next_token_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        Skeleton(make())
