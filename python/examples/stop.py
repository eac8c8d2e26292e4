# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests to leave, as they arrive by signal.

Import this first: the default action of USR1 kills, and importing torch takes a second in
which the signal may already come. The handler only takes note; the training loop reads the
note at a step boundary and agrees on it with the other ranks.

A launcher that blocks the signal before it starts a worker closes the last gap, the few
milliseconds before Python runs its first line: the signal waits, and is delivered below.
"""

import os
import signal
import sys

restart_requested = False   # the restart signal came: checkpoint, leave with 0
end_requested = False       # TERM came (scancel, time limit, preemption): checkpoint, leave with 143

END_EXIT_CODE = 128 + signal.SIGTERM

# Until this worker meets the others nothing is lost when it leaves at once, and importing torch may take as long as
# there is time to leave. swellrun, which alone sets this, asks every worker; where another launcher asks one, the others
# would wait for it.
leaves_at_once = "SWELL_BASIC_WORKERS" in os.environ


def _restart_signal():
    """The signal named by SWELL_RESTART_SIGNAL: USR1, SIGUSR1 or 10."""
    text = os.environ.get("SWELL_RESTART_SIGNAL", "USR1").strip().upper()
    try:
        if text.isdigit():
            chosen = signal.Signals(int(text))
        else:
            chosen = signal.Signals[text if text.startswith("SIG") else "SIG" + text]
        if chosen in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            raise ValueError
    except (KeyError, ValueError):
        sys.stderr.write(f"train_gpt: SWELL_RESTART_SIGNAL={text} is not a signal to restart on; "
                         "give a name or a number such as USR1, USR2 or 12\n")
        sys.exit(2)
    return chosen


def _note(number, _frame):
    global restart_requested, end_requested
    if leaves_at_once:
        os.write(1, f"train_gpt: rank {os.environ.get('RANK', 0)}: asked to leave before it met the others\n".encode())
        os._exit(END_EXIT_CODE if number == signal.SIGTERM else 0)
    if number == signal.SIGTERM:
        end_requested = True
    else:
        restart_requested = True


def requested():
    return restart_requested or end_requested


RESTART_SIGNAL = _restart_signal()
for _each in (RESTART_SIGNAL, signal.SIGTERM):
    signal.signal(_each, _note)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {RESTART_SIGNAL, signal.SIGTERM})
