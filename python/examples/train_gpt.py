#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Train a small GPT that can be stopped, started again over another number of workers, and be
none the worse for it. Run under swellrun (or torchrun), or alone; --help says the rest."""

import stop  # first: a signal may come at any moment

import os
import re
import sys
import warnings

import checkpoint
import options as command_line

# gloo's errors are plain RuntimeErrors; these words tell "another worker has gone" from a bug here.
LOST = ("gloo", "connection closed", "connection reset", "broken pipe", "nccl", "socket", "timed out")


def main():
    options, place = command_line.parse()
    done = checkpoint.latest_step(options.checkpoint_dir)
    if done >= options.steps:
        if place.rank == 0:
            print(f"train_gpt: already finished: {done} steps in {options.checkpoint_dir}")
        return 0

    os.environ.setdefault("OMP_NUM_THREADS", "1")      # workers share the cores of a node
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")     # not used here
    import trainer
    try:
        return trainer.run(options, place)
    except OSError as error:
        sys.stderr.write(f"train_gpt: rank {place.rank}: {error}\n")
        return 1
    except RuntimeError as error:
        # torch's first line without where in its source it arose, and without advice.
        reason = re.sub(r"\[/[^]]*\]\s*|\. .*", "", str(error).strip().split("\n")[0])[:200]
        if not type(error).__name__.startswith("Dist") and not any(word in reason.lower() for word in LOST):
            raise
        sys.stderr.write(f"train_gpt: rank {place.rank}: lost another worker ({reason}); "
                         "start again to go on from the last checkpoint\n")
        return 1


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leave:
        if isinstance(leave.code, str):
            sys.stderr.write(leave.code + "\n")
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)      # torch's own threads may still wait for a worker that has gone
