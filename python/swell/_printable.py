# SPDX-License-Identifier: BSD-3-Clause
"""Words that come from files and arguments, as they may be shown on a terminal."""
from __future__ import annotations

import argparse
from typing import NoReturn


def printable(text: object) -> str:
    """The text with its control characters, marks of direction and bytes that are not UTF-8 written as escapes."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(text))


def printable_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


class Parser(argparse.ArgumentParser):
    """One whose errors are printable: argparse repeats unknown arguments as they are."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))
