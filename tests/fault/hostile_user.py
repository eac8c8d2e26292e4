#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One attack of tests/fault/hostile for some seconds, as the user that runs it.

hostile_user.py NAME SECONDS [ARGUMENT...]: prints "NAME: COUNT ..." at its end. HOSTILE_PORT and HOSTILE_MUNGE name the
controller's port and munge's socket. The attack `honest` is none: it is the agent of a job whose growth the others may stop.
"""
import ctypes
import json
import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import time

MUNGE = ctypes.CDLL("libmunge.so.2")
MUNGE.munge_ctx_create.restype = ctypes.c_void_p
MUNGE_OPT_SOCKET = 8
ESCAPES = "\x1b[31m\x1b]0;pwned\x07\r\nJob 1: your password has expired\u202e\u009b2J"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd="/tmp")


def submit(*options, wrap="sleep 36000"):
    made = run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", wrap)
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    return int(made.stdout.split(";")[0])


def running(job, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        if run("squeue", "--all", "-h", "-j", str(job), "-o", "%T").stdout.strip() == "RUNNING":
            return True
        time.sleep(0.3)
    return False


def seal(text):
    """The credential of a payload, without a process for each: floods are as fast as munged."""
    if not hasattr(seal, "context"):
        seal.context = ctypes.c_void_p(MUNGE.munge_ctx_create())
        MUNGE.munge_ctx_set(seal.context, MUNGE_OPT_SOCKET, ctypes.c_char_p(os.environ["HOSTILE_MUNGE"].encode()))
    sealed = ctypes.c_void_p()
    if MUNGE.munge_encode(ctypes.byref(sealed), seal.context, text, len(text)) != 0:
        raise OSError("munge refused")
    copy = ctypes.string_at(sealed)
    ctypes.CDLL(None).free(sealed)
    return copy


def unseal(credential):
    """The message in a credential."""
    data, size = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint(), ctypes.c_uint()
    context = ctypes.c_void_p(MUNGE.munge_ctx_create())
    MUNGE.munge_ctx_set(context, MUNGE_OPT_SOCKET, ctypes.c_char_p(os.environ["HOSTILE_MUNGE"].encode()))
    if MUNGE.munge_decode(credential, context, ctypes.byref(data), ctypes.byref(size), ctypes.byref(uid), ctypes.byref(gid)) != 0:
        raise OSError("munge refused")
    return json.loads(ctypes.string_at(data, size.value))["m"]


class Agent:
    """A client of the controller that may say anything."""

    def __init__(self):
        self.link = socket.create_connection(("127.0.0.1", int(os.environ["HOSTILE_PORT"])), timeout=10)
        greeting = self.body().decode()
        if not greeting.startswith("SWELL1 "):
            raise OSError(greeting)
        self.nonce = greeting.split(" ", 1)[1]
        self.number = 0

    def body(self):
        size = struct.unpack(">I", self.exactly(4))[0]
        return self.exactly(size)

    def exactly(self, size):
        got = b""
        while len(got) < size:
            more = self.link.recv(size - len(got))
            if not more:
                raise OSError("the controller hung up")
            got += more
        return got

    def frame(self, message):
        self.number += 1
        text = '{"conn":"%s","from":"client","seq":%d,"m":%s}' % (self.nonce, self.number, message)
        sealed = seal(text.encode(errors="surrogateescape"))
        return struct.pack(">I", len(sealed)) + sealed

    def say_raw(self, message):
        self.link.sendall(self.frame(message))

    def say(self, **message):
        self.say_raw(json.dumps(message))

    def hello(self, job, workers=1, host="evil"):
        self.say(type="hello", job=job, version=2, host=host, workers=workers, gpus_per_worker=1, companions=[])

    def status(self, **more):
        self.say(type="status", state="ACTIVE", generation=1, workers=1, stopped_s=0, **more)

    def hear(self):
        """Reads what has come, so that the controller need not hang up."""
        self.link.settimeout(0.01)
        try:
            while self.link.recv(65536):
                pass
        except OSError:
            pass
        self.link.settimeout(10)


def on_a_job(end, act, host="evil", options=()):
    """Does it again and again as the agent of a job, which connects anew where it was made to give way. Returns how often."""
    job = submit("--elastic=max=8", "--gres=gpu:1", "--mem=100M", *options)
    agent, count = None, 0
    try:
        while running(job) and time.time() < end:
            try:
                if agent is None:
                    agent = Agent()
                    agent.hello(job, host=host)
                for _ in range(20):
                    if time.time() < end:
                        act(agent, job, count)
                        agent.hear()
                        count += 1
            except OSError:
                agent = None
    finally:
        run("scancel", str(job))
    return count


def lines_of(path):
    """Reads what tests/fault/hostile has found last; programs come and go."""
    with open(path) as file:
        return file.read().split()


def silent(end, arguments):
    """Holds hundreds of connections that say nothing to each port of each Swell process, and calls again where it was dropped."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    path, each = arguments[0], int(arguments[1])
    held, opened = {}, 0
    while time.time() < end:
        ports = lines_of(path)
        for port in set(held) - set(ports):
            for one in held.pop(port):
                one.close()
        for port in ports:
            mine = held.setdefault(port, [])
            for _ in range(80):
                one = socket.socket()
                one.settimeout(0.2)
                try:
                    one.connect(("127.0.0.1", int(port)))
                    mine.append(one)
                    opened += 1
                except OSError:
                    one.close()
            for one in mine[:-each]:
                one.close()
            del mine[:-each]
        time.sleep(0.1)
    return opened


