# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes one HTML page of a run on a cluster, with nothing from elsewhere, of what the run has recorded:

    make_page.py --gpus FILE (watch_gpus.py) --events FILE (swell.conf's EventLog) --page FILE --summary FILE
                 [--log JOB=FILE]... [--reference JOB=FILE]... [--history JOB=FILE]... [--rigid FILE]
                 [--note TIME=WORDS]... [--grace SECONDS] [--about WORDS]

log: a JSON line a step of an elastic job (step, loss, time; step_s, generation, world or world_size), as the engine and train_gpt.py write
it; reference: likewise, of the same training that nobody resizes. history: what `swell history JOB --json` prints. rigid: a JSON line a
job: job, gpus, submitted, started. summary: figures as JSON. A text of the same goes to standard output.
"""
import argparse
import json
import sys

import charts
import story as facts
from charts import counted, escape
from page_style import STYLE


def decisions_of(story):
    """(time, job, what, why) of everything that was decided, in order."""
    found = []
    for event in story.events:
        companion = event.get("companion", {})
        where = f"{counted(companion.get('gpus'), 'GPU')} on {companion.get('node')}[{companion.get('gpu_indices') or '?'}]"
        why = event.get("reason", "")
        what = {
            "job-started": f"runs on its basic {counted(event.get('basic_gpus'), 'GPU')}",
            "decided-by": f"is decided by: {event.get('by')}",
            "grant": f"is granted {counted(event.get('gpus'), 'GPU')} on {event.get('node')}",
            "companion-started": f"is lent {where}",
            "reclaim": f"is asked to give back {where}",
            "companion-preempted": f"loses to Slurm {where}",
            "companion-ended": f"has given back {where}",
            "companion-lost": f"has lost {where}",
            "plan": "is told a plan",
            "plan-refused": "does not run the plan that it was told",
            "profile-refused": "has its profile refused",
            "job-ended": "has ended",
        }.get(event["event"])
        if event["event"] == "plan":
            why = plan_words(event["plan"])
        if event["event"] == "no-growth" and why:
            what = "takes no more GPUs now"
        if event["event"] == "pause":
            what = f"runs {counted(event['workers'], 'worker')} from now on"
            why = f"{event['mode']}, its processes stopped {event['stopped_s']:.2f} s" + moved_words(event.get("parts"))
        if what and event.get("job") in story.jobs:
            found.append((event["time"], event["job"], what, why))
    return found


def plan_words(plan):
    """Layers, degrees and places of a plan's stages."""
    stages = [f"{counted(stage['layers'], 'layer')} as {stage['tp']}-way shards on " + ", ".join(
        f"{group['node']}[{','.join(map(str, group['gpus']))}] ({counted(group['local_batch'], 'sample')})" for group in stage["groups"])
        for stage in plan.get("stages", [])]
    return "; then ".join(stages)


def moved_words(parts):
    moved = sum((parts or {}).get("bytes", {}).values())
    return f", {moved / 1e6:.1f} MB of state moved" if moved else ""


def table(heads, rows, css):
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table class="{css}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def summary_of(story):
    names = [event["event"] for event in story.events]
    last = story.looks[-1]["jobs"]
    running = {job for job, each in last.items() if each["state"] == "RUNNING"}
    first = next((job for job in story.jobs.values() if job.log), None)
    pauses = {mode: [pause.stopped_s for pause in story.pauses if pause.mode == mode] for mode in ("live", "restart")}
    return {
        "grants": names.count("companion-started"),
        "reclaims": names.count("companion-ended"),
        "jobs_grown": sum(1 for job in story.jobs if story.gpu_seconds(job, True) > 0),
        "resizes": len(story.pauses),
        "live_switches": sum(1 for event in story.events if event["event"] == "pause" and event["mode"] == "live"),
        "loss_first": first.log[0]["loss"] if first else None,
        "loss_last": first.log[-1]["loss"] if first else None,
        "steps": first.log[-1]["step"] if first else 0,
        "losses": {str(job.number): [job.log[0]["loss"], job.log[-1]["loss"]] for job in story.jobs.values() if job.log},
        "most_gpus_in_use": max(len(look["gpus"]) for look in story.looks),
        "lent_gpu_s": round(sum(story.gpu_seconds(job, True) for job in story.jobs), 1),
        "orphans": sum(1 for job in running if last[job]["parent"] and str(last[job]["parent"]) not in running),
        "longest_gap_s": round(max((pause.stopped_s for pause in story.pauses), default=0), 2),
        "median_live_gap_s": round(charts.median_or_none(pauses["live"]), 2) if pauses["live"] else None,
        "rigid_waits_s": [round(job["started"] - job["submitted"], 2) for job in story.rigid],
    }


def text_of(story):
    lines = ["time    what happened"]
    said = [(time, f"job {job} {what}" + (f": {why}" if why else "")) for time, job, what, why in decisions_of(story)]
    for time, words in sorted(said + story.notes):
        lines.append(f"{time - story.begin:6.1f}  {words}")
    lines += ["", "speed by generation"]
    for stay in story.stays:
        lines.append(f"        job {stay.job}, generation {stay.generation}: {counted(stay.workers, 'worker')} on {stay.own} + {counted(stay.lent, 'GPU')}, {counted(stay.steps, 'step')} of "
                     f"{stay.step_s:.2f} s" + (f", {stay.speedup:.2f} times as fast as alone" if stay.speedup else ""))
    lines += ["", "where training stood still"]
    for pause in story.pauses:
        lines.append(f"{pause.begin - story.begin:6.1f}  job {pause.job}: {pause.workers[0]} -> {counted(pause.workers[1], 'worker')}, {pause.stopped_s:.1f} s, "
                     f"loss {pause.loss[0]:.4f} -> {pause.loss[1]:.4f}")
    for job in story.jobs.values():
        if job.log:
            lines.append(f"        job {job.number}: loss {job.log[0]['loss']:.4f} at step {job.log[0]['step']}, "
                         f"{job.log[-1]['loss']:.4f} at step {job.log[-1]['step']}")
    return "\n".join(lines)


def tiles_of(story, summary, grace):
    waits = summary["rigid_waits_s"]
    tiles = [(f"{summary['lent_gpu_s']:.0f}", "GPU-seconds lent that stood idle"), (summary["grants"], "times GPUs were lent"),
             (summary["reclaims"], "times GPUs were given back")]
    if waits:
        tiles.append((f"{max(waits):.1f} s", f"at most, that {len(waits)} rigid job{'s' * (len(waits) > 1)} waited" + (f" (grace: {grace:g} s)" if grace else "")))
    for mode in ("live", "restart"):
        stopped = charts.median_or_none(pause.stopped_s for pause in story.pauses if pause.mode == mode)
        if stopped is not None:
            tiles.append((f"{stopped:.1f} s", f"without training, median of resizes {'live' if mode == 'live' else 'by a restart'}"))
    return "".join(f'<div class="tile"><b>{escape(value)}</b>{escape(words)}</div>' for value, words in tiles)


def legend_of(story, classes):
    jobs = "".join(f'<span><i class="own{classes[number]}"></i>job {number} ({escape(job.name)})</span>' for number, job in sorted(story.jobs.items()))
    return (f'<p class="legend">{jobs}<span><i class="rigid"></i>rigid jobs</span><span><i class="striped"></i>striped: lent</span>'
            '<span><i class="stood"></i>without training</span><span>&#9650; lent</span><span>&#9660; given back</span></p>')


def panels(story, classes, draw, below):
    found = [(job, draw(story, job, classes[number]), below(job)) for number, job in sorted(story.jobs.items()) if job.log]
    return '<div class="panels">' + "".join(
        f'<figure><figcaption><b>job {job.number}</b> {escape(job.name)}, {job.mode}</figcaption>{svg}<p>{words}</p></figure>'
        for job, svg, words in found) + "</div>"


def speed_words(story, job):
    """Says what the chart of a job's speed-up lacks, and why."""
    lacks = []
    if all(stay.speedup is None for stay in story.stays if stay.job == job.number):
        lacks.append("it made too few steps on its own GPUs alone to compare with")
    if not job.scale and not job.profiles:
        lacks.append("its program reports no profile: nothing is predicted")
    return "; ".join(lacks)


def loss_words(story, job):
    found = story.deviation(job)
    if found is None:
        return "no unresized run of it was made"
    return f"at most {found[0]:.1e} (relative) from the unresized run, over {found[1]} common steps"


def page_of(story, summary, grace, about):
    classes = {number: n for n, number in enumerate(sorted(story.jobs))}
    since = story.begin
    stays = [(f"job {stay.job}", stay.generation, f"{stay.begin - since:.1f}", stay.workers, f"{stay.own} + {stay.lent}", stay.steps, f"{stay.step_s:.3f}",
              f"{stay.speedup:.2f}" if stay.speedup else "&ndash;", f"{stay.predicted:.2f}" if stay.predicted is not None else "&ndash;") for stay in story.stays]
    pauses = [(f"{pause.begin - since:.1f}", f"job {pause.job}", pause.mode or "&ndash;", f"{pause.workers[0]} &rarr; {pause.workers[1]}", f"{pause.stopped_s:.2f}",
               " + ".join(f"{each['stopped_s']:.2f}" for each in pause.reported) or "&ndash;",
               f"{pause.loss[0]:.4f} &rarr; {pause.loss[1]:.4f}") for pause in sorted(story.pauses, key=lambda each: each.begin)]
    rigid = [(f"{job['submitted'] - since:.1f}", f"job {job['job']}", job["gpus"], f"{job['started'] - job['submitted']:.2f}") for job in story.rigid]
    decisions = [(f"{time - since:.1f}", f"job {job}", escape(what), escape(why)) for time, job, what, why in decisions_of(story)]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Swell: what happened</title>
<style>{STYLE}</style></head><body>
<h1>Who had which GPU, when and why</h1>
<p class="lead">{escape(about)} Everything here is drawn from files of the run.</p>
<div class="tiles">{tiles_of(story, summary, grace)}</div>
<h2>GPUs over time</h2>
{legend_of(story, classes)}
{charts.gpus_chart(story, classes)}
<h2>Speed-up</h2>
<p>Dots: seen, the median step of a generation against that on the job's own GPUs. Line and rings: predicted from the job's profile, where its program reports one.
Dotted: as many times as GPUs.</p>
{panels(story, classes, charts.speed_chart, lambda job: speed_words(story, job))}
{table(("job", "generation", "from s", "workers", "GPUs own + lent", "steps", "median step s", "speed-up seen", "predicted"), stays, "stays")}
<h2>Loss</h2>
<p>Lines: the job, resized where a mark stands. Dashed: the same training that nobody resizes, where it was run too.</p>
{panels(story, classes, charts.loss_chart, lambda job: loss_words(story, job))}
<h2>Where training stood still</h2>
<p>From the end of the last step before to the beginning of the first one after, by the job's own log; beside it what swellrun reports: of a restart from the end of
the old processes to the start of the new, which then import and load; of a live switch from its request, so that the step under way is in it.</p>
{table(("s", "job", "mode", "workers", "without training s", "reported s", "loss"), pauses, "pauses") if pauses else "<p>No job was resized.</p>"}
<h2>Rigid jobs</h2>
{table(("submitted s", "job", "GPUs", "waited s"), rigid, "waits") if rigid else "<p>There were none.</p>"}
<h2>Decisions, and why</h2>
{table(("s", "job", "what", "why"), decisions, "decisions")}
</body></html>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--gpus", "--events", "--page", "--summary"):
        parser.add_argument(name, required=True)
    for name in ("--log", "--reference", "--history", "--note"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--rigid")
    parser.add_argument("--grace", type=float)
    parser.add_argument("--about", default="")
    options = parser.parse_args()
    try:
        story = facts.Story(options)
        summary = summary_of(story)
        page = page_of(story, summary, options.grace, options.about)
        for path, content in ((options.page, page), (options.summary, json.dumps(summary))):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
    except (facts.InputError, OSError) as error:
        sys.exit(f"make_page: {error}")
    print(text_of(story))


main()
