# SPDX-License-Identifier: GPL-2.0-or-later
"""plot_runs.py LOSSES REFERENCE OUT.svg: loss and tokens a second against time, with generations marked, beside the run that nobody resized.

Both files are logs of the engine. Times are counted from each run's first step. Prints a line of JSON: {"steps", "generations", "largest_deviation",
"pause_s": seconds of each re-plan beyond a step, "tokens_per_s": of each generation, "reference_tokens_per_s"}.
"""

import json
import statistics
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 260, 70, 40, 60
COLOURS = {"resized": "#c0392b", "never resized": "#2c6fbb"}


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def points(lines, value, scale_x, scale_y):
    begin = lines[0]["time"]
    return " ".join(f"{scale_x(line['time'] - begin):.1f},{scale_y(value(line)):.1f}" for line in lines)


def ticks(most, least=0.0):
    step = 10 ** len(str(int(max(most - least, 1e-9)))) / 10
    step = next(step * part for part in (0.05, 0.1, 0.2, 0.5, 1, 2) if (most - least) / (step * part) <= 6 or part == 2)
    first = int(least / step)
    return [number * step for number in range(first, int(most / step) + 1) if number * step >= least]


def panel(out, top, title, runs, value, seconds):
    values = [value(line) for lines in runs.values() for line in lines]
    least, most = (0.0, max(values) * 1.05) if title.startswith("tokens") else (min(values) * 0.95, max(values) * 1.02)

    def scale_x(at):
        return LEFT + at / seconds * WIDTH

    def scale_y(at):
        return top + HEIGHT - (at - least) / (most - least) * HEIGHT
    out.append(f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(title)}</text>')
    out.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')
    for at in ticks(most, least):
        out.append(f'<text x="{LEFT - 6}" y="{scale_y(at) + 4:.1f}" text-anchor="end">{at:g}</text>')
        out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{scale_y(at):.1f}" y2="{scale_y(at):.1f}" stroke="#eee"/>')
    for at in ticks(seconds):
        out.append(f'<text x="{scale_x(at):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{at:g} s</text>')
    resized = runs["resized"]
    for before, line in zip([None, *resized], resized):
        if before is None or line["generation"] != before["generation"]:
            at = scale_x(line["time"] - resized[0]["time"])
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="#888" stroke-dasharray="4 3"/>')
            out.append(f'<text x="{at + 3:.1f}" y="{top + 12}" font-size="10" fill="#555" transform="rotate(90 {at + 3:.1f} {top + 12})">'
                       f'{escape(line["plan"])}</text>')
    for name, lines in runs.items():
        out.append(f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="1.5" points="{points(lines, value, scale_x, scale_y)}"/>')


def draw(runs, title):
    seconds = max(lines[-1]["time"] - lines[0]["time"] for lines in runs.values())
    total = TOP + 2 * (HEIGHT + GAP) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{total}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{LEFT}" y="16">{escape(title)}</text>']
    panel(out, TOP, "loss", runs, lambda line: line["loss"], seconds)
    panel(out, TOP + HEIGHT + GAP, "tokens a second", runs, lambda line: line["tokens_per_s"], seconds)
    for at, name in enumerate(runs):
        x = LEFT + 160 * at
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{total - 12}" y2="{total - 12}" stroke="{COLOURS[name]}" stroke-width="3"/>')
        out.append(f'<text x="{x + 30}" y="{total - 8}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def figures(resized, reference):
    expected = {line["step"]: line["loss"] for line in reference}
    speeds, pauses = {}, []
    for before, line in zip([None, *resized], resized):
        speeds.setdefault(line["generation"], []).append(line["tokens_per_s"])
        if before is not None and before["generation"] != line["generation"]:
            pauses.append(round(line["time"] - before["time"] - line["step_s"], 3))
    return {"steps": len(resized), "generations": len(speeds), "largest_deviation": max(abs(line["loss"] / expected[line["step"]] - 1) for line in resized),
            "pause_s": pauses, "tokens_per_s": [round(statistics.median(each), 1) for each in speeds.values()],
            "reference_tokens_per_s": round(statistics.median(line["tokens_per_s"] for line in reference), 1)}


def main(losses, reference, path):
    runs = {"never resized": read(reference), "resized": read(losses)}
    paced = runs["resized"][0].get("paced")
    title = f"paced host devices ({paced}): times are those of stated accelerators" if paced else "times of this machine"
    with open(path, "w") as file:
        file.write(draw(runs, title))
    print(json.dumps(figures(runs["resized"], runs["never resized"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
