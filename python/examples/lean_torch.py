# SPDX-License-Identifier: GPL-2.0-or-later
"""Import torch without its compiler, which training in eager mode never uses.

Workers are started again at each resize, many on one node, so each second of import counts.
DistributedDataParallel loads torch._dynamo (and sympy with it) only to ask three things that
have a fixed answer where nothing is compiled, and `import torch` registers shape functions that
only compiled or fake tensors need. Stand-ins answer; they load the real modules as soon as
anything else is asked of them.

Import this before torch. SWELL_FULL_TORCH=1 turns it off.
"""

import gc
import importlib
import os
import sys
import types

_stand_ins = []


class _StandIn(types.ModuleType):
    """A module that knows the given answers, and is replaced by the real one for any other."""

    def __init__(self, name, **answers):
        super().__init__(name)
        vars(self).update(answers)
        sys.modules[name] = self
        _stand_ins.append(self)

    def __getattr__(self, name):
        if name in ("__file__", "__warningregistry__"):
            raise AttributeError(name)      # asked of every module by code that walks over them
        _remove_all()
        return getattr(importlib.import_module(self.__name__), name)


def _remove_all():
    """The real modules refer to each other, so all stand-ins go at once."""
    for module in _stand_ins:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
        parent, _, name = module.__name__.rpartition(".")
        if vars(sys.modules[parent]).get(name) is module:
            delattr(sys.modules[parent], name)
    if _stand_ins:
        _stand_ins.clear()
        importlib.import_module("torch._meta_registrations")


def _disable(function=None, *_, **__):
    return function if function else _disable


def _import_torch():
    collecting = gc.isenabled()
    gc.disable()        # all of this is there to stay; looking for garbage in it takes a quarter of the time
    lean = os.environ.get("SWELL_FULL_TORCH", "0") == "0" and "torch" not in sys.modules
    if lean:
        _StandIn("torch._meta_registrations")
    import torch
    if lean and "torch._dynamo" not in sys.modules:
        utils = _StandIn("torch._dynamo.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        rules = _StandIn("torch._dynamo.trace_rules", clear_lru_cache=lambda: None)
        torch._dynamo = _StandIn("torch._dynamo", utils=utils, trace_rules=rules, disable=_disable)
    gc.freeze()
    if collecting:
        gc.enable()


_import_torch()
