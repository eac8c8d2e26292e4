# SPDX-License-Identifier: BSD-3-Clause
"""python -m swell.graph MODEL: exports the operators of a model, with what each costs, for swell plan --model.

MODEL is a folder with a transformers config.json, or module:function, where the function returns a model and its example
inputs: (module, dict) or (module, tuple). torch.export traces it on the meta device, so that no memory is needed for the
weights, and torch's own autograd says what each operator keeps for the backward pass.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Interpreter, Node

from swell._printable import Parser, printable

__all__ = ["VERSION", "export", "graph_of", "main", "transformers_model"]

VERSION = 1
SAMPLES = 2     # traced; the amounts that are written are those of one
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_LONGEST_BLOCK = 4096   # operators of a repeated block

_LINEAR = {"linear", "addmm", "mm", "matmul", "bmm", "baddbmm", "_grouped_mm", "_scaled_mm"}
_ATTENTION = {"scaled_dot_product_attention"}
_NORMS = {"layer_norm", "native_layer_norm", "rms_norm", "batch_norm", "_native_batch_norm_legit_functional", "group_norm", "softmax", "_softmax"}
_LOSSES = {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax", "mse_loss"}
_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution"}
_WHOLE = {"topk", "sort"}     # need all columns, so that a group gathers them
_KEYS = ("flop", "read_bytes", "write_bytes", "weight_bytes", "parameters", "shared_parameters", "kept_split_bytes", "kept_whole_bytes")


@dataclass
class _Operator:
    name: str
    kind: str
    inputs: list[int]
    split: dict[str, int]
    shape: tuple[Any, ...]      # of what it reads and writes, to find repeats
    costs: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_KEYS, 0.0))

    def key(self) -> tuple[Any, ...]:
        costs = self.costs
        return (self.kind, self.shape, costs["flop"], costs["parameters"], costs["shared_parameters"])


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes of the elements that a view reads; repeated ones of an expanded view count once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _tensors(one)]
    return []


def _flop(name: str, tensors: Sequence[torch.Tensor], out: torch.Tensor) -> float:
    """Operations of products; all others take the time of their bytes."""
    if name in _ATTENTION:
        query, key, value = tensors[:3]
        return 2.0 * query.shape[:-2].numel() * query.shape[-2] * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    if name in _CONVOLUTIONS:
        return 2.0 * out.numel() * tensors[1].shape[1:].numel()
    if name == "linear":
        return 2.0 * out.numel() * tensors[1].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2.0 * out.numel() * tensors[1].shape[-1]
    if name in _LINEAR:
        return 2.0 * out.numel() * tensors[0].shape[-1]
    return 0.0


class _Recorder(Interpreter):
    """Runs the exported graph on the meta device and makes an operator of each node that moves bytes."""

    def __init__(self, module: torch.fx.GraphModule, samples: int, names: dict[str, str]) -> None:
        super().__init__(module)
        self.samples, self.names = samples, names
        self.operators: list[_Operator] = []
        self.source: dict[int, set[int]] = {}       # storage: operators whose output it is
        self.extent: dict[int, int] = {}            # storage that a TP group divides: of what
        self.follows_input: set[int] = set()        # storages that depend on the samples
        self.parameters: dict[int, int] = {}        # storage: elements
        self.counted: set[int] = set()              # parameters that an operator has
        self.kept: set[int] = set()
        self.alive: list[torch.Tensor] = []         # a storage's address is not given to another one
        self.saved: list[torch.Tensor] = []

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().placeholder(target, args, kwargs)
        if isinstance(value, torch.nn.Parameter):
            self.parameters[_storage(value)] = value.numel()
        elif isinstance(value, torch.Tensor) and target not in self.names:
            self.follows_input.add(_storage(value))
            self.extent[_storage(value)] = 0
        return value

    def run_node(self, node: Node) -> Any:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        inputs = _tensors(args) + _tensors(list(kwargs.values()))
        name = node.target._schema.name.split("::")[1]
        self.saved = []
        with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor):
            out = self._attend(args, kwargs) if name in _ATTENTION else super().run_node(node)
        outputs = _tensors(out)
        self.alive += outputs
        if not outputs:
            return out
        held = {_storage(tensor) for tensor in inputs}
        if all(_storage(tensor) in held for tensor in outputs) and not name.endswith("_"):
            return out      # a view
        self._record(node, name, inputs, outputs)
        return out

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self.saved.append(tensor)
        return tensor

    def _attend(self, args: Any, kwargs: Any) -> torch.Tensor:
        """As a fused kernel: it keeps what it reads and writes, and no scores."""
        query, key, value = args[:3]
        out = torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device="meta", requires_grad=query.requires_grad)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device="meta")
        self.alive.append(sums)
        self.saved += [query, key, value, out, sums]
        return out

    def _record(self, node: Node, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        out, index = outputs[0], len(self.operators)
        weights = [tensor for tensor in inputs if _storage(tensor) in self.parameters]
        read = {_storage(tensor): tensor for tensor in inputs if _storage(tensor) not in self.parameters}
        has_input = bool(self.follows_input.intersection(read))
        extent = max((self.extent.get(storage, 0) for storage in read), default=0)
        reads_split = extent > 0
        weight = max(weights, key=torch.Tensor.numel) if weights else None
        kind = ("attention" if name in _ATTENTION else "convolution" if name in _CONVOLUTIONS else "matmul" if name in _LINEAR else
                "embedding" if name == "embedding" else "loss" if name in _LOSSES else "norm" if name in _NORMS else "elementwise")

        split: dict[str, int] = {}
        # A sum of a whole and a divided part, such as a residual, is whole behind its all-reduce.
        writes_split = reads_split and name not in _WHOLE and all(
            self.extent.get(storage, 0) > 0 for storage, tensor in read.items() if tensor.numel() == out.numel())
        if has_input and out.dim() > 0 and out.shape[0] % self.samples == 0:
            split["samples"] = self.samples
        if kind == "attention":
            split["heads"], writes_split = int(inputs[0].shape[1] if inputs[0].dim() > 3 else inputs[0].shape[0]), True
        elif weight is not None and weight.dim() == 3 and kind == "matmul":     # a matrix for each expert
            split["experts"], split["columns"] = int(weight.shape[0]), int(weight.shape[1 if reads_split else 2])
            writes_split = not reads_split
        elif weight is not None and kind in ("matmul", "convolution"):
            is_turned = name in ("linear", *_CONVOLUTIONS)
            rows, columns = (weight.shape[1], weight.shape[0]) if is_turned else (weight.shape[0], weight.shape[1])
            split["columns"], writes_split = int(rows if reads_split else columns), not reads_split
        elif kind == "embedding" and weight is not None:
            split["columns"], writes_split = int(weight.shape[1]), False
        elif kind == "loss":
            writes_split = False
            split.update({"columns": extent} if reads_split else {})
        elif writes_split:
            split["columns"] = extent
        split = {along: extent for along, extent in split.items() if extent > 1}

        stack = list(node.meta.get("nn_module_stack", {}).values())
        operator = _Operator(f"{stack[-1][0] if stack else ''}:{name}".lstrip(":"), kind,
                             sorted({made for storage in read for made in self.source.get(storage, set())}), split,
                             (name, *((tuple(tensor.shape), str(tensor.dtype)) for tensor in [*inputs, *outputs])))
        costs = operator.costs
        costs["flop"] = _flop(name, inputs, out) / self.samples
        reads_rows = kind == "embedding"    # an embedding reads one row of its matrix for each token, not the whole matrix
        costs["read_bytes"] = sum(map(_bytes, read.values())) / self.samples + (_bytes(out) / self.samples if reads_rows else 0)
        costs["write_bytes"] = sum(map(_bytes, outputs)) / self.samples
        for one in {_storage(tensor): tensor for tensor in weights}.values():
            storage = _storage(one)
            costs["shared_parameters" if storage in self.counted else "parameters"] += self.parameters[storage]
            costs["weight_bytes"] += 0 if reads_rows else self.parameters[storage] * one.element_size()
            self.counted.add(storage)
        for tensor in outputs:
            storage = _storage(tensor)
            self.source[storage] = {index}
            self.extent[storage] = next((split[along] for along in ("heads", "columns", "experts") if along in split), 0) if writes_split else 0
            if has_input:
                self.follows_input.add(storage)
        for tensor in self.saved:
            storage = _storage(tensor)
            if storage in self.kept or storage in self.parameters:
                continue
            self.kept.add(storage)
            is_split = self.extent.get(storage, int(writes_split)) > 0
            costs["kept_split_bytes" if is_split else "kept_whole_bytes"] += tensor.untyped_storage().nbytes() / self.samples
        self.operators.append(operator)


def _fold(operators: list[_Operator]) -> tuple[list[_Operator], list[dict[str, int]]]:
    """The operators with each block that repeats itself once, and those repeats: the largest ones first, then around them."""
    numbers: dict[tuple[Any, ...], int] = {}
    keys = [numbers.setdefault(operator.key(), len(numbers)) for operator in operators]

    def best(begin: int, end: int) -> tuple[int, int, int]:
        found = (begin, 0, 1)       # first, length of a block, times
        for length in range(1, min(_LONGEST_BLOCK, (end - begin) // 2) + 1):
            run = 0
            for i in range(begin, end - length + 1):
                if i < end - length and keys[i] == keys[i + length]:
                    run += 1
                    continue
                times = run // length + 1
                if (times - 1) * length > (found[2] - 1) * found[1]:
                    found = (i - run, length, times)
                run = 0
        return found

    pieces: list[tuple[int, int, int]] = []

    def look(begin: int, end: int) -> None:
        first, length, times = best(begin, end)
        if times < 2 or length < 2:
            pieces.extend((i, 1, 1) for i in range(begin, end))
            return
        look(begin, first)
        pieces.append((first, length, times))
        look(first + length * times, end)

    look(0, len(operators))
    made: list[_Operator] = []
    repeats: list[dict[str, int]] = []
    place: dict[int, int] = {}      # of an operator: where it stands when folded
    for first, length, times in pieces:
        if times > 1:
            repeats.append({"first": len(made), "operators": length, "times": times})
        for i in range(first, first + length):
            one = operators[i]
            for again in range(times):
                place[i + again * length] = len(made)
                if again:
                    for name in _KEYS:
                        one.costs[name] += operators[i + again * length].costs[name]
            one.split = operators[i + (times - 1) * length].split   # the first block may read what is not divided yet
            one.costs = {name: cost / times for name, cost in one.costs.items()}
            one.inputs = sorted({place[made_by] for made_by in one.inputs})
            made.append(one)
    return made, repeats


def graph_of(program: torch.export.ExportedProgram, name: str, samples: int, sequence: int = 1, global_batch: int = 256) -> dict[str, Any]:
    """The graph of an exported program that was traced with this many samples, as swell plan reads it."""
    signature = program.graph_signature
    given = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    values: list[Any] = []
    example = iter(torch.utils._pytree.tree_leaves(program.example_inputs))
    shared: dict[int, Any] = {}

    def on_meta(tensor: torch.Tensor, is_parameter: bool) -> torch.Tensor:
        meta = tensor.detach().to("meta")
        return torch.nn.Parameter(meta) if is_parameter and meta.is_floating_point() else meta

    for spec in signature.input_specs:
        if spec.arg.name not in given:
            value = next(example)
            values.append(value.to("meta") if isinstance(value, torch.Tensor) else value)
            continue
        tensor = program.state_dict.get(given[spec.arg.name], program.constants.get(given[spec.arg.name]))
        assert tensor is not None, spec.arg.name
        made = shared.setdefault(id(tensor), on_meta(tensor, spec.arg.name in signature.inputs_to_parameters))
        values.append(made)
    recorder = _Recorder(program.graph_module, samples, given)
    with torch.enable_grad():
        recorder.run(*values)
    operators, repeats = _fold(recorder.operators)
    times = [1] * len(operators)
    for repeat in repeats:
        for i in range(repeat["first"], repeat["first"] + repeat["operators"]):
            times[i] = repeat["times"]
    dtypes = [value.element_size() for value in values if isinstance(value, torch.nn.Parameter)]
    return {
        "swell_graph": VERSION, "name": name, "sequence": sequence, "global_batch": global_batch,
        "parameter_bytes": max(set(dtypes), key=dtypes.count) if dtypes else 2,
        "parameters": sum(one.costs["parameters"] * count for one, count in zip(operators, times)),
        "forward_flop": sum(one.costs["flop"] * count for one, count in zip(operators, times)),
        "operators": [{"name": one.name[:256], "kind": one.kind, "inputs": one.inputs, **one.costs, "split": one.split} for one in operators],
        "repeats": repeats,
    }


def transformers_model(path: str, sequence: int, dtype: torch.dtype) -> tuple[torch.nn.Module, dict[str, Any], str]:
    """A model of a folder's config.json on the meta device, its inputs and its name."""
    import transformers
    from transformers.models.auto import modeling_auto

    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    is_masked = type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)
    kind = transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModelForCausalLM
    options = {"experts_implementation": "grouped_mm"} if any(hasattr(config, key) for key in ("num_local_experts", "num_experts")) else {}
    with torch.device("meta"):
        module = kind.from_config(config, dtype=dtype, **options)
        ids = torch.zeros(SAMPLES, sequence, dtype=torch.long)
    inputs: dict[str, Any] = {"input_ids": ids, "labels": ids.clone()}
    if not is_masked:
        inputs["use_cache"] = False
    return module, inputs, os.path.basename(os.path.abspath(path))


