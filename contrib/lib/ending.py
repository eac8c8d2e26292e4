# SPDX-License-Identifier: GPL-2.0-or-later
"""How a forked process ends that runs a program."""

import os
import sys


def end_with(program):
    """Calls the program, and ends this process as an interpreter that ran it would, but at once: what the parent has imported stays as it is."""
    code = 1
    try:
        program()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
