# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of jobs on a cluster that have imported torch before they start: a re-plan takes seconds on a small machine, not a minute.

  warm.py serve SOCKET PRELOAD          forks a process for each program that asks for one
  warm.py run SOCKET SCRIPT [ARG...]    is that program for its shim: its output, environment and folder, its signals and its end

The server runs the Python file PRELOAD once, which imports what takes time. A program that is killed takes its process along.
"""

import array
import gc
import json
import os
import runpy
import signal
import socket
import sys

from ending import end_with

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def run(path, words):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(path)
        order = json.dumps({"words": words, "environment": dict(os.environ), "folder": os.getcwd()}).encode()
        server.sendmsg([len(order).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
        server.sendall(order)
        pid = int.from_bytes(server.recv(4, socket.MSG_WAITALL), "little")
        for number in _FORWARDED:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        answer = server.recv(4, socket.MSG_WAITALL)
    code = int.from_bytes(answer, "little", signed=True) if answer else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _work(order, output, errors):
    def program():
        os.dup2(output, 1)
        os.dup2(errors, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        sys.argv = order["words"]
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
    end_with(program)


def _serve_one(client):
    """In a process of its own: the program's is its child, and dies with it or with the client."""
    length, rights, _, _ = client.recvmsg(4, socket.CMSG_SPACE(8), socket.MSG_WAITALL)
    descriptors = array.array("i", rights[0][2])
    order = json.loads(client.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
    child = os.fork()
    if not child:
        client.close()
        _work(order, *descriptors)
    for each in descriptors:
        os.close(each)
    client.sendall(child.to_bytes(4, "little"))
    if not os.fork():       # nothing is sent to it: it reads the end of the connection when the client is gone
        try:
            client.recv(1)
            os.kill(child, signal.SIGKILL)
        except (OSError, ProcessLookupError):
            pass
        os._exit(0)
    _, status = os.waitpid(child, 0)
    try:
        client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    os._exit(0)


def serve(path, preload):
    sys.path.insert(0, os.path.dirname(os.path.abspath(preload)))
    runpy.run_path(preload)
    gc.freeze()     # workers need not look through all that was imported, nor copy its pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)      # nobody asks how helpers ended
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        while True:
            client, _ = listener.accept()
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _serve_one(client)
            client.close()


if __name__ == "__main__":
    serve(sys.argv[2], sys.argv[3]) if sys.argv[1] == "serve" else run(sys.argv[2], sys.argv[3:])
