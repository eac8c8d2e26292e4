# SPDX-License-Identifier: BSD-3-Clause
"""How a worker of swellrun ends with an error that Swell raises for its user: with one sentence on one worker, without tracebacks.

Needs no torch. Errors of the script, of its libraries, and faults of Swell keep their tracebacks.
"""

from __future__ import annotations

import dis
import hashlib
import os
import socket
import struct
import sys
import time
from types import TracebackType

from swell import _request

__all__ = ["install", "is_for_the_user"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_KINDS = (OSError, RuntimeError, TypeError, ValueError)
_LEAVING_S = 2.0        # in which swellrun asks this worker, too, after another has left
_said: socket.socket | None = None


def install() -> None:
    """Under swellrun, unless the script's own environment has a hook already. swell.check wants tracebacks."""
    if _request.under_swellrun() and "SWELL_CHECK_FOLDER" not in os.environ and sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _request.wait_to_be_asked(_LEAVING_S if _has_lost_a_worker(error) else 0)
    try:
        sentence = _sentence(error, trace)
    except Exception:       # the error itself is to be seen
        sentence = ""
    if not sentence:
        sys.__excepthook__(kind, error, trace)
    elif _is_first(error, sentence):
        print(f"swell: {sentence}", file=sys.__stderr__, flush=True)


def _has_lost_a_worker(error: BaseException) -> bool:
    """Whether it is gloo's or NCCL's word of a worker that has ended."""
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in ("by peer", "connection closed", "connection refused", "broken pipe", "remote process exited"))


def _sentence(error: BaseException, trace: TracebackType | None) -> str:
    """Empty: it is not an error for the user. of_all_workers: agreed on, by checkpoint.on_all(); is_foreign: and not for the user."""
    if not isinstance(error, _KINDS) or getattr(error, "is_foreign", False) or trace is None or not _is_raised_here(trace):
        return ""
    if type(error).__module__ == "swell._native":       # libswell's word, as of a driver's error: where it came up tells more
        return ""
    if isinstance(error, OSError) or type(error).__module__.startswith("swell."):
        return str(error)
    where = ""
    while trace is not None and _is_of_the_script(file := trace.tb_frame.f_code.co_filename):
        where = f"{os.path.relpath(file)}, line {trace.tb_lineno}: "
        trace = trace.tb_next
    return f"{where}{type(error).__name__}: {error}"


def _is_of_the_script(file: str) -> bool:
    return not file.startswith(_PACKAGE) and f"{os.sep}site-packages{os.sep}" not in file and f"{os.sep}dist-packages{os.sep}" not in file


def is_for_the_user(error: BaseException) -> bool:
    """Whether a statement of this package raises it, or the system refuses something."""
    return isinstance(error, OSError) or (isinstance(error, _KINDS) and error.__traceback__ is not None and _is_raised_here(error.__traceback__))


def _is_raised_here(trace: TracebackType) -> bool:
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return code.co_filename.startswith(_PACKAGE) and trace.tb_lasti >= 0 and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _is_first(error: BaseException, sentence: str) -> bool:
    """Whether this worker is the one that says it: rank 0 where all have it, else the first of this machine."""
    global _said
    if getattr(error, "of_all_workers", False):
        return _request.place().rank == 0
    _said = socket.socket(socket.AF_UNIX)       # until this process ends
    try:
        _said.bind(_place_of(sentence))
        _said.listen(1024)
    except OSError:
        return not _is_of_this_user(_place_of(sentence))
    time.sleep(0.2)     # others come to it a little later
    return True


def _place_of(sentence: str) -> str:
    """Returns the name of the socket that the worker has which says a sentence."""
    job = "-".join(os.environ.get(name, "") for name in ("SWELL_RUN", "SWELL_JOB_ID", "SWELL_GENERATION"))
    return "\0swell-uncaught-" + hashlib.sha256(f"{os.getuid()} {job} {sentence}".encode(errors="replace")).hexdigest()[:32]


def _is_of_this_user(place: str) -> bool:
    """Whether a process of this user listens there: anybody on the machine may, and would keep errors from being said."""
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(1)
        try:
            other.connect(place)
            _, uid, _ = struct.unpack("3i", other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        except OSError:
            return False
    return bool(uid == os.geteuid())
