# SPDX-License-Identifier: GPL-2.0-or-later
"""Pieces of this machine's texts, as python/examples/train_gpt.py finds them."""
import functools
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python", "examples"))

import text  # noqa: E402


@functools.cache
def all_bytes(length):
    """Bytes [n] of the texts: more than length of them."""
    return torch.frombuffer(bytearray(text.load(None, length)), dtype=torch.uint8).long()


def batch(seed, step, count, length):
    """Samples [count, length] of a step: by seed and step alone."""
    data = all_bytes(length)
    return torch.stack([data[begin:begin + length] for begin in text.samples(seed, step, count, len(data) - length)])