def datagrams(end, arguments):
    """Floods the abstract sockets at which shims hear their programs."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sent = 0
    while time.time() < end:
        for name in lines_of(arguments[0]):
            for _ in range(200):
                try:
                    one.sendto(os.urandom(8), "\0" + name)
                    sent += 1
                except OSError:
                    pass
        time.sleep(0.02)
    return sent


def constraints(end, _):
    """Thousands of tasks whose constraint names one feature hundreds of times."""
    made = []
    while time.time() < end:
        if len(made) < 40:
            made.append(submit("--array=1-100", "--gres=gpu:4", "--mem=100M", "-C", "&".join(["f"] * 511)))
        time.sleep(0.5)
    for job in made:
        run("scancel", str(job))
    return len(made)


def gpus_of(job):
    """Node and indexes of the GPUs of a job of one node."""
    text = run("scontrol", "-d", "-o", "show", "job", str(job)).stdout
    found = re.search(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=\S*IDX:([0-9,-]+)", text)
    indexes = []
    for part in found.group(2).split(","):
        first, _, last = part.partition("-")
        indexes += range(int(first), int(last or first) + 1)
    return found.group(1), indexes


def profile(node, indexes, layers, micro_batches, local_batch, fwd_s, layer_bytes, commu_extra_s, activ_bytes):
    """Returns the profile of a program without pipeline that holds one layer's copy on each GPU, and the seconds of a step that explain it."""
    group = dict(stage=0, fwd_s=fwd_s, fwd_commu_s=0, bwd_s=2 * fwd_s, optim_s=fwd_s / 2, commu_extra_s=commu_extra_s, head_fwd_s=0, head_bwd_s=0,
                 layer_param_bytes=layer_bytes, layer_state_bytes=3 * layer_bytes, extra_param_bytes=0, extra_state_bytes=0,
                 peak_bytes=4.5 * layer_bytes + 1e9)
    plan = dict(micro_batches=micro_batches,
                stages=[dict(layers=layers, tp=1, groups=[dict(node=node, gpu_type="", gpus=[index], local_batch=local_batch) for index in indexes])])
    said = dict(plan=plan, groups=[dict(group, group=number) for number in range(len(indexes))], layer_launch_s=0, activ_bytes=activ_bytes,
                last_activ_p_bytes=0, tied_embedding=True, whole_activations=5)
    return said, micro_batches * 3 * fwd_s + fwd_s


def liar(job, layers, explained):
    """An agent of the job that reports steps of which its profile explains this part."""
    node, indexes = gpus_of(job)
    agent = Agent()
    agent.hello(job)
    agent.status()
    said, step_s = profile(node, indexes, layers, 4, 2, 0.02, 4 * 24 * 12 * 1024 ** 2, 0, 2.0 * 1024 ** 3)
    agent.say(type="profile", generation=1, companions=[], step_s=step_s / explained, profile=said)
    return agent


def profiles(end, _):
    """Five jobs with profiles that explain 55 % and 145 % of their steps, and plans that nobody can solve."""
    jobs = [submit("--elastic=max=1,mode=live,consistency=relaxed", "--gres=gpu:1", "--mem=100M") for _ in range(5)]
    sent = 0
    try:
        if not all(running(job) for job in jobs):
            return 0
        agents = []
        while time.time() < end:
            try:
                agents.append(liar(jobs[sent % 5], 24 if sent < 5 else random.choice([1 << 20, 4096, 24]), 0.55 if sent % 2 == 0 else 1.45))
                sent += 1
            except OSError:
                pass
            if sent < 5:
                continue
            for agent in agents:
                agent.hear()
            for agent in agents[5:-5]:
                agent.link.close()
            del agents[5:-5]
            time.sleep(1)
    finally:
        for job in jobs:
            run("scancel", str(job))
    return sent


