# SPDX-License-Identifier: GPL-2.0-or-later
"""The drawings of contrib/lib/make_page.py: SVG inside HTML, coloured by the page's style sheet alone.

Elements that stand for something carry its facts in data- attributes, by which tests/contrib/page_test.sh finds them.
"""
import html
import math
import os
import statistics
import sys

from story import generation_of, workers_of

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from swell._counted import counted  # noqa: E402

LEFT, WIDTH, RIGHT = 96, 960, 24        # of the chart over time
ROW, GAP, LANE = 12, 10, 26
LABEL = 38                              # what a duration takes
PANEL, PANEL_HEIGHT = 340, 200


def escape(text):
    return html.escape(str(text), quote=True)


def ticks(low, high, about=6):
    """Round numbers from low to high."""
    span = max(high - low, 1e-9)
    power = 10 ** math.floor(math.log10(span / about))
    step = next(power * each for each in (1, 2, 5, 10) if span / (power * each) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 10) for n in range(first, int(high / step + 1e-9) + 1)]


def figure(svg, width, height, label, kind):
    return (f'<svg class="{kind}" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(label)}" '
            f'xmlns="http://www.w3.org/2000/svg">{"".join(svg)}</svg>')


def text(x, y, words, css="label", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>'


def patterns(count):
    """Stripes for lent GPUs, one of each job's colour: they are told apart without colours too."""
    return "<defs>" + "".join(
        f'<pattern id="lent{n}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="6" height="6" class="job{n}" fill-opacity="0.28"/><rect width="2.4" height="6" class="job{n}"/></pattern>'
        for n in range(count)) + "</defs>"


def changes_of(story, job):
    """(time, lent or back, words) of a job's companions."""
    for event in story.events:
        kind = {"companion-started": "lent", "companion-ended": "back", "companion-lost": "back"}.get(event["event"])
        if kind and event.get("job") == job:
            companion = event.get("companion", {})
            where = f"{counted(companion.get('gpus', '?'), 'GPU')} on {companion.get('node', '?')}"
            why = f": {event['reason']}" if event.get("reason") else ""
            yield event["time"], kind, (f"lent {where}" if kind == "lent" else f"gave {where} back") + why


def gpus_chart(story, classes):
    """Draws which job had which GPU when; below, for each elastic job what it was lent, what it gave back, and where it stood still."""
    span = max(story.end - story.begin, 1.0)

    def x(time):
        return LEFT + min(max((time - story.begin) / span, 0), 1) * WIDTH

    svg, y, at, node = [patterns(len(story.jobs))], 34.0, {}, None
    for gpu in story.gpus:
        host, _, index = gpu.partition(":")
        if host != node:
            y += GAP if node else 0
            kind = story.types.get(host, "")
            svg.append(text(8, y + 9, host, "label strong") + (text(8, y + 22, kind) if kind else ""))
            node = host
        at[gpu] = y
        svg.append(text(LEFT - 6, y + 9, index, anchor="end") + f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}" class="idle"/>')
        y += ROW
    for each in story.intervals:
        name = story.slurm_jobs[each.job]["name"]
        n = classes.get(each.job)
        fill = 'class="gpu rigid"' if n is None else f'class="gpu lent" fill="url(#lent{n})"' if each.is_lent else f'class="gpu own job{n}"'
        words = f"{each.gpu}: job {each.job} ({name}), {'lent' if each.is_lent else 'its own'}, {each.end - each.begin:.1f} s"
        svg.append(f'<rect {fill} data-job="{each.job}" data-gpu="{escape(each.gpu)}" x="{x(each.begin):.2f}" y="{at[each.gpu]}" '
                   f'width="{max(x(each.end) - x(each.begin), 0.5):.2f}" height="{ROW - 2}"><title>{escape(words)}</title></rect>')
    y += 14
    for number, job in sorted(story.jobs.items()):
        svg.append(text(8, y + 14, f"job {number}", "label strong") + f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE - 6}" class="idle"/>')
        stood = [(x(pause.begin), max(x(pause.begin + pause.stopped_s), x(pause.begin) + 2), pause.stopped_s, pause.workers)
                 for pause in story.pauses if pause.job == number]
        for n, (begin, end, stopped_s, workers) in enumerate(stood):
            words = f"job {number} stood still for {stopped_s:.1f} s: {workers[0]} to {counted(workers[1], 'worker')}"
            svg.append(f'<rect class="pause" data-job="{number}" data-stopped="{stopped_s:.3f}" x="{begin:.2f}" y="{y + 10}" '
                       f'width="{end - begin:.2f}" height="{LANE - 16}"><title>{escape(words)}</title></rect>')
            # Beside the bar, where no other one is; else its title and the table have to do.
            if n + 1 == len(stood) or stood[n + 1][0] > end + LABEL:
                svg.append(text(end + 4, y + 19, f"{stopped_s:.1f} s"))
            elif n == 0 or stood[n - 1][1] < begin - 2 * LABEL:
                svg.append(text(begin - 4, y + 19, f"{stopped_s:.1f} s", anchor="end"))
        for time, kind, words in changes_of(story, number):
            d = f"M{x(time):.1f} {y - 3}l5 9h-10z" if kind == "lent" else f"M{x(time):.1f} {y + 6}l5 -9h-10z"
            svg.append(f'<path class="{kind} job{classes[number]}" data-job="{number}" d="{d}"><title>{escape(words)}</title></path>')
        y += LANE
    last = -1e9
    for n, (time, words) in enumerate(sorted(story.notes)):
        height = 12 if x(time) - last > 130 or n % 2 == 0 else 26
        last = x(time)
        anchor = "start" if x(time) < LEFT + WIDTH - 140 else "end"
        svg.append(f'<line class="note" x1="{x(time):.1f}" x2="{x(time):.1f}" y1="{height - 8}" y2="{y}"/>'
                   + text(x(time) + (3 if anchor == "start" else -3), height, words, "label note", anchor))
    for tick in ticks(0, span, 10):
        svg.append(f'<line class="tick" x1="{x(story.begin + tick):.1f}" x2="{x(story.begin + tick):.1f}" y1="{y}" y2="{y + 5}"/>'
                   + text(x(story.begin + tick), y + 18, f"{tick:g} s", anchor="middle"))
    return figure(svg, LEFT + WIDTH + RIGHT, y + 26, "GPUs over time by job, own and lent; pauses of each job", "gpus")


class Panel:
    """Axes of a small chart, with linear scales. `svg` takes what is drawn."""

    def __init__(self, xs, ys, x_title, y_title):
        self.x_range, self.y_range = (min(xs), max(xs)), (min(ys), max(ys))
        self.svg = []
        left, right, top, bottom = 48, PANEL - 12, 14, PANEL_HEIGHT - 36
        self.box = left, right, top, bottom
        for tick in ticks(*self.y_range, 5):
            y = self.y(tick)
            self.svg.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>' + text(left - 6, y + 4, f"{tick:g}", anchor="end"))
        for tick in ticks(*self.x_range, 6):
            self.svg.append(text(self.x(tick), bottom + 15, f"{tick:g}", anchor="middle"))
        self.svg.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        self.svg.append(text((left + right) / 2, bottom + 31, x_title, anchor="middle") + text(4, 10, y_title))

    def x(self, value):
        low, high = self.x_range
        return self.box[0] + (value - low) / max(high - low, 1e-9) * (self.box[1] - self.box[0])

    def y(self, value):
        low, high = self.y_range
        return self.box[3] - (value - low) / max(high - low, 1e-9) * (self.box[3] - self.box[2])

    def line(self, points, css, /, **facts):
        data = "".join(f' data-{name}="{escape(value)}"' for name, value in facts.items())
        self.svg.append(f'<polyline class="{css}"{data} points="{" ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)}"/>')


def loss_chart(_, job, css):
    """Loss by step; dashed, the same run that nobody resizes; a mark at each resize."""
    lines = job.log + job.reference
    panel = Panel([line["step"] for line in lines], [line["loss"] for line in lines], "step", "loss")
    for old, new in zip(job.log, job.log[1:]):
        if generation_of(old) != generation_of(new):
            x = panel.x(new["step"])
            words = f"{workers_of(old)} to {counted(workers_of(new), 'worker')} at step {new['step']}"
            panel.svg.append(f'<line class="resize" x1="{x:.1f}" x2="{x:.1f}" y1="{panel.box[2]}" y2="{panel.box[3]}"><title>{escape(words)}</title></line>')
    panel.line([(line["step"], line["loss"]) for line in job.log], f"loss line{css}", job=job.number, steps=len(job.log))
    if job.reference:
        panel.line([(line["step"], line["loss"]) for line in job.reference], "unresized", job=job.number, steps=len(job.reference))
    return figure(panel.svg, PANEL, PANEL_HEIGHT, f"loss of job {job.number} by step", "panel")


def speed_chart(story, job, css):
    """Speed-up by GPUs: dots are what was seen, the line and rings what was predicted; dotted, as many times as GPUs."""
    stays = [stay for stay in story.stays if stay.job == job.number and stay.speedup is not None]
    base = job.scale.get(job.basic_gpus)
    scale = sorted((gpus, rate / base) for gpus, rate in job.scale.items() if base and gpus >= job.basic_gpus)
    most = max([stay.own + stay.lent for stay in stays] + [job.basic_gpus])
    scale = [point for point in scale if point[0] <= max(most, job.basic_gpus) * 1.5]
    xs = [job.basic_gpus, *[stay.own + stay.lent for stay in stays], *[gpus for gpus, _ in scale]]
    ys = [0, 1, *[stay.speedup for stay in stays], *[stay.predicted or 0 for stay in stays], *[rate for _, rate in scale]]
    ideal = max(xs) / max(job.basic_gpus, 1)
    panel = Panel([0, max(xs)], [0, max(*ys, ideal) * 1.05], "GPUs", "times as fast as on its own GPUs")
    panel.line([(job.basic_gpus, 1), (max(xs), ideal)], "ideal")
    if scale:
        panel.line(scale, f"predicted line{css}", job=job.number, points=len(scale))
    for stay in stays:
        x = panel.x(stay.own + stay.lent)
        words = f"generation {stay.generation}: {counted(stay.own + stay.lent, 'GPU')}, {stay.speedup:.2f} times as fast, {counted(stay.steps, 'step')}"
        if stay.predicted is not None:
            panel.svg.append(f'<circle class="ring line{css}" data-job="{job.number}" cx="{x:.1f}" cy="{panel.y(stay.predicted):.1f}" r="7">'
                             f"<title>predicted {stay.predicted:.2f}</title></circle>")
        panel.svg.append(f'<circle class="real job{css}" data-job="{job.number}" data-speedup="{stay.speedup:.3f}" cx="{x:.1f}" '
                         f'cy="{panel.y(stay.speedup):.1f}" r="4"><title>{escape(words)}</title></circle>')
    return figure(panel.svg, PANEL, PANEL_HEIGHT, f"speed-up of job {job.number} by GPUs", "panel")


def median_or_none(values):
    """None of no values."""
    values = list(values)
    return statistics.median(values) if values else None
