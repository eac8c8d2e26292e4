# SPDX-License-Identifier: BSD-3-Clause
"""python -m swell.profile MODEL: measures what the parts of a model take on one device, for plans over many (swell plan --table).

MODEL is a folder with a transformers config.json. Each distinct unit (embedding, layer, head with loss, MTP module) runs alone, with the samples and
the shard of it that a worker of the plans has, as swell.engine runs it; what workers say to each other takes no time here. Each is run once:
results are kept in a folder, so that the next table of the same model, options, software and device runs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from swell._counted import counted
from swell._printable import Parser, printable
from swell.engine import alone, tensor_parallel
from swell.engine.plan import Plan
from swell.engine.skeleton import Skeleton

__all__ = ["VERSION", "Share", "main", "shares_of"]

VERSION = 1
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
_DEPTH = 3      # layers of the longer one of two runs: their difference is what a layer takes, without what each pass does once
_PARTS = ("forward_s", "backward_s", "inputs_s", "weights_s", "optimizer_s", "kept_bytes", "state_bytes", "gradient_bytes")


@dataclass(frozen=True, order=True)
class Share:
    """A worker's load from a unit: samples of a micro-batch, as one of `tp` shards."""

    unit: str
    samples: int
    tp: int


@dataclass(frozen=True)
class _Run:
    """So many units from `begin` on, run as one pass."""

    unit: str
    samples: int
    tp: int
    begin: int
    count: int = 1

    def __str__(self) -> str:
        what = f"{self.count} layers" if self.count > 1 else self.unit
        return f"{what}, {counted(self.samples, 'sample')}, TP {self.tp}"


def shares_of(plans: Iterable[Plan]) -> list[Share]:
    """Returns the distinct loads that the workers of plans have to run."""
    found = set()
    for plan in plans:
        for stage, parts in zip(plan.stages, plan.contents.parts, strict=True):
            units = {name for part in parts for name, has in (("embedding", part.embedding), ("layer", part.layers), ("head", part.head or part.heads),
                                                              ("module", part.modules)) if has}
            found |= {Share(unit, group.local_batch, stage.tp) for group in stage.groups for unit in units}
    return sorted(found, key=lambda one: (one.tp, one.samples, -"embedding head module layer".split().index(one.unit)))


def _plans_in(path: str, gpu_type: str, layers: int, mtp_heads: int) -> list[Plan]:
    """The plans of a file: a plan, or what swell plan --grid --json printed, of which those for this type where there are any."""
    with open(path) as file:
        value = json.load(file)
    if isinstance(value, dict) and isinstance(value.get("rows"), list):
        rows = [one for one in value["rows"] if isinstance(one, dict)]
        rows = [one for one in rows if one.get("type") == gpu_type] or rows
        values = [its["plan"] for row in rows for its in (row, *row.get("cells", [])) if "plan" in its]
        if not values:
            raise ValueError(f"{path} has no row with a plan; write it by swell plan --grid --json")
    else:
        values = [value]
    plans = [Plan.from_json(one) for one in values]
    for plan in plans:
        has = sum(stage.layers for stage in plan.stages)
        if has != layers:
            raise ValueError(f"{path} has a plan of {has} layers, and the model has {layers}; make it for this model")
        plan.check(layers, plan.global_batch, plan.world, mtp_heads)
    return plans


def _layer_kinds(skeleton: Skeleton) -> list[list[int]]:
    """Numbers of layers that are alike: by the shapes of their parameters, and by what the config says of each."""
    types = getattr(skeleton.config, "layer_types", None)
    kinds: dict[Any, list[int]] = {}
    for number in range(skeleton.layers):
        own = skeleton.layer_path(number)
        shapes = tuple(sorted((name.removeprefix(own), one.shape) for name, one in skeleton.parameters.items() if one.layer == number and name.startswith(own + ".")))
        said = types[number] if isinstance(types, list) and number < len(types) else ""
        kinds.setdefault((said, shapes), []).append(number)
    return list(kinds.values())


def _longest_run(numbers: list[int]) -> tuple[int, int]:
    """The first and the number of the most that follow each other."""
    best, at = (numbers[0], 1), 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            best = max(best, (numbers[at], i - at), key=lambda one: one[1])
            at = i
    return best


def _runs_of(share: Share, kinds: list[list[int]], layers: int) -> list[_Run]:
    if share.unit in ("embedding", "head"):     # each shard has the whole
        return [_Run(share.unit, share.samples, 1, 0 if share.unit == "embedding" else layers + 1)]
    if share.unit == "module":
        return [_Run("module", share.samples, share.tp, layers + 2)]
    runs = []
    for numbers in kinds:
        first, count = _longest_run(numbers)
        runs += [_Run("layer", share.samples, share.tp, first + 1, depth) for depth in sorted({1, min(count, _DEPTH)})]
    return runs


