# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of docs/scripts.md that no other test holds."""

import sys
import types

import pytest

from forked import apart

transformers = pytest.importorskip("transformers")


class Place:
    """Where a worker stands, as Accelerate's state says it: the second worker of a run, the first of its allocation on the host."""

    process_index, local_process_index, num_processes = 1, 0, 2


def logs(monkeypatch, **options):
    arguments = transformers.TrainingArguments(output_dir="unused", use_cpu=True, report_to=[], **options)
    monkeypatch.setattr(arguments, "distributed_state", Place(), raising=False)
    return arguments.should_log


@apart      # TrainingArguments make Accelerate's state, which later jobs must not find
def test_one_worker_of_a_host_logs_without_log_on_each_node(monkeypatch):
    assert logs(monkeypatch), "by default each worker with LOCAL_RANK 0 logs"
    assert not logs(monkeypatch, log_on_each_node=False)


@apart
def test_TensorBoard_of_the_Trainer_writes_to_the_folder_of_the_environment(monkeypatch, tmp_path):
    from transformers.integrations import TensorBoardCallback, integration_utils

    class Writer:
        made = []

        def __init__(self, log_dir):
            self.made.append(log_dir)

        def add_text(self, *_):
            pass
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Writer))     # where there is no TensorBoard
    monkeypatch.setattr(integration_utils, "is_tensorboard_available", lambda: True)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "runs"))
    for _ in range(2):      # two starts of a job
        callback = TensorBoardCallback()
        callback._SummaryWriter = Writer
        callback.on_train_begin(transformers.TrainingArguments(output_dir="unused", use_cpu=True, report_to=[]), transformers.TrainerState(is_world_process_zero=True), None)
    assert Writer.made == [str(tmp_path / "runs")] * 2