def export(module: torch.nn.Module, inputs: dict[str, Any] | Sequence[Any]) -> torch.export.ExportedProgram:
    """Traces a model in training mode; the inputs are those of SAMPLES samples."""
    arguments, names = ((), dict(inputs)) if isinstance(inputs, dict) else (tuple(inputs), {})
    with torch.device("meta"):
        return torch.export.export(module.train(), arguments, names, strict=False)


def _function_of(text: str) -> Callable[[], Any]:
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise ValueError(f"module {module} has no function {name}")
    return found    # type: ignore[no-any-return]


def _checked(name: str, made: Any) -> tuple[torch.nn.Module, Any]:
    """Returns the result of a user's function if it is a model with inputs of SAMPLES samples."""
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module) and isinstance(made[1], (tuple, list, dict))):
        raise ValueError(f"{name}() returned a {type(made).__name__}; it must return (model, inputs), with inputs as tuple or dict")
    inputs = made[1].values() if isinstance(made[1], dict) else made[1]
    for tensor in _tensors(list(inputs)):
        if tensor.dim() == 0 or tensor.shape[0] != SAMPLES:
            raise ValueError(f"an input of {name}() has the shape {list(tensor.shape)}; its first dimension must be {SAMPLES} samples")
    return made


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m swell.graph", description="Export a model's operators and their costs for swell plan --model.")
    parser.add_argument("model", metavar="MODEL", help="a folder with a transformers config.json, or module:function, which returns "
                        f"(model, inputs of {SAMPLES} samples)")
    parser.add_argument("--sequence", type=_positive, default=0, help="tokens of one sample (default: 1024, or the model's own limit if smaller)")
    parser.add_argument("--global-batch", type=_positive, default=256, help="samples of one step")
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16", help="of a transformers model's parameters")
    parser.add_argument("--output", "-o", default="-", help="file to write (default: standard output)")
    parser.add_argument("--program", metavar="FILE", help="also write the exported program there, for torch.export.load()")
    options = parser.parse_args(arguments)
    try:
        if os.path.isdir(options.model):
            sequence = options.sequence or 1024
            if not options.sequence:
                with open(os.path.join(options.model, "config.json")) as file:
                    written = json.load(file)
                sequence = min([sequence, *(value for key in ("max_position_embeddings", "n_positions")
                                            if isinstance(value := written.get(key), int) and value > 0)])
            module, inputs, name = transformers_model(options.model, sequence, _DTYPES[options.dtype])
        elif ":" in options.model:
            sequence, name = options.sequence or 1, options.model.partition(":")[2]
            module, inputs = _checked(name, _function_of(options.model)())
        else:
            raise ValueError(f"\"{options.model}\" is neither a folder with a config.json nor module:function")
        program = export(module, inputs)
        graph = graph_of(program, name, SAMPLES, sequence, options.global_batch)
        if options.program:
            torch.export.save(program, options.program)
        text = json.dumps(graph, indent=1) + "\n"
        if options.output == "-":
            sys.stdout.write(text)
        else:
            with open(options.output + ".new", "w") as file:
                file.write(text)
            os.replace(options.output + ".new", options.output)
    except Exception as problem:    # one sentence, whatever torch or the user's function raised
        first = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        print(f"swell.graph: cannot export {printable(options.model)}: {printable(first)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
