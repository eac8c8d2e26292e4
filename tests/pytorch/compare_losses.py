# SPDX-License-Identifier: GPL-2.0-or-later
"""compare_losses.py REFERENCE LOSSES STEPS: each step is there once, with the reference's loss within 1e-5."""

import json
import sys


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def main(reference_path, path, steps, tolerance=1e-5):
    reference = {line["step"]: line["loss"] for line in lines(reference_path)}
    found = lines(path)
    expected = list(range(1, int(steps) + 1))
    if sorted(reference) != expected:
        sys.exit(f"the reference has steps {sorted(reference)[:1]} to {sorted(reference)[-1:]}")
    if [line["step"] for line in found] != expected:
        again = [b["step"] for a, b in zip(found, found[1:]) if b["step"] != a["step"] + 1]
        sys.exit(f"a step is missing or was trained twice: before {again}, last {found[-1]['step']}")
    worlds = [line["world"] for at, line in enumerate(found) if at == 0 or found[at - 1]["world"] != line["world"]]
    worst = max(abs(line["loss"] / reference[line["step"]] - 1) for line in found)
    print(f"workers {' '.join(map(str, worlds))}, largest deviation {worst:.1e}, loss {found[0]['loss']:.4f} -> {found[-1]['loss']:.4f}")
    if worst > float(tolerance):
        sys.exit(f"the loss deviates by {worst:.1e}, more than {tolerance}")


if __name__ == "__main__":
    main(*sys.argv[1:])
