# SPDX-License-Identifier: GPL-2.0-or-later
"""A job is one run of W&B, TensorBoard or MLflow, whatever resizes, kills and requeues it: their offline modes, as docs/scripts.md has them used."""

import glob
import os
import struct

import pytest

from forked import Run
from tracked import JOB

STEPS = 14


def of_wandb(folder):
    """The steps' losses, in the order of the starts; every file is of one run, which `wandb sync` makes one of."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found, files = [], sorted(glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb")), key=os.path.getctime)
    for name in files:
        runs = set()
        for data in records(name):
            record = proto.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                runs.add(record.run.run_id)
            if record.HasField("history"):
                values = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                found.append((int(values["_step"]), float(values["loss"])))
        assert runs == {JOB}, (name, runs)
    assert files
    return found


def records(name):
    """The content of a .wandb file: a log as LevelDB's, in blocks of 32 KiB, behind a header of 7 bytes; the last record of a killed worker may be cut off."""
    with open(name, "rb") as file:
        text = file.read()
    at, part = 7, b""
    while at + 7 <= len(text):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", text[at + 4:at + 7])
        part += text[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):      # whole, or the last part
            if at <= len(text):
                yield part
            part = b""


def of_tensorboard(folder):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    [run] = os.listdir(os.path.join(folder, "runs"))
    assert run == JOB
    read = events.EventAccumulator(os.path.join(folder, "runs", run), size_guidance={events.SCALARS: 0})
    read.Reload()
    found = [(event.step, event.value) for event in read.Scalars("loss")]
    assert len(found) == STEPS, "a step that was made again stands there once"
    return found


def of_mlflow(folder):
    mlflow = pytest.importorskip("mlflow")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = mlflow.MlflowClient(f"file://{os.path.abspath(os.path.join(folder, 'mlruns'))}")
    [run] = client.search_runs(["0"])
    assert run.info.run_name == JOB and run.info.status == "FINISHED"
    return [(each.step, each.value) for each in sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda each: each.timestamp)]


TRACKERS = {"wandb": of_wandb, "tensorboard": of_tensorboard, "mlflow": of_mlflow}


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_job_is_one_run_of_its_tracker_over_resizes_kills_and_requeues(runs, tracker):
    pytest.importorskip(tracker)
    run = runs(Run, tracker, "tracked", tracker, steps=STEPS)
    run.start(1).reach(6)
    if tracker == "wandb":      # which, offline, has written nothing yet when it is killed
        run.ask().leave_well()
    else:
        assert run.kill(0).leave() == [-9]      # after the checkpoint of step 4: steps 5 and 6 are made again
    run.start(2).reach(9).ask().leave_well()
    run.fast().start(1).leave_well()        # as a requeue does: the job's number stays
    assert [line["generation"] for line in run.lines() if line["step"] == 5] == [0, 1][:1 + (tracker != "wandb")], "a step was made again"
    last = dict(TRACKERS[tracker](run.folder))
    assert sorted(last) == list(range(1, STEPS + 1))
    assert last == pytest.approx(run.curve(), rel=1e-6)