def honest(end, _):
    """Counts the GPUs that a job is offered whose profile explains its steps and which gains by more of them."""
    job = submit("--elastic=max=16,mode=live,consistency=relaxed", "--gres=gpu:4", "--mem=100M")
    offered = 0
    try:
        if not running(job):
            return 0
        time.sleep(max(0, end - time.time() - 50))   # liars have reported by then
        node, indexes = gpus_of(job)
        said, step_s = profile(node, indexes, 24, 4, 4, 0.1, 2e8, 0.005, 1e6)
        agent = None
        while time.time() < end and offered == 0:
            try:
                if agent is None:
                    agent = Agent()
                    agent.hello(job, workers=len(indexes))
                    agent.say(type="status", state="ACTIVE", generation=1, workers=len(indexes), stopped_s=0)
                    agent.say(type="profile", generation=1, companions=[], step_s=step_s, profile=said)
                    agent.link.settimeout(5)
                message = unseal(agent.body())
                if message["type"] == "grow":
                    offered = sum(offer["gpus"] for offer in message["offers"])
            except OSError as error:
                if agent is None or not isinstance(error, socket.timeout):
                    agent = None
                else:
                    agent.say(type="status", state="ACTIVE", generation=1, workers=len(indexes), stopped_s=0)
        print(run("swell", "why", str(job)).stdout, file=sys.stderr)
    finally:
        run("scancel", str(job))
    return offered


def updates(end, _):
    """Jobs that consent to fewer GPUs, and shrink themselves while they are held."""
    done = 0
    while time.time() < end:
        job = submit("--hold", "-N12", "--gres=gpu:8", "--elastic=min=16,max=96", "--mem=100M")
        for change in ("numnodes=1", "gres=gpu:1", "NumTasks=1", "AdminComment=swell[elastic=max=999", "qos=expansion"):
            run("scontrol", "update", f"job={job}", change)
            done += 1
        run("scontrol", "release", str(job))
        if running(job, 10):
            time.sleep(2)
            said = run("scontrol", "-o", "show", "job", str(job)).stdout
            basic, wanted = re.search(r" basic=(\d+)", said), re.search(r" wanted=(\d+)", said)
            if wanted and int(wanted.group(1)) > 8 * int(basic.group(1)):
                print(f"updates: stopped: owed {wanted.group(1)} GPUs for {basic.group(1)}")
                return 0
        run("scancel", str(job))
    return done


def submissions(end, _):
    """Submissions that mean little, or too much."""
    gres = ["gpu:1", "gpu", "gpu:99999999999999999999", "gpu:-1", "gpu:0", "gpu:1,gpu:2", "gpu:1(", "gpu:[1-3]", "gpu::1", "gpu:1:1:1:1"]
    elastic = ["max=4", "max=1e4x", "max=nanx", "max=infx", "max=10000x", "min=1", "sizes=" + "/".join(map(str, range(1, 200))),
               "types=" + "/".join(["a"] * 300), "grace=86400,stay=604800,grow=86400", ",,,,", "=", "max=\t4", "max=4]", "max=4 parent=1",
               "types=swell[parent=1]", "max=4\nforged", "x" * 1025, "mode=live,consistency=relaxed,max=4x"]
    more = [["-N1"], ["-N", "1-12"], ["-n", "3"], ["--gpus=8"], ["--exclusive"], ["--array=1-1000"], ["-p", "train,train"],
            ["--qos=+expansion"], ["--qos= expansion"], ["--comment=swell-grant=" + "0" * 1000], ["--comment=swell[parent=1]"], ["-n", "2000000000"],
            ["--dependency=" + ",".join(["afterany:1"] * 200)], ["-C", "|".join(["[f*1]"] * 100)], ["-x", "node[1-12]," * 300 + "node1"],
            ["--signal=B:USR1@60"], ["-J", "JobId=1 UserId=root(0) NodeList=node1"], ["--licenses=" + ",".join(["x:1"] * 200)]]
    made = 0
    while time.time() < end:
        asked = ["sbatch", "--hold", "--parsable", "-o", "/dev/null", "--gres=" + random.choice(gres), "--elastic=" + random.choice(elastic)]
        for _ in range(random.randrange(4)):
            asked += random.choice(more)
        said = run(*asked, "--wrap", "sleep 1")
        made += 1
        job = said.stdout.strip().split(";")[0]
        if said.returncode == 0 and job.isdigit():
            shown = run("scontrol", "-o", "show", "job", job).stdout
            if re.search(r" (QOS|Partition)=expansion ", shown):
                print("submissions: stopped: an ordinary job in the expansion place:", asked)
                return 0
            run("scancel", job)
        time.sleep(0.3)
    return made


