# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints rows for docs/gpu-results.md from the files of the stages: rows.py DATE GPU COMMIT FILE..."""

import json
import sys


def main(date, gpu, commit, *files):
    for name in files:
        with open(name) as file:
            stage = json.load(file)
        rows = stage["rows"]
        if stage["running"]:
            rows.append({"what": stage["running"], "text": "had not ended when the stage's time was over", "beside": "", "passed": False})
        for row in rows:
            verdict = {True: ", reached", False: ", **missed**", None: ""}[row["passed"]]
            print(f"| {date} | {gpu} | {commit} | {stage['stage']}: {row['what']} | {row['text'].replace('|', '/')} | {(row['beside'] + verdict).removeprefix(', ')} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
