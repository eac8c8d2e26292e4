# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches who has which GPU, as Slurm itself prints it: one JSON line whenever that changes.

    watch_gpus.py OUTPUT      runs until TERM

Line: {"time": s, "gpus": {"node1:0": job id, ...}, "jobs": {job id: {"name", "state", "parent"}}, "types": {"node1": GPU type, ...}}.
It asks `scontrol`, never Swell, so that a page made of it is a second opinion.
"""
import json
import re
import signal
import subprocess
import sys
import time

ALLOCATION = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
INDICES = re.compile(r"gpu:[^,()]*\(IDX:([0-9,-]+)\)")


def expand(ranges):
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def hosts(expression):
    """node[1-2,4] -> node1 node2 node4"""
    match = re.fullmatch(r"([^\[]*)\[([0-9,-]+)\]", expression)
    return [match[1] + str(i) for i in expand(match[2])] if match else [expression]


def show(what):
    """(the line, its fields) of each job or node."""
    out = subprocess.run(["scontrol", "-o", "-d", "show", what], capture_output=True, text=True, check=False).stdout
    return [(line, dict(word.split("=", 1) for word in line.split(" ") if "=" in word)) for line in out.splitlines()]


def types():
    """The GPU type of each node."""
    found = [(fields.get("NodeName", ""), re.match(r"gpu:([^:,(]+):", fields.get("Gres", ""))) for _, fields in show("node")]
    return {node: match[1] for node, match in found if match}


def look():
    gpus, jobs = {}, {}
    for line, fields in show("job"):
        if "JobId" not in fields:
            continue
        parent = re.search(r"swell\[parent=(\d+) ", line)
        job = int(fields["JobId"])
        jobs[job] = {"name": fields.get("JobName", ""), "state": fields.get("JobState", ""),
                     "parent": int(parent[1]) if parent else 0}
        if fields.get("JobState") not in ("RUNNING", "SUSPENDED", "COMPLETING"):
            continue
        for nodes, gres in ALLOCATION.findall(line):
            for indices in INDICES.findall(gres):
                for node in hosts(nodes):
                    gpus.update({f"{node}:{i}": job for i in expand(indices)})
    return gpus, jobs


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    before, kinds = None, types()
    with open(sys.argv[1], "a", encoding="utf-8") as output:
        while True:
            now = time.time()
            seen = look()
            if seen != before:
                before = seen
                print(json.dumps({"time": round(now, 3), "gpus": seen[0], "jobs": seen[1], "types": kinds}), file=output, flush=True)
            time.sleep(0.25)


main()