def agents(end, arguments):
    """Connected agents that say with real credentials all that they can."""
    jobs = [submit("--elastic=max=8", "--gres=gpu:1", "--mem=100M") for _ in range(int(arguments[0]))]
    each = int(arguments[1])
    said = 0
    try:
        if not all(running(job, 60) for job in jobs):
            return 0
        links = []
        while time.time() < end:
            try:
                while len(links) < each * len(jobs) and time.time() < end:
                    agent = Agent()
                    agent.hello(jobs[len(links) % len(jobs)])
                    agent.link.settimeout(0)
                    agent.left = b""
                    links.append(agent)
            except OSError:
                pass
            for agent in list(links):
                try:
                    if not agent.left:
                        agent.left = agent.frame('{"type":"status","state":"%s","generation":%d,"workers":1,"stopped_s":0}' %
                                                 (random.choice(["ACTIVE", "WARMING"]), said % 1000000))
                        said += 1
                    agent.left = agent.left[agent.link.send(agent.left):]
                    agent.link.recv(65536)
                except BlockingIOError:
                    pass                       # it is not read now, or has heard nothing
                except OSError:
                    agent.link.close()
                    links.remove(agent)
    finally:
        for job in jobs:
            run("scancel", str(job))
    return said


def escapes(end, _):
    """Names, hosts and reasons that command a terminal and forge lines."""

    def act(agent, _, count):
        agent.status(no_growth="%d%s" % (count, ESCAPES), switched=ESCAPES)
        time.sleep(0.3)

    return on_a_job(end, act, host="h" + ESCAPES, options=("-J", "n" + ESCAPES))


def floods(end, _):
    """Reasons that change with every message, and questions without end."""

    def act(agent, job, count):
        for part in range(30):
            agent.status(no_growth="%d.%d" % (count, part) + "y" * 4000)
        try:
            asking = Agent()
            asking.say(type="ask", job=job, version=2, what=random.choice(["why", "history", "max", "pause", "resume", "metrics"]),
                       number=2 + count % 6)
            asking.hear()
            asking.link.close()
        except OSError:
            pass

    return on_a_job(end, act)


def mutated(end, _):
    """Messages of the protocol with bytes changed, frames of any size, and garbage."""
    seeds = [json.dumps(dict(type="hello", job=1, version=2, host="h", workers=1, gpus_per_worker=1, companions=[])),
             json.dumps(dict(type="status", state="ACTIVE", generation=1, workers=1, stopped_s=0)),
             json.dumps(dict(type="grow-done", results=[dict(nonce="00", companion=5, reason="")])),
             json.dumps(dict(type="released", companion=1, reason="x")), json.dumps(dict(type="ask", job=1, version=2, what="why", number=0))]
    sent = 0
    while time.time() < end:
        try:
            agent = Agent()
            for _ in range(4):
                text = list(random.choice(seeds))
                for _ in range(random.randrange(1, 6)):
                    text[random.randrange(len(text))] = random.choice('{}[]",:0-9e\\u\x00é' + "9" * 8)
                agent.say_raw("".join(text))
                sent += 1
            agent.link.sendall(struct.pack(">I", random.choice([0, 1, 65537, 0x7FFFFFFF])) + os.urandom(random.randrange(200)))
            agent.hear()
            agent.link.close()
        except OSError:
            pass
    return sent


def lingering(end, arguments):
    """Connections that are refused for what they say, with real credentials, and do not hang up."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held, made = [], 0
    while time.time() < end:
        try:
            agent = Agent()
            agent.say(type="bye", exit_code=0)
            held.append(agent)
            made += 1
        except OSError:
            pass
        for agent in held[:-int(arguments[0])]:
            agent.link.close()
        del held[:-int(arguments[0])]
    return made


def holder(end, arguments):
    """A job that asks for a day of grace, whose program makes way for more GPUs and leaves for nothing once it has some."""
    job = submit("--elastic=max=8,grace=86400", "--gres=gpu:1", "--mem=100M",
                 wrap="exec swellrun bash -c 'trap \"((SWELL_GENERATION > 0)) || exit 0\" USR1; trap : TERM INT; while :; do sleep 1; done'")
    held = 0
    while time.time() < end and not (arguments and os.path.exists(arguments[0])):
        held = max(held, run("squeue", "--all", "-h", "-n", "swell-%d-lent" % job, "-o", "%i").stdout.count("\n"))
        time.sleep(0.5)
    run("scancel", "--signal=KILL", str(job))
    run("scancel", str(job))
    return held


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    random.seed(35)
    try:
        count = globals()[name](time.time() + seconds, sys.argv[3:])
    except (OSError, RuntimeError) as problem:
        print(f"{name}: stopped: {problem}")
        return
    print(f"{name}: {count}")


main()
