# SPDX-License-Identifier: GPL-2.0-or-later
"""A process that has imported torch as the example does, and forks its workers: run by launcher.py with the Python that has torch.

Reads a line of JSON a worker, {arguments, environment, output}, and answers {"pid"}; says {"pid", "code"} of each that has ended,
with -N for signal N.
"""

import gc
import json
import os
import runpy
import select
import signal
import sys

EXAMPLES = sys.argv[1]
sys.path[:0] = [EXAMPLES, os.path.join(EXAMPLES, "..", "..", "contrib", "lib")]

import lean_torch  # noqa: E402,F401
import torch.distributed  # noqa: E402,F401
import torch.nn.parallel  # noqa: E402,F401

from ending import end_with  # noqa: E402


def work(order):
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.default_int_handler)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", closefd=False)
    os.environ.clear()
    os.environ.update(order["environment"])
    script = os.path.join(EXAMPLES, "train_gpt.py")
    sys.argv = [script, *order["arguments"]]
    end_with(lambda: runpy.run_path(script, run_name="__main__"))


def main():
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    gc.freeze()     # workers need not look through all that was imported, nor copy its pages
    children = set()
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for child in list(children):
                gone, status = os.waitpid(child, os.WNOHANG)
                if gone:
                    children.remove(child)
                    print(json.dumps({"pid": child, "code": os.waitstatus_to_exitcode(status)}), flush=True)
        if 0 in ready:
            line = sys.stdin.buffer.raw.readline()
            if not line:
                break
            child = os.fork()
            if not child:
                work(json.loads(line))
            children.add(child)
            print(json.dumps({"pid": child}), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
