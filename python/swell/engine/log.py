# SPDX-License-Identifier: BSD-3-Clause
"""One line of JSON a step: loss, speed, and under which plan."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from swell.engine.skeleton import Skeleton

__all__ = ["Log", "check", "flops_of_a_token", "forward_flops_of_a_token"]


def forward_flops_of_a_token(skeleton: Skeleton, length: int) -> tuple[float, float]:
    """Floating point operations of a forward pass: all layers', and the output projection's.

    2 a weight that multiplies, and attention's 4 a layer, token and feature. Embeddings are looked up, not multiplied; of experts
    those count that a token goes to.
    """
    config, in_layers, in_head = skeleton.config, 0.0, 0.0
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    share = float(config.num_experts_per_tok) / float(experts) if experts else 1.0
    for name, one in skeleton.parameters.items():
        if len(one.shape) < 2:
            continue
        count = 1.0
        for size in one.shape:
            count *= size
        if skeleton.layer_of(name) is not None:
            in_layers += count * (share if ".experts." in name else 1.0)
        elif name.startswith(skeleton.head_path + ".") or name in skeleton.tied.values():
            in_head += count
    return 2.0 * in_layers + 4.0 * skeleton.layers * int(config.hidden_size) * length, 2.0 * in_head


def flops_of_a_token(skeleton: Skeleton, length: int) -> float:
    """Floating point operations of forward and backward: three times those of a forward pass."""
    layers, head = forward_flops_of_a_token(skeleton, length)
    width = int(skeleton.config.hidden_size)
    mtp = skeleton.mtp_heads * (layers / skeleton.layers + 2.0 * 2 * width * width + head)
    return 3.0 * (layers + head + mtp)


def check(path: str | os.PathLike[str]) -> None:
    """Raises ValueError where no line can be appended to the file."""
    try:
        with open(path, "a"):
            pass
    except OSError as error:
        folder = os.path.dirname(os.fspath(path)) or "."
        remedy = f"make the folder {folder}" if not os.path.isdir(folder) else "give a file that this user may write"
        raise ValueError(f"log={os.fspath(path)!r} cannot be written ({error.strerror}); {remedy}, or leave log= out") from error


class Log:
    """Appends to a file, or writes nowhere.

    peak_flops: of one accelerator, for the utilisation; None: it is left out.
    """

    def __init__(self, path: str | os.PathLike[str] | None, peak_flops: float | None, workers: int, constant: dict[str, Any]) -> None:
        self._file = open(path, "a", buffering=1) if path is not None else None
        self._peak, self._workers, self._constant = peak_flops, workers, constant
        self.writes = path is not None
        self._since = time.monotonic()

    def begin(self) -> None:
        """A step begins; the time before is nobody's."""
        self._since = time.monotonic()

    def step(self, step: int, loss: float, tokens: int, flops: float, **more: Any) -> None:
        """A step has ended. tokens: trained on in it; flops: of one token."""
        if self._file is None:
            return
        took = time.monotonic() - self._since
        line = {"step": step, "time": round(time.time(), 3), "loss": loss, "step_s": round(took, 6), "tokens_per_s": round(tokens / took, 3), **more, **self._constant}
        if self._peak is not None:
            line["mfu"] = round(flops * tokens / took / self._workers / self._peak, 6)
        self._file.write(json.dumps(line) + "\n")
