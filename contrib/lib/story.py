# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads and combines the files that a run on a cluster has left behind: the facts of contrib/lib/make_page.py.

Times are seconds since 1970, durations seconds. Speed-ups are over the job's own GPUs.
"""
import json
import statistics
from dataclasses import dataclass, field


class InputError(Exception):
    """A sentence that names the file, what is wrong with it, and what is wanted."""


@dataclass(frozen=True)
class Interval:
    """A GPU's time with one job. job: who has it, perhaps by a companion."""
    gpu: str
    begin: float
    end: float
    job: int
    is_lent: bool


@dataclass(frozen=True)
class Pause:
    """From the last step before a change of workers to the beginning of the first one after it."""
    job: int
    begin: float
    stopped_s: float
    workers: tuple[int, int]
    loss: tuple[float, float]
    mode: str                       # live, restart, or "" where no event says it
    reported: list[dict]            # the events `pause` within it: of several changes, of which none trained a step


@dataclass(frozen=True)
class Stay:
    """A generation: a job between two changes of workers. speedup: None where it trained no steps on its own GPUs alone."""
    job: int
    generation: int
    begin: float
    workers: int
    own: int
    lent: int
    steps: int
    step_s: float
    speedup: float | None
    predicted: float | None


@dataclass
class Job:
    """An elastic job. log, reference: a line a step; scale: {GPUs: predicted samples a second}."""
    number: int
    name: str
    mode: str = "restart"
    basic_gpus: int = 0
    log: list[dict] = field(default_factory=list)
    reference: list[dict] = field(default_factory=list)
    scale: dict[int, float] = field(default_factory=dict)
    profiles: dict[int, float] = field(default_factory=dict)    # generation: the newest predicted speed-up


def read_lines(path, needed):
    """JSON objects of a file, one a line; all have the members `needed`. The last line may be unfinished."""
    try:
        with open(path, encoding="utf-8") as file:
            texts = file.read().splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); name a file of the run") from None
    lines = []
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(texts) and not text.endswith("\n"):
                break
            raise InputError(f"{path}: line {number} is not JSON: {text.strip()[:60]!r}; each line must be one object") from None
        missing = [name for name in needed if not isinstance(line, dict) or name not in line]
        if missing:
            raise InputError(f"{path}: line {number} has no {missing[0]!r}; each line must have {', '.join(needed)}")
        lines.append(line)
    return lines


def read_log(path):
    """Steps of a job's log in their order; one that was trained again counts once."""
    last = {line["step"]: line for line in read_lines(path, ("step", "loss", "time"))}
    return [last[step] for step in sorted(last)]


def named(specs, what):
    """JOB=FILE of each option."""
    for spec in specs:
        job, equals, path = spec.partition("=")
        if not job.isdecimal() or not equals or not path:
            raise InputError(f"{what} '{spec}': give JOB=FILE, e.g. 3=gpt.jsonl")
        yield int(job), path


