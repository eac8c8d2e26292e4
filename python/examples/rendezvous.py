# SPDX-License-Identifier: GPL-2.0-or-later
"""Workers meet before they connect to each other, and can still part.

A restart may be asked for while some workers are still importing torch. A worker that left on
its own would keep the others waiting, so the decision is one key in the store of rank 0, which
can be set once: "go" by the last worker to arrive, or "stop" by one that was asked to leave.
Whoever is first decides for all.
"""

import os
import socket
import time
from datetime import timedelta

import torch.distributed as dist

import stop

START_TIMEOUT_S = 300.0     # workers may start this far apart: a cold file cache, a slow node
PARTING_S = 10.0            # asked to leave: wait this long for others who may not know
POLL_S = 0.02


def wait_for_start():
    """Wait for the file that SWELL_START_AFTER names, if set: a launcher lets workers import torch
    while those of the generation before still train. False if asked to leave instead."""
    gate = os.environ.get("SWELL_START_AFTER")
    while gate and not os.path.exists(gate):
        if stop.requested():
            return False
        time.sleep(POLL_S)
    return True


def meet(place):
    """The store that all workers of this generation share, once all are there.

    None if they agreed to leave instead. Raises SystemExit with one line if they cannot meet."""
    deadline = time.monotonic() + START_TIMEOUT_S
    asked_at = None
    hosting = place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    while not hosting and not _listening(place):
        asked_at = asked_at or (time.monotonic() if stop.requested() else None)
        if asked_at and time.monotonic() - asked_at > PARTING_S:
            return None
        if time.monotonic() > deadline:
            raise SystemExit(f"train_gpt: rank {place.rank}: rank 0 does not listen on {place.address}:{place.port} "
                             f"after {START_TIMEOUT_S:.0f} s; see what it says, and check MASTER_ADDR")
        time.sleep(POLL_S)
    try:
        server = dist.TCPStore(place.address, place.port, place.world, hosting,
                               timeout=timedelta(seconds=START_TIMEOUT_S), wait_for_workers=False)
    except RuntimeError as error:
        raise SystemExit(f"train_gpt: rank {place.rank}: cannot {'listen on' if hosting else 'reach'} "
                         f"MASTER_PORT={place.port} of {place.address}; give each generation a free port") from error
    store = dist.PrefixStore(f"swell/{place.generation}", server)

    if store.add("arrived", 1) == place.world:
        store.compare_set("decision", "", "go")
    while not store.check(["decision"]):
        if stop.requested():
            store.compare_set("decision", "", "stop")
        if time.monotonic() > deadline:
            raise SystemExit(f"train_gpt: rank {place.rank}: {store.add('arrived', 0)} of {place.world} workers "
                             f"came within {START_TIMEOUT_S:.0f} s; see what the others say")
        time.sleep(POLL_S)
    if store.get("decision") == b"go":
        return store

    # Rank 0 holds the store: it stays until the others have read the decision.
    store.add("parted", 1)
    deadline = time.monotonic() + PARTING_S
    while hosting and store.add("parted", 0) < place.world and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return None


def _listening(place):
    """Whether rank 0 is up yet; asked here because the store itself waits without hearing signals."""
    try:
        socket.create_connection((place.address, place.port), timeout=2.0).close()
        return True
    except OSError:
        return False
