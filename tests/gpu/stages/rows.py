# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints rows for docs/gpu-results.md from the files of the stages: rows.py DATE GPU COMMIT FILE..."""

import json
import sys


def main(date, gpu, commit, *files):
    for name in files:
        with open(name) as file:
            stage = json.load(file)
        for row in stage["rows"]:
            measured = f"{row['measured']:.4g} {row['unit']}".strip() if isinstance(row["measured"], float) else f"{row['measured']} {row['unit']}".strip()
            beside = [f"{word} {row[word]:.4g}" if isinstance(row[word], float) else f"{word} {row[word]}" for word in ("predicted", "goal")
                      if row[word] is not None]
            verdict = {True: ", reached", False: ", **missed**", None: ""}[row["passed"]]
            print(f"| {date} | {gpu} | {commit} | {stage['stage']}: {row['what']} | {measured.replace('|', '/')} | {', '.join(beside)}{verdict} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
