# SPDX-License-Identifier: GPL-2.0-or-later
import os
import sys

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(TOP, "contrib", "pytorch"))
sys.path.insert(0, os.path.join(TOP, "tests", "pytorch"))
os.environ["PYTHONPATH"] = os.path.join(TOP, "contrib", "pytorch")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: only with package_test.sh --all")
