#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One attack of tests/fault/hostile for some seconds, as the user that runs it.

hostile_user.py NAME SECONDS [ARGUMENT...]: prints "NAME: COUNT ..." at its end. HOSTILE_PORT and HOSTILE_MUNGE name the
controller's port and munge's socket.
"""
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


class Agent:
    """A client of the controller that may say anything."""

    def __init__(self):
        self.link = socket.create_connection(("127.0.0.1", int(os.environ["HOSTILE_PORT"])), timeout=10)
        self.nonce = self.body().decode().split(" ", 1)[1]
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

    def say_raw(self, message):
        self.number += 1
        text = '{"conn":"%s","from":"client","seq":%d,"m":%s}' % (self.nonce, self.number, message)
        sealed = subprocess.run(["munge", "--socket=" + os.environ["HOSTILE_MUNGE"]], input=text.encode(errors="surrogateescape"),
                                capture_output=True).stdout
        self.link.sendall(struct.pack(">I", len(sealed)) + sealed)

    def say(self, **message):
        self.say_raw(json.dumps(message))

    def hello(self, job, workers=1, host="evil"):
        self.say(type="hello", job=job, version=2, host=host, workers=workers, gpus_per_worker=1, companions=[])

    def status(self, **more):
        self.say(type="status", state="ACTIVE", epoch=1, workers=1, stopped_s=0, **more)

    def hear(self):
        """Reads what has come, so that the controller need not hang up."""
        self.link.settimeout(0.01)
        try:
            while self.link.recv(65536):
                pass
        except OSError:
            pass
        self.link.settimeout(10)


def on_a_job(body, elastic="max=8", options=()):
    job = submit("--elastic=" + elastic, "--gres=gpu:1", "--mem=100M", *options)
    try:
        return body(job) if running(job) else 0
    finally:
        run("scancel", str(job))


def silent(end, ports):
    """Opens connections that say nothing, to every port of every Swell process, as a stranger may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held, opened = [], 0
    while time.time() < end:
        for port in ports:
            one = socket.socket()
            one.settimeout(0.2)
            try:
                one.connect(("127.0.0.1", int(port)))
                held.append(one)
                opened += 1
            except OSError:
                one.close()
        if len(held) > 3000:
            for one in held[:1500]:
                one.close()
            del held[:1500]
        time.sleep(0.002)
    return opened


def datagrams(end, names):
    """Floods the abstract sockets at which shims hear their programs."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sent = 0
    while time.time() < end:
        for name in names:
            for _ in range(500):
                try:
                    one.sendto(os.urandom(8), "\0" + name)
                    sent += 1
                except OSError:
                    pass
        time.sleep(0.02)
    return sent


def constraints(end, _):
    """Arrays whose constraint names one feature hundreds of times."""
    made = []
    while time.time() < end:
        made.append(submit("--array=1-100", "--gres=gpu:4", "--mem=100M", "-C", "&".join(["f"] * 511)))
        time.sleep(0.5)
    for job in made:
        run("scancel", str(job))
    return len(made)


def gpus_of(job):
    """Node and index of the job's one GPU."""
    text = run("scontrol", "-d", "-o", "show", "job", str(job)).stdout
    found = re.search(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=\S*IDX:(\d+)", text)
    return found.group(1), int(found.group(2))


def profiles(end, _):
    """Profiles that explain 55 % and 145 % of the steps, and plans that nobody can solve."""

    def body(job):
        node, index = gpus_of(job)
        agent, sent = Agent(), 0
        agent.hello(job)
        agent.status()
        while time.time() < end:
            layers = random.choice([24, 24, 24, 1 << 20, 4096])
            group = dict(stage=0, group=0, fwd_s=0.02, fwd_commu_s=0, bwd_s=0.04, optim_s=0.01, commu_extra_s=0, head_fwd_s=0, head_bwd_s=0,
                         layer_param_bytes=1e8, layer_state_bytes=3e8, extra_param_bytes=0, extra_state_bytes=0, peak_bytes=2e9)
            plan = dict(micro_batches=random.choice([4, 4, 1 << 20]),
                        stages=[dict(layers=layers, tp=1, groups=[dict(node=node, gpu_type="", gpus=[index], local_batch=2)])])
            agent.say(type="profile", epoch=1, companions=[], step_s=0.25 * random.choice([0.55, 1.45, 1]),
                      profile=dict(plan=plan, groups=[group], layer_launch_s=0, activ_bytes=4e6, last_activ_p_bytes=0, tied_embedding=True,
                                   whole_activations=5))
            sent += 1
            agent.hear()
            time.sleep(0.2)
        return sent

    return on_a_job(body, "max=8,mode=live,consistency=relaxed")


def updates(end, _):
    """Jobs that consent to fewer GPUs, and shrink themselves while they are held."""
    done = 0
    while time.time() < end:
        job = submit("--hold", "-N2", "--gres=gpu:4", "--elastic=min=4", "--mem=100M")
        for change in ("numnodes=1", "gres=gpu:1", "NumTasks=1", "AdminComment=swell[elastic=max=999", "qos=expansion"):
            run("scontrol", "update", f"job={job}", change)
            done += 1
        run("scontrol", "release", str(job))
        time.sleep(2)
        run("scancel", str(job))
    return done


def escapes(end, _):
    """Names, hosts and reasons that command a terminal and forge lines."""

    def body(job):
        agent, sent = Agent(), 0
        agent.hello(job, host="h" + ESCAPES)
        while time.time() < end:
            agent.status(no_growth="%d%s" % (sent, ESCAPES), switched=ESCAPES)
            sent += 1
            agent.hear()
            time.sleep(0.3)
        return sent

    return on_a_job(body, options=("-J", "n" + ESCAPES))


def floods(end, _):
    """Reasons that change with every message, and questions without end."""

    def body(job):
        agent, sent = Agent(), 0
        agent.hello(job)
        while time.time() < end:
            agent.status(no_growth="%d" % sent + "y" * 4000)
            try:
                asking = Agent()
                asking.say(type="ask", job=job, version=2, what=random.choice(["why", "history", "max", "pause", "resume", "metrics"]),
                           number=2 + sent % 6)
                asking.hear()
                asking.link.close()
            except OSError:
                pass
            agent.hear()
            sent += 1
        return sent

    return on_a_job(body)


def mutated(end, _):
    """Messages of the protocol with bytes changed, frames of any size, and garbage."""
    seeds = [json.dumps(dict(type="hello", job=1, version=2, host="h", workers=1, gpus_per_worker=1, companions=[])),
             json.dumps(dict(type="status", state="ACTIVE", epoch=1, workers=1, stopped_s=0)),
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


def holder(end, arguments):
    """A job that asks for a day of grace, and whose program leaves for nothing."""
    job = submit("--elastic=max=8,grace=86400", "--gres=gpu:1", "--mem=100M",
                 wrap="exec swellrun bash -c 'trap \"\" USR1 TERM INT; while :; do sleep 1; done'")
    while time.time() < end:
        time.sleep(0.5)
    run("scancel", "--signal=KILL", str(job))
    run("scancel", str(job))
    return 1


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
