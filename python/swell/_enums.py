# SPDX-License-Identifier: BSD-3-Clause
"""The enumerations of swell.h."""

import enum


class Kind(enum.IntEnum):
    """The kind of a tensor of the training state."""

    PARAMETER = 0
    GRADIENT = 1
    MOMENT = 2
    OPTIMIZER_STEP = 3
    SCHEDULER = 4
    RNG = 5
    DATA_POSITION = 6


class Region(enum.IntEnum):
    """The kind of work in a timed part of a step."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    TP_ALLREDUCE = 3
    DP_SYNC = 4
    SEND = 5
    RECEIVE = 6
    HEAD = 7
    WEIGHTS = 8


class Action(enum.IntEnum):
    """The requests that a step boundary can make of the program."""

    GO_ON = 0
    SWITCH = 1      # the state has been taken over: by the session that was offered, else by another program: leave, with exit code 0
    STOP = 2        # leave after what you wish to write
    CHECKPOINT = 3
    PREPARE = 4     # another epoch is being prepared, in which this process may stay: next(), then go on
