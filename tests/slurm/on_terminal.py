#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs `swell top` on a terminal of its own: on_terminal.py END COMMAND...

Waits until it has drawn its screen twice, ends it by END (a key, or TERM for the signal), and prints the last screen. An error
where it draws nothing, does not end, or does not leave the terminal as it was.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE_S = 60
ROWS, COLUMNS = 30, 100
OPENS, DRAWS, DRAWN, CLOSES = b"\x1b[?1049h\x1b[?25l", b"\x1b[H", b"\x1b[J", b"\x1b[?25h\x1b[?1049l"


def read_until(terminal: int, written: bytes, is_enough) -> bytes:
    """All that was written by when it is enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(written):
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            sys.exit(f"not within {PATIENCE_S} s; it wrote {written!r}")
        written += os.read(terminal, 65536)
    return written


def main() -> None:
    end, command = sys.argv[1], sys.argv[2:]
    terminal, its_side = pty.openpty()
    fcntl.ioctl(its_side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    before = termios.tcgetattr(its_side)
    with subprocess.Popen(command, stdin=its_side, stdout=its_side, stderr=its_side, start_new_session=True) as program:
        try:
            written = read_until(terminal, b"", lambda text: text.count(DRAWN) >= 2)
            if termios.tcgetattr(its_side)[3] & (termios.ICANON | termios.ECHO):
                sys.exit("it does not read keys as they are typed")
            os.write(terminal, b"x")  # no key of its own
            written = read_until(terminal, written, lambda text: text.count(DRAWN) >= 3)
            if program.poll() is not None or CLOSES in written:
                sys.exit(f"it has ended by itself; it wrote {written!r}")
            if end == "TERM":
                program.send_signal(signal.SIGTERM)
            else:
                os.write(terminal, end.encode())
            written = read_until(terminal, written, lambda text: text.endswith(CLOSES))
            if program.wait(PATIENCE_S) != 0:
                sys.exit(f"its status is {program.returncode}")
        finally:
            program.kill()
    if not written.startswith(OPENS) or written.count(OPENS) != 1 or written.count(CLOSES) != 1:
        sys.exit(f"the other screen is not entered or left once: {written!r}")
    if termios.tcgetattr(its_side) != before:
        sys.exit(f"the terminal was {before}, and is {termios.tcgetattr(its_side)}")
    last = written[written.rindex(DRAWS) + len(DRAWS) : written.rindex(DRAWN)].decode()
    print(last.replace("\r\n", "\n").replace("\x1b[K", ""), end="")


if __name__ == "__main__":
    main()
