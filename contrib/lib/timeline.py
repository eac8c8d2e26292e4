# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells what happened on a cluster: a text and an HTML page (one SVG), made of

    timeline.py --gpus FILE (watch_gpus.py) --events FILE (swell.conf's EventLog)
                [--loss JOBID=FILE (train_gpt.py --log)]... [--note TIME=WORDS]... --html FILE --json FILE

The text goes to standard output. JSON: the quickstart's summary of the same.
"""
import argparse
import html
import json

COLOURS = ["#2f6db5", "#c2571a", "#2c8a4b", "#8a3fa0", "#a98307", "#5a5a5a"]


def read_lines(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def read_losses(specs):
    losses = {}
    for spec in specs:
        job, _, path = spec.partition("=")
        last = {}
        for line in read_lines(path):
            last[line["step"]] = line  # a step trained again after a failure counts once
        losses[int(job)] = [last[step] for step in sorted(last)]
    return losses


class Story:
    """What the sources say, in one place: intervals of (gpu, begin, end, owner, is lent)."""

    def __init__(self, options):
        self.looks = read_lines(options.gpus)
        self.events = read_lines(options.events)
        self.losses = read_losses(options.loss)
        self.notes = sorted((float(time), words) for time, _, words in (n.partition("=") for n in options.note))
        self.begin = self.looks[0]["time"]
        self.end = self.looks[-1]["time"]
        self.jobs = {}
        for look in self.looks:
            for job, facts in look["jobs"].items():
                self.jobs.setdefault(int(job), {}).update(facts)
        self.intervals = self.find_intervals()
        owners = sorted({self.owner(i[3]) for i in self.intervals})
        self.colour = {job: COLOURS[n % len(COLOURS)] for n, job in enumerate(owners)}

    def owner(self, job):
        return self.jobs[job]["parent"] or job

    def find_intervals(self):
        intervals, since = [], {}
        for look in self.looks + [{"time": self.end + 0.5, "gpus": {}}]:
            now = {gpu: job for gpu, job in look["gpus"].items()}
            for gpu in list(since):
                begin, job = since[gpu]
                if now.get(gpu) != job:
                    intervals.append((gpu, begin, look["time"], job, self.jobs[job]["parent"] != 0))
                    del since[gpu]
            for gpu, job in now.items():
                since.setdefault(gpu, (look["time"], job))
        return intervals

    def moments(self):
        """(time, sentence) for everything a person would want to know, in order."""
        said = list(self.notes)
        for event in self.events:
            companion = event.get("companion", {})
            where = f"{companion.get('gpus')} GPUs on {companion.get('node')}[{companion.get('gpu_indices') or '?'}]"
            job, why = event.get("job"), event.get("reason", "")
            sentence = {
                "job-started": f"job {job} runs on its basic {event.get('basic_gpus')} GPUs",
                "companion-started": f"job {job} is lent {where}",
                "companion-preempted": f"job {job} must give back {where}: {why}",
                "reclaim": f"job {job} must give back {where}: {why}",
                "companion-ended": f"job {job} has given back {where}",
                "companion-lost": f"job {job} has lost {where}",
                "job-ended": f"job {job} has ended",
            }.get(event["event"])
            if event["event"] == "status" and event["state"] == "ACTIVE":
                sentence = f"job {job} runs {event['workers']} workers (epoch {event['epoch']}" + (
                    f", started {event['stopped_s']:.1f} s after the others were asked to leave)"
                    if event["stopped_s"] else ")")
            if sentence:
                said.append((event["time"], sentence))
        return sorted(said)

    def resizes(self):
        """(job, time, workers before, after, loss before, after, seconds between the two steps): where a loss
        log changes its epoch."""
        found = []
        for job, lines in self.losses.items():
            for old, new in zip(lines, lines[1:]):
                if old["epoch"] != new["epoch"]:
                    found.append((job, new["time"], old["world_size"], new["world_size"], old["loss"], new["loss"],
                                  new["time"] - old["time"]))
        return sorted(found, key=lambda each: each[1])


def text_of(story):
    lines = ["time    what happened"]
    for time, sentence in story.moments():
        lines.append(f"{time - story.begin:6.1f}  {sentence}")
    lines += ["", "GPUs over time, one column about a second: letter = job (capital: its own GPUs, small: lent)"]
    owners = sorted(story.colour)
    letters = {job: chr(ord("A") + n % 26) for n, job in enumerate(owners)}
    columns = max(int(story.end - story.begin) + 1, 1)
    step = max(columns / 110, 1)
    gpus = sorted({i[0] for i in story.intervals}, key=lambda g: (g.split(":")[0], int(g.split(":")[1])))
    for gpu in gpus:
        row = ["."] * int(columns / step + 1)
        for _, begin, end, job, lent in (i for i in story.intervals if i[0] == gpu):
            letter = letters[story.owner(job)]
            for column in range(len(row)):
                if begin <= story.begin + (column + 0.5) * step < end:
                    row[column] = letter.lower() if lent else letter
        lines.append(f"{gpu:>8} {''.join(row)}")
    lines.append("         " + ", ".join(f"{letters[job]} = job {job} ({story.jobs[job]['name']})" for job in owners))
    lines += ["", "loss at each resize"]
    for job, time, old_size, new_size, old_loss, new_loss, gap in story.resizes():
        lines.append(f"{time - story.begin:6.1f}  job {job}: {old_size} -> {new_size} workers, "
                     f"loss {old_loss:.4f} -> {new_loss:.4f}, {gap:.1f} s from the last step before to the first after")
    for job, steps in story.losses.items():
        if steps:
            lines.append(f"        job {job}: {steps[0]['loss']:.4f} at step {steps[0]['step']}, "
                         f"{steps[-1]['loss']:.4f} at step {steps[-1]['step']}")
    return "\n".join(lines)


def svg_of(story):
    left, width, row = 90, 980, 13
    scale = width / max(story.end - story.begin, 1)

    def x(time):
        return left + min(max((time - story.begin) * scale, 0), width)

    gpus = sorted({i[0] for i in story.intervals}, key=lambda g: (g.split(":")[0], int(g.split(":")[1])))
    node_gap = {gpu: sum(1 for a, b in zip(gpus, gpus[1:gpus.index(gpu) + 1]) if a.split(":")[0] != b.split(":")[0])
                for gpu in gpus}
    top = 30
    y = {gpu: top + n * row + node_gap[gpu] * 8 for n, gpu in enumerate(gpus)}
    bottom = max(y.values(), default=top) + row
    out = []
    for gpu in gpus:
        out.append(f'<text x="{left - 6}" y="{y[gpu] + 10}" class="label" text-anchor="end">{html.escape(gpu)}</text>')
        out.append(f'<rect x="{left}" y="{y[gpu]}" width="{width}" height="{row - 2}" fill="#f1f1ef"/>')
    for gpu, begin, end, job, lent in story.intervals:
        owner = story.owner(job)
        title = f"{gpu}: job {owner}" + (f", lent (companion {job})" if lent else ", its own")
        out.append(f'<rect x="{x(begin):.1f}" y="{y[gpu]}" width="{max(x(end) - x(begin), 1):.1f}" height="{row - 2}" '
                   f'fill="{story.colour[owner]}" fill-opacity="{0.45 if lent else 1}"><title>{html.escape(title)}</title></rect>')
    for time, words in story.notes:
        out.append(f'<line x1="{x(time):.1f}" x2="{x(time):.1f}" y1="{top - 8}" y2="{bottom}" stroke="#b00020" stroke-dasharray="3 3"/>'
                   f'<text x="{x(time) + 3:.1f}" y="{top - 12}" class="label" fill="#b00020">{html.escape(words)}</text>')
    chart_top, chart_height = bottom + 40, 170
    values = [line["loss"] for lines in story.losses.values() for line in lines]
    if values:
        low, high = min(values), max(values)
        span = max(high - low, 1e-9)

        def loss_y(loss):
            return chart_top + (high - loss) / span * chart_height

        out.append(f'<text x="{left}" y="{chart_top - 10}" class="label">training loss of each job, '
                   f'{high:.2f} down to {low:.2f}; dots: resizes</text>')
        out.append(f'<rect x="{left}" y="{chart_top}" width="{width}" height="{chart_height}" fill="none" stroke="#ccc"/>')
        for job, lines in story.losses.items():
            points = " ".join(f"{x(line['time']):.1f},{loss_y(line['loss']):.1f}" for line in lines)
            colour = story.colour.get(job, "#000")
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            for old, new in zip(lines, lines[1:]):
                if old["epoch"] != new["epoch"]:
                    out.append(f'<circle cx="{x(new["time"]):.1f}" cy="{loss_y(new["loss"]):.1f}" r="4" fill="{colour}">'
                               f'<title>{old["world_size"]} to {new["world_size"]} workers, loss {old["loss"]:.4f} to '
                               f'{new["loss"]:.4f}</title></circle>')
        bottom = chart_top + chart_height
    for n in range(0, 11):
        time = story.begin + (story.end - story.begin) * n / 10
        out.append(f'<text x="{x(time):.1f}" y="{bottom + 18}" class="label" text-anchor="middle">{time - story.begin:.0f} s</text>')
    return (f'<svg viewBox="0 0 {left + width + 30} {bottom + 30}" xmlns="http://www.w3.org/2000/svg" '
            f'role="img" aria-label="Who had which GPU when">{"".join(out)}</svg>')


def page_of(story):
    legend = " ".join(
        f'<span><i style="background:{story.colour[job]}"></i>job {job} ({html.escape(story.jobs[job]["name"])})</span>'
        for job in sorted(story.colour))
    rows = "".join(f"<tr><td>{time - story.begin:.1f}</td><td>{html.escape(words)}</td></tr>"
                   for time, words in story.moments())
    resizes = "".join(f"<tr><td>{time - story.begin:.1f}</td><td>job {job}</td><td>{a} &rarr; {b} workers</td>"
                      f"<td>{before:.4f} &rarr; {after:.4f}</td><td>{gap:.1f} s</td></tr>"
                      for job, time, a, b, before, after, gap in story.resizes())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Swell: who had which GPU when</title>
<style>
 body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1120px; color: #222; }}
 .label {{ font: 10px system-ui, sans-serif; fill: #555; }}
 .legend span {{ margin-right: 1.5em; }} .legend i {{ display: inline-block; width: .9em; height: .9em; margin-right: .4em; }}
 table {{ border-collapse: collapse; margin: 1em 0; }} td, th {{ padding: .15em .8em .15em 0; text-align: left; vertical-align: top; }}
 td:first-child {{ color: #777; text-align: right; font-variant-numeric: tabular-nums; }}
</style>
<h1>Who had which GPU when</h1>
<p class="legend">{legend} <span>full colour: a job's own GPUs; light: lent by Swell</span></p>
{svg_of(story)}
<h2>Loss at each resize</h2><table><tr><th>s</th><th></th><th></th><th>loss</th><th>between the two steps</th></tr>{resizes}</table>
<h2>What happened</h2><table><tr><th>s</th><th></th></tr>{rows}</table>
</html>
"""


def summary_of(story):
    names = [event["event"] for event in story.events]
    losses = next(iter(story.losses.values()), [])
    last = story.looks[-1]["jobs"].values()
    running = {int(job) for job, facts in story.looks[-1]["jobs"].items() if facts["state"] == "RUNNING"}
    return {
        "grants": names.count("companion-started"),
        "reclaims": names.count("companion-ended"),
        "resizes": len(story.resizes()),
        "loss_first": losses[0]["loss"] if losses else None,
        "loss_last": losses[-1]["loss"] if losses else None,
        "steps": losses[-1]["step"] if losses else 0,
        "most_gpus_in_use": max(len(look["gpus"]) for look in story.looks),
        "orphans": sum(1 for facts in last if facts["parent"] and facts["state"] == "RUNNING"
                       and facts["parent"] not in running),
        "longest_gap_s": round(max((resize[6] for resize in story.resizes()), default=0), 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", required=True)
    parser.add_argument("--events", required=True)
    parser.add_argument("--loss", action="append", default=[])
    parser.add_argument("--note", action="append", default=[])
    parser.add_argument("--html", required=True)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    story = Story(options)
    with open(options.html, "w", encoding="utf-8") as page:
        page.write(page_of(story))
    with open(options.json, "w", encoding="utf-8") as summary:
        json.dump(summary_of(story), summary)
    print(text_of(story))


main()