def _less(result: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(0.0, result[name] - other[name]) for name in _PARTS}


def _layer_of(one: Mapping[str, float], several: Mapping[str, float], depth: int) -> tuple[dict[str, float], dict[str, float]]:
    """Computes the time of a layer, and that of a pass beside its layers, from runs of one layer and of `depth`."""
    # One layer takes no more than its share of several, and several no less than one: where it seems so, the device was slower in between.
    layer = {name: (several[name] - one[name]) / (depth - 1) if one[name] < several[name] < depth * one[name] else several[name] / depth for name in _PARTS}
    return layer, _less(one, layer)


def _units(shares: Sequence[Share], results: Mapping[_Run, Mapping[str, Any]], kinds: list[list[int]], layers: int) -> list[dict[str, Any]]:
    """The table's entries: of each share of which all runs are known, what a unit takes; "pass" is what a stage's pass takes beside its units."""
    made: list[dict[str, Any]] = []
    passes: dict[tuple[int, int], dict[str, float]] = {}
    for share in sorted(shares, key=lambda one: one.unit != "layer"):     # what a pass takes is known from layers
        runs, where = _runs_of(share, kinds, layers), {"samples": share.samples, "tp": share.tp}
        if not all(run in results for run in runs):
            continue
        refused = next((results[run]["why"] for run in runs if "why" in results[run]), None)
        if refused is not None:
            made.append({"unit": share.unit, **where, "fits": False, "why": refused})
        elif share.unit == "layer":
            for numbers in kinds:
                its = {run.count: results[run] for run in runs if run.begin == _longest_run(numbers)[0] + 1}
                depth = max(its)
                layer = {name: its[1][name] for name in _PARTS}
                if depth > 1:
                    layer, beside = _layer_of(its[1], its[depth], depth)
                    passes.setdefault((share.samples, share.tp), beside)
                made.append({"unit": "layer", "layers": len(numbers), **where, **layer, "peak_bytes": its[1]["peak_bytes"]})
        else:
            result = results[runs[0]]
            made.append({"unit": share.unit, **where, **_less(result, passes.get((share.samples, share.tp), dict.fromkeys(_PARTS, 0.0))),
                         **{name: result[name] for name in ("peak_bytes", "state_bytes", "gradient_bytes")}})
    made += [{"unit": "pass", "samples": samples, "tp": tp, **its} for (samples, tp), its in passes.items()]
    return made


class _Kept:
    """Results in a folder, a file each. Only one of equal model, options, software and device is taken."""

    def __init__(self, folder: str, identity: Mapping[str, Any]) -> None:
        self._folder, self._identity, self._says = folder, identity, True

    def _key(self, run: _Run) -> tuple[dict[str, Any], str]:
        key = {**self._identity, **asdict(run)}
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return key, os.path.join(self._folder, f"{name}.json")

    def get(self, run: _Run) -> dict[str, Any] | None:
        key, path = self._key(run)
        try:
            with open(path) as file:
                value = json.load(file)
            result = value["result"]
            good = value["key"] == key and all(isinstance(result[one.name], (int, float)) and 0 <= result[one.name] < float("inf") for one in fields(alone.Measured))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return {one.name: result[one.name] for one in fields(alone.Measured)} if good else None

    def put(self, run: _Run, result: Mapping[str, Any]) -> None:
        key, path = self._key(run)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            _write(path, {"key": key, "result": result})
        except OSError as error:
            if self._says:
                print(f"swell.profile: results are not kept: {printable(error)}", file=sys.stderr)
            self._says = False


def _write(path: str, value: Any) -> None:
    mine = f"{path}.{os.getpid()}.new"
    with open(mine, "w") as file:
        file.write(json.dumps(value, indent=1) + "\n")
    os.replace(mine, path)


def _identity_of(config: Any, description: Any) -> str:
    """Names a model by what its config says, whichever version wrote it."""
    said = {name: value for name, value in config.to_dict().items()
            if name not in ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")}
    return hashlib.sha256(json.dumps([said, description], sort_keys=True, default=str).encode()).hexdigest()[:16]


def _host_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _device_of(name: str) -> tuple[torch.device, str, dict[str, Any]]:
    """The device, its name, and the software that its times depend on."""
    import transformers
    software: dict[str, Any] = {"torch": torch.__version__, "transformers": transformers.__version__}
    if name == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("--device cuda: PyTorch sees no GPU; run it on a node with one, by srun --gres=gpu:1, or give --device cpu")
        device = torch.device("cuda", 0)
        driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)()
        return device, torch.cuda.get_device_name(device), {**software, "cuda": torch.version.cuda or "", "driver": driver}
    return torch.device("cpu"), _host_name(), {**software, "threads": torch.get_num_threads()}