class Story:
    """The facts from the files of a run, in one place. options: as of make_page.py."""

    def __init__(self, options):
        self.looks = read_lines(options.gpus, ("time", "gpus", "jobs"))
        if not self.looks:
            raise InputError(f"{options.gpus}: nobody ever looked who has which GPU; let watch_gpus.py run beside the jobs")
        self.events = read_lines(options.events, ("time", "event"))
        self.rigid = read_lines(options.rigid, ("job", "gpus", "submitted", "started")) if options.rigid else []
        self.notes = []
        for note in options.note:
            time, _, words = note.partition("=")
            try:
                self.notes.append((float(time), words))
            except ValueError:
                raise InputError(f"--note '{note}': give TIME=WORDS, the time in seconds since 1970") from None
        self.begin, self.end = self.looks[0]["time"], self.looks[-1]["time"]
        self.slurm_jobs = {}
        for look in self.looks:
            for job, facts in look["jobs"].items():
                self.slurm_jobs.setdefault(int(job), {}).update(facts)
        self.jobs = self._elastic_jobs(options)
        self.intervals = self._find_intervals()
        self.gpus = sorted({each.gpu for each in self.intervals}, key=lambda gpu: (gpu.split(":")[0], int(gpu.split(":")[1])))
        self.types = self.looks[-1].get("types", {})
        self.pauses = [pause for job in self.jobs.values() for pause in self._pauses_of(job)]
        self.stays = [stay for job in self.jobs.values() for stay in self._stays_of(job)]

    def _elastic_jobs(self, options):
        jobs = {}
        for event in self.events:
            if event["event"] == "job-started":
                number = event["job"]
                job = jobs.setdefault(number, Job(number, self.slurm_jobs.get(number, {}).get("name", str(number))))
                job.basic_gpus = event.get("basic_gpus", 0)
            elif event["event"] == "pause" and event["mode"] == "live" and event["job"] in jobs:
                jobs[event["job"]].mode = "live"
        for what, member in (("log", "log"), ("reference", "reference")):
            for number, path in named(getattr(options, what), "--" + what):
                if number not in jobs:
                    raise InputError(f"--{what} {number}={path}: {options.events} knows no elastic job {number}, "
                                     f"but {', '.join(map(str, sorted(jobs))) or 'none at all'}")
                setattr(jobs[number], member, read_log(path))
        for number, path in named(options.history, "--history"):
            if number in jobs:
                self._read_history(jobs[number], path)
        return jobs

    @staticmethod
    def _read_history(job, path):
        """Reads the output of `swell history --json`: the newest scale table, and what each generation's profiles predicted."""
        try:
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["events"]
            for row in rows:
                if row["event"] == "scale":
                    job.scale = {point["gpus"]: point["samples_per_s"] for point in row["table"]}
                elif row["event"] == "profile" and "predicted_speedup" in row:
                    job.profiles[row["generation"]] = row["predicted_speedup"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not what `swell history {job.number} --json` prints ({type(error).__name__}: {error})") from None

    def owner(self, job):
        """Returns the job that owns the GPUs of `job`: the parent of a companion, else the job itself."""
        return self.slurm_jobs[job]["parent"] or job

    def _find_intervals(self):
        intervals, since = [], {}
        for look in [*self.looks, {"time": self.end + 0.5, "gpus": {}}]:
            for gpu, (begin, job) in list(since.items()):
                if look["gpus"].get(gpu) != job:
                    intervals.append(Interval(gpu, begin, look["time"], self.owner(job), self.slurm_jobs[job]["parent"] != 0))
                    del since[gpu]
            for gpu, job in look["gpus"].items():
                since.setdefault(gpu, (look["time"], job))
        return intervals

    def gpu_seconds(self, job, is_lent):
        """Returns the GPU seconds that a job had on its own GPUs, or on lent ones."""
        return sum(each.end - each.begin for each in self.intervals if each.job == job and each.is_lent == is_lent)

    def _pauses_of(self, job):
        reports = [event for event in self.events if event["event"] == "pause" and event["job"] == job.number]
        found = []
        for old, new in zip(job.log, job.log[1:]):
            if generation_of(old) == generation_of(new):
                continue
            # The event may reach the controller while the first steps are trained.
            late = new["time"] + 1
            said = [event for event in reports if old["time"] <= event["time"] <= late and event not in [e for p in found for e in p.reported]]
            found.append(Pause(job.number, old["time"], max(new["time"] - step_s_of(new) - old["time"], 0.0), (workers_of(old), workers_of(new)),
                               (old["loss"], new["loss"]), "/".join(sorted({event["mode"] for event in said})), said))
        return found

    def _stays_of(self, job):
        generations = {}
        least = min([workers_of(line) for line in job.log] + [event["workers"] for event in self.events if event["event"] == "status"
                                                              and event["job"] == job.number and event["workers"] > 0], default=1)
        for line in job.log:
            generations.setdefault(generation_of(line), []).append(line)
        found = []
        for generation, lines in generations.items():
            steps = [step_s_of(line) for line in lines[1:]]     # the first warms up
            if len(steps) < 2:
                continue
            # Not what it holds: GPUs may be lent for a while before its next program trains on them.
            lent = workers_of(lines[0]) * job.basic_gpus // least - job.basic_gpus
            found.append(Stay(job.number, generation, lines[0]["time"], workers_of(lines[0]), job.basic_gpus, lent, len(lines), statistics.median(steps), None,
                              job.profiles.get(generation)))
        alone = [stay.step_s for stay in found if not stay.lent]
        if not alone:
            return found
        base = statistics.median(alone)
        return [Stay(**{**vars(stay), "speedup": base / stay.step_s if stay.step_s else None}) for stay in found]

    def deviation(self, job):
        """(largest relative difference of loss from the unresized run, common steps); None without such a run."""
        reference = {line["step"]: line["loss"] for line in job.reference}
        both = [(line["loss"], reference[line["step"]]) for line in job.log if line["step"] in reference]
        return (max(abs(a - b) / max(abs(b), 1e-12) for a, b in both), len(both)) if both else None


def generation_of(line):
    """How often the job's workers had changed when it made the step."""
    return line.get("generation", 0)


def workers_of(line):
    """Over how many workers the step went."""
    return line.get("world", line.get("world_size", 1))


def step_s_of(line):
    """How long the step took."""
    return line.get("step_s", 0.0)
