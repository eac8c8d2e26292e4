# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands of the package on a terminal: names of files and arguments, and what is in files, cannot control it."""

import importlib

import pytest

from swell._printable import printable, printable_lines

CONTROLS = "\x1b[31m\x1b]0;title\x07\rJob 1: all is well\x9b2J\u202etxt\x7f\udc9b"


def shown(capsys):
    said = "".join(capsys.readouterr())
    assert all(line.isprintable() for line in said.split("\n")), ascii(said)
    return said


@pytest.mark.parametrize("command", ["check", "graph", "profile"])
def test_a_name_of_a_file_is_printed_printable(command, capsys, tmp_path):
    name = str(tmp_path / CONTROLS)
    assert importlib.import_module(f"swell.{command}").main([name]) != 0
    assert "\\x1b]0;title\\x07" in shown(capsys)


@pytest.mark.parametrize("command", ["graph", "profile"])
def test_an_unknown_argument_is_printed_printable(command, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"swell.{command}").main(["model", f"--{CONTROLS}"])
    assert "\\x1b]0;title" in shown(capsys)


def test_what_a_script_says_is_printed_printable(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"raise SystemExit({CONTROLS[:-1]!r})\n")
    assert importlib.import_module("swell.check").main(["--patience", "20", str(script)]) != 0
    shown(capsys)


def test_printable_text_stays_as_it_is():
    assert printable("Größe 模型 é 😀") == "Größe 模型 é 😀"
    assert printable_lines("a\n\x1b") == "a\n\\x1b"
