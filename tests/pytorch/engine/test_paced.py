# SPDX-License-Identifier: GPL-2.0-or-later
"""Paced host devices, and what the profiler sees of the engine without the user's help."""

import os
import sys
import time

import models
import pool
import pytest
import torch

from swell.engine import Engine, Group, Plan, Stage
from swell.engine.paced import device_of, parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import bent  # noqa: E402
from native import needs_library, needs_live_host  # noqa: E402

# A step of two stages takes 0.3 s or more: what else the machine does changes that little.
PACED = "fast:0.0001tflops:memory=1GB/s:link=1GB/s:network=1GB/s,slow:0.00005tflops:memory=1GB/s:link=1GB/s:network=1GB/s"


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def trained(rank, plan, paced, steps, with_profile, vocabulary=models.VOCABULARY, order=None):
    os.environ.pop("SWELL_PACED", None)
    if paced:
        os.environ["SWELL_PACED"] = paced
    config = models.CONFIGS["llama"]()
    config.vocab_size = vocabulary
    engine = Engine(config, adamw, global_batch=models.BATCH, plan=plan, profile=with_profile, schedule=order)
    losses, took = [], []
    for step in range(steps):
        began = time.monotonic()
        losses.append(engine.step(models.batch(seed=step)))
        took.append(time.monotonic() - began)
    work = engine._generation.work() if paced else None
    late = paced and engine._generation.regions.late_s > 0.01 * sum(took)
    return losses, min(took), work, engine.profile(), engine._observer.role, late


def test_an_entry_states_speed_and_what_else_it_wants():
    fast, slow = parse("h100:0.02tflops,a100:0.01tflops:link=2MB/s:network=500kB/s@n2")
    assert fast.flops == pytest.approx(2e10) and slow.flops == pytest.approx(1e10)
    assert slow.link == 2e6 and slow.network == 5e5 and slow.node == "n2"
    assert fast.memory / fast.flops == pytest.approx(slow.memory / slow.flops), "not stated: as an H100's stands to its speed"


@pytest.mark.parametrize("text", ["h100", "h100:fast", "h100:-1tflops", "h100:0.1tflops:disk=1GB/s", "h100:0.1tflops,", "h100:0.1tflops:link=0MB/s"])
def test_an_entry_that_says_nothing_is_refused_with_its_words(text):
    with pytest.raises(ValueError, match="SWELL_PACED"):
        parse(text)


def test_a_worker_is_of_the_type_that_its_plan_or_its_node_says():
    devices = parse("a:0.1tflops,b:0.2tflops,c:0.3tflops@n3")
    plan = Plan(1, (Stage(1, 1, tuple(Group("n1", kind, (gpu,), 1) for gpu, kind in enumerate(("b", "", "a")))),))
    assert [device_of(devices, plan, place, "n1").name for place in plan.places] == ["b", "a", "a"]
    assert [device_of(devices, plan, place, "n3").name for place in plan.places] == ["b", "c", "a"]
    with pytest.raises(ValueError, match="no accelerator for node n1"):
        device_of(devices[2:], plan, plan.places[1], "n1")


def test_parts_take_what_is_stated_and_the_result_is_the_same(tmp_path):
    models.model(models.CONFIGS["llama"]())
    plan = Plan(6, (Stage(2, 1, (Group("n1", "fast", (0,), 2),)), Stage(2, 1, (Group("n2", "slow", (0,), 2),))))
    plain, paced = pool.run(tmp_path / "pool", [(2, trained, (plan, None, 3, False)), (2, trained, (plan, PACED, 3, False))])
    assert paced[0][0] == plain[0][0]
    work = paced[1][2]
    slowest = 12 * 3 * (work.layers + work.head) / 0.00005e12      # of the second stage: all samples, forward and backward
    assert paced[0][1] >= slowest, "a step was faster than its slowest stage"


