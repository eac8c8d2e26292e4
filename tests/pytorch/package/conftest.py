# SPDX-License-Identifier: GPL-2.0-or-later
import os
import sys

import pytest

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(TOP, "python"))
sys.path.insert(0, os.path.join(TOP, "tests", "pytorch"))
os.environ["PYTHONPATH"] = os.path.join(TOP, "python")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: only with package_test.sh --all")


@pytest.fixture
def runs(tmp_path):
    """Makes runs, run(kind, name, ...) in a folder of each; they are ended with the test."""
    made = []

    def run(kind, name, *arguments, **options):
        made.append(kind(tmp_path / name, *arguments, **options))
        return made[-1]
    yield run
    for each in made:
        each.end()