def _type_of(device_name: str, kind: str) -> str:
    """Returns the name that Slurm most likely gives a GPU: h100 for "NVIDIA H100 80GB HBM3"."""
    if kind == "cpu":
        return "cpu"
    words = re.findall(r"[a-z]+\d+\w*", device_name.lower())
    return words[0] if words else "gpu"


def _written(path: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a table file for other types, if it is of the same model and options."""
    try:
        with open(path) as file:
            value = json.load(file)
        if all(value[name] == table[name] for name in ("swell_table", "model", "options")):
            return [one for one in value["devices"] if one["type"] != table["devices"][0]["type"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _numbers(text: str) -> list[int]:
    return [_positive(one) for one in text.split(",")]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m swell.profile", description="Measure on one device what the parts of a model take in plans over many.")
    parser.add_argument("model", metavar="MODEL", help="a transformers config.json, or a folder with one")
    parser.add_argument("--grid", metavar="FILE", help="run what the plans of this file need, which swell plan --grid --json wrote")
    parser.add_argument("--plan", metavar="FILE", help="run what this plan needs, a JSON file")
    parser.add_argument("--samples", type=_numbers, default=[1], help="without --grid and --plan: samples of a micro-batch, such as 1,2,4 (default: 1)")
    parser.add_argument("--tp", type=_numbers, default=[1], help="without --grid and --plan: tensor parallel degrees, such as 1,2 (default: 1)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument("--type", help="the device's name in Slurm and in swell plan's cluster (default: from the device's own name)")
    parser.add_argument("--time", type=_seconds, default=600.0, metavar="S", help="end after so many seconds with the results so far (default: 600)")
    parser.add_argument("--out", "-o", metavar="TABLE.json", help="file to write (default: MODEL's name with .table.json); other types in it are kept")
    parser.add_argument("--cache", metavar="FOLDER", help="where results are kept for the next table (default: swell/profile in the user's cache)")
    parser.add_argument("--sequence", type=_positive, default=0, help="tokens of a sample (default: 1024, or the model's own limit if smaller)")
    parser.add_argument("--dtype", choices=_DTYPES, default="fp32", help="of the parameters (default: fp32)")
    parser.add_argument("--autocast", choices=_DTYPES, help="what passes compute in (default: the parameters' dtype)")
    parser.add_argument("--optimizer", choices=_OPTIMIZERS, default="adamw")
    parser.add_argument("--recompute", action="store_true", help="layers compute their activations again in the backward pass")
    parser.add_argument("--compile", action="store_true", help="layers run under torch.compile")
    parser.add_argument("--split", action="store_true", help="also measure the backward pass in two, as zero-bubble schedules have it")
    parser.add_argument("--mtp-heads", type=int, default=0, help="further tokens that are predicted, as Engine(mtp_heads=)")
    parser.add_argument("--description", metavar="FILE", help="of a model that transformers does not describe, as Engine(description=)")
    return parser


def _longest_sample(config: Any) -> int:
    return min([1024, *(value for key in ("max_position_embeddings", "n_positions") if isinstance(value := getattr(config, key, None), int) and value > 0)])


def _config_of(folder: str) -> Any:
    """The config of a causal language model, as swell plan --model reads it: of the text part of a model that has others, and with a byte order mark too."""
    from transformers import AutoConfig

    with open(os.path.join(folder, "config.json"), encoding="utf-8-sig") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as copied:       # transformers reads no byte order mark
        with open(os.path.join(copied, "config.json"), "w", encoding="utf-8") as file:
            file.write(text)
        config = AutoConfig.from_pretrained(copied, local_files_only=True)
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(getattr(config, name, None), dict):
            raise ValueError(f"a model_type of \"{config.model_type}\" has no \"{name}\" to transformers; give that part's own members as the config.json")
    return config.get_text_config(decoder=True)


def _divisible(shares: list[Share], skeleton: Skeleton) -> list[Share]:
    """Those of degrees by which the model's heads can be divided. swell plan takes the others from these."""
    for tp in sorted({share.tp for share in shares}):
        try:
            tensor_parallel.check(skeleton.family, skeleton.config, tp)
        except ValueError as error:
            print(f"TP {tp} is left out, and plans that have it take what was measured of the others: {str(error).partition(';')[0]}")
            shares = [share for share in shares if share.tp != tp]
    return shares


def _profile(given: argparse.Namespace) -> int:
    end = time.monotonic() + given.time
    if os.path.basename(given.model) == "config.json" and os.path.isfile(given.model):      # as swell plan --model takes it
        given.model = os.path.dirname(os.path.abspath(given.model))
    if not os.path.isfile(os.path.join(given.model, "config.json")):
        raise ValueError(f"\"{given.model}\" is neither a config.json nor a folder with one, as save_pretrained() writes; other models cannot be profiled yet")
    device, device_name, software = _device_of(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    gpu_type = given.type or _type_of(device_name, device.type)
    config = _config_of(given.model)
    options = alone.Options(given.sequence or _longest_sample(config), _DTYPES[given.dtype], _DTYPES[given.autocast] if given.autocast else None,
                            given.recompute, given.compile, given.split, _OPTIMIZERS[given.optimizer])
    skeleton = Skeleton(config, given.description, options.dtype, given.mtp_heads)
    said: dict[str, Any] = {"sequence": options.sequence, "dtype": given.dtype, "autocast": given.autocast, "recompute": given.recompute, "compile": given.compile,
                            "split": given.split, "optimizer": given.optimizer}
    model = {"name": os.path.basename(os.path.abspath(given.model)), "identity": _identity_of(config, given.description), "layers": skeleton.layers,
             "hidden": int(config.hidden_size), "vocabulary": int(config.vocab_size), "mtp_heads": given.mtp_heads}
    files = [path for path in (given.grid, given.plan) if path]
    if files:
        plans = (plan.with_mtp(given.mtp_heads) for path in files for plan in _plans_in(path, gpu_type, skeleton.layers, given.mtp_heads))
        shares = _divisible(shares_of(plans), skeleton)
    else:
        shares = [Share(unit, samples, tp) for tp in given.tp for samples in given.samples
                  for unit in ["layer", *(["module"] if given.mtp_heads else []), "head", "embedding"]]
    kinds = _layer_kinds(skeleton)
    runs = list(dict.fromkeys(run for share in shares for run in _runs_of(share, kinds, skeleton.layers)))
    cache = given.cache or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "swell", "profile")
    kept = _Kept(cache, {"swell_profile": VERSION, "model": model["identity"], "mtp_heads": given.mtp_heads, "options": said, "software": software, "device": device_name})
    out = given.out or f"{model['name']}.table.json"
    table: dict[str, Any] = {"swell_table": VERSION, "model": model, "options": said,
                             "devices": [{"type": gpu_type, "name": device_name, "software": software, "complete": False, "units": []}]}
    others = _written(out, table)
    results: dict[_Run, dict[str, Any]] = {}

    def write(complete: bool) -> None:
        table["devices"] = [{**table["devices"][0], "complete": complete, "units": _units(shares, results, kinds, skeleton.layers)}, *others]
        _write(out, table)

    began, measured = time.monotonic(), 0
    for number, run in enumerate(runs):
        result, how = kept.get(run), "known"
        if result is None:
            if time.monotonic() >= end:
                break
            how = "measured"
            try:
                result = asdict(alone.measure(skeleton, run.begin, run.begin + run.count, run.samples, run.tp, options, device, end))
                if time.monotonic() < end:      # else it was broken off, and is measured by the next command
                    kept.put(run, result)
            except alone.NoRoomHere as error:
                result = {"why": str(error)}
            measured += 1
        results[run] = result
        left = (time.monotonic() - began) / measured * (len(runs) - number - 1) if measured else 0.0
        print(f"{number + 1} of {len(runs)}  {run}: {_line(result)}, {how}; about {min(left, max(0.0, end - time.monotonic())):.0f} s left", flush=True)
        write(False)
    write(len(results) == len(runs))
    if len(results) < len(runs):
        print(f"time was up before {len(runs) - len(results)} of {len(runs)} runs (--time {given.time:g}); the same command goes on from here")
    print(f"{printable(out)}: {measured} measured, {len(results) - measured} known")
    return 0


def _line(result: Mapping[str, Any]) -> str:
    if "why" in result:
        return f"does not fit: {printable(result['why'])}"
    return (f"forward {result['forward_s'] * 1e3:.3f} ms, backward {result['backward_s'] * 1e3:.3f} ms, optimizer {result['optimizer_s'] * 1e3:.3f} ms, "
            f"keeps {result['kept_bytes'] / 2**20:.1f} MiB, peak {result['peak_bytes'] / 2**20:.1f} MiB")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        return _profile(given)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as problem:      # one sentence, whatever torch or transformers raised
        first = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        print(f"swell.profile: cannot profile {printable(given.model)}: {printable(first)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