@needs_library
def test_the_profile_of_the_engine_is_stable_within_20_steps(tmp_path):
    models.model(models.CONFIGS["llama"]())
    plan = Plan(2, (Stage(4, 1, (Group("n1", "fast", (0,), 6),)),))
    slow = "fast:0.0001tflops:memory=20MB/s:link=1GB/s"       # each part takes 0.05 s or more: what else the machine does changes that little
    for attempt in range(4):
        ((_, _, work, times, role, late),), = pool.run(tmp_path / f"pool{attempt}", [(1, trained, (plan, slow, 20, True, 1024))])
        if times is not None and times.stable:
            break
    assert times is not None and times.micro_batches == 2
    assert times.backward_s > times.forward_s > times.forward_head_s > 0 and times.backward_head_s > times.forward_head_s
    assert times.forward_s >= 0.99 * 6 * (work.layers + work.head) / 0.0001e12
    assert role["whole"] > 2 and role["peak_bytes"] > 0
    if not times.stable and (late or os.getloadavg()[0] > 2 * (os.cpu_count() or 1)):
        pytest.skip("true computation took longer than was stated: this machine is too busy to see whether times are stable")
    assert times.stable


@needs_library
def test_chunks_and_weight_gradients_take_what_is_stated_and_are_profiled_as_whole_passes(tmp_path):
    models.model(models.CONFIGS["llama"]())
    plan = Plan(2, (Stage(4, 1, (Group("n1", "fast", (0,), 6),), (2, 1, 3)),))
    stated = "fast:0.0002tflops:memory=1GB/s:link=1GB/s"
    ((_, least, work, times, role, _),), = pool.run(tmp_path / "pool", [(1, trained, (plan, stated, 8, True, 1024, "zero-bubble"))])
    forward = 6 * (work.layers + work.head) / 0.0002e12
    assert work.shares == (0.25, 0.25, 0.5) and work.head_chunk == 2
    assert least >= 0.99 * 2 * 3 * forward, "a step was faster than its passes"
    assert times.micro_batches == 2 and times.forward_s >= 0.99 * forward and times.backward_s >= 0.99 * 2 * forward
    assert 2 * (times.forward_s + times.backward_s) < 1.05 * times.step_s, "a pass counts twice"
    assert role["whole"] > 2 and role["peak_bytes"] > 0


def bent_profile(rank, plan, slow):
    os.environ["SWELL_PACED"] = f"{bent.TYPE}:0.001tflops:memory=1GB/s:link=1GB/s:network=1GB/s"
    bent.BentGeneration.slow = slow
    engine = bent.BentEngine(models.CONFIGS["llama"](), adamw, global_batch=models.BATCH, plan=plan, profile=True)
    for step in range(6):
        engine.step(models.batch(seed=step))
    return engine.profile()


def test_a_table_is_read_between_the_samples_that_it_has_and_not_beyond():
    one, two, four = (bent.seconds(bent.LAYER, 2, samples) for samples in bent.SAMPLES)
    assert (one, two, four) == pytest.approx((3.402e-3, 4.630e-3, 6.222e-3))
    assert bent.seconds(bent.LAYER, 2, 3) == pytest.approx((two + four) / 2)
    with pytest.raises(ValueError, match="6 samples"):
        bent.seconds(bent.LAYER, 2, 6)


@needs_live_host
def test_passes_of_a_table_take_their_time_on_the_device_and_their_launch_on_the_host(tmp_path):
    models.model(models.CONFIGS["llama"]())
    plan, slow = Plan(3, (Stage(4, 1, (Group("n1", bent.TYPE, (0,), 4),)),)), 6
    ((times,),) = pool.run(tmp_path / "pool", [(1, bent_profile, (plan, slow))])
    layer, head = bent.seconds(bent.LAYER, 1, 4) / 4, bent.seconds(bent.HEAD, 1, 4) / 3
    forward = slow * (4 * layer + head)
    # A region's begin may be recorded late where the processors are busy.
    assert times.forward_s >= 0.9 * forward and times.backward_s >= 0.9 * 2 * forward
    assert times.forward_head_s >= 0.9 * slow * head
    # The profile has the launch from the host's clock: nobody states it.
    assert times.layer_launch_s >= 0.9 * slow * bent.LAUNCH_S
    assert times.layer_launch_s < times.forward_s / 4, "the host waits for the device within a region"
