# SPDX-License-Identifier: BSD-3-Clause
"""What swell.h has numbers for."""

import enum


class Kind(enum.IntEnum):
    """What a tensor of the training state is."""

    PARAMETER = 0
    GRADIENT = 1
    MOMENT = 2
    OPTIMIZER_STEP = 3
    SCHEDULER = 4
    RNG = 5
    DATA_POSITION = 6


class Region(enum.IntEnum):
    """What a part of a step does, whose time is taken."""

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
    """What a step boundary asks of the program."""

    GO_ON = 0
    SWITCH = 1      # the state has been taken over: by the session that was offered, else by another program: leave, with exit code 0
    STOP = 2        # leave after what you wish to write
    CHECKPOINT = 3
    PREPARE = 4     # another epoch is being prepared, in which this process may stay: next(), then go on
