# SPDX-License-Identifier: BSD-3-Clause
"""Whether a Trainer's loss is the same however a global batch is made of passes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import transformers

from swell import _request
from swell._apart import Outputs
from swell._divided import Divided
from swell._generators import generators, restore_generators
from swell._rounded import say_what_is_rounded
from swell._share import balance_of_experts, why_no_mean

__all__ = ["Passes", "Scale"]

_KNOWN = ("transformers", "trl")        # whose own losses are divided by num_items_in_batch
_SAME = 1e-3        # of a loss in half precision


def _hands_on(model: type) -> bool:
    """Whether a language model of transformers' hands what it is given beside its inputs on to its loss, as its code says."""
    if not model.__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return False
    try:
        code = inspect.getsource(inspect.unwrap(model.forward))      # type: ignore[attr-defined]
    except (OSError, TypeError):
        return False
    calls = re.findall(r"loss_function\((.*?)\)\n", code, re.DOTALL)
    return bool(calls) and all("**" in each for each in calls) and "CrossEntropyLoss" not in code


def _is_divided(trainer: Any, items: Any) -> bool:
    """Whether the Trainer takes a loss for divided by the number of items in the step: as the script says, or else by itself."""
    if trainer.loss_is_scaled_for_ga is not None:
        return bool(trainer.loss_is_scaled_for_ga)
    return (trainer.model_accepts_loss_kwargs and items is not None) or trainer.compute_loss_func is not None


class Passes:
    """Looks at the losses of a start's first steps for one that is not a mean over the samples of its pass. hold: called with the sentence that says why the job can be lent nothing."""

    def __init__(self, trainer: Any, hold: Callable[[str], None]) -> None:
        self._trainer, self._hold = trainer, hold
        self._outputs: Outputs | None = None
        self._divided = Divided()
        self._looks = self._is_open = _request.under_swellrun() and _request.place().rank == 0      # _is_open: within the first step

    def begin(self, model: torch.nn.Module) -> None:
        """A pass begins."""
        if self._is_open:
            self._outputs = self._outputs or Outputs(model)
            self._outputs.begin()

    def look(self, made: Any, items: Any, samples: int) -> None:
        """See what has been made of the pass that began, over so many samples."""
        if not self._looks:
            return
        loss, is_divided = made[0] if isinstance(made, tuple) else made, _is_divided(self._trainer, items)
        why = ""
        if self._is_open:
            say_what_is_rounded(loss)
        if self._outputs is not None:
            self._outputs.say_what_meets(samples)
            why = self._outputs.why_not_apart(loss, samples)
        if not is_divided:
            why = why or (why_no_mean(loss, samples) if self._is_open else "") or self._divided.why(loss, samples)
        if why:
            self._hold(why)
            self._looks = False
            self.close()

    def close(self) -> None:
        """The step is over."""
        self._is_open = False
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None


class Scale:
    """Looks at a training's first pass for losses that the Trainer takes for divided by num_items_in_batch, and that are not.

    Such a loss grows with the number of passes of a step, or of workers, which a resize changes. Losses of TRL's own, and of language models that hand the number
    of items on to theirs, are not looked at. Many others of transformers' take that number and do not use it, as those that classify; of these, and of the
    script's own, the first pass is computed once more for the number of its items, and once for twice that number.

    bar: called on all workers with the sentence that says why the job can be lent nothing.
    """

    def __init__(self, trainer: Any, bar: Callable[[str], None], group: Callable[[], dist.ProcessGroup | None]) -> None:
        self.trainer, self._bar, self._group = trainer, bar, group
        self._is_open = self._may_be_other() or bool(balance_of_experts(self._model()))

    def _model(self) -> Any:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    def _may_be_other(self) -> bool:
        trainer = self.trainer
        if trainer.compute_loss_func is not None or type(trainer).compute_loss.__module__.partition(".")[0] not in _KNOWN:
            return True
        model = type(self._model())
        if model.__module__.partition(".")[0] not in _KNOWN:
            return True
        return type(trainer).compute_loss.__module__.startswith("transformers.") and not _hands_on(model)

    def look(self, loss: Callable[..., Any], model: Any, inputs: dict[str, Any], items: Any) -> None:
        """See how the loss of a pass depends on the number of items. Every worker calls it before each pass, until it is known."""
        if not self._is_open:
            return
        found = self._why_not(loss, model, inputs, items)
        each, group = [found], self._group()
        if group is not None:
            each *= dist.get_world_size(group)
            dist.all_gather_object(each, found, group=group)
        if None in each:
            return      # nothing in a pass of a worker's was to be learned
        self._is_open = False
        if why := next(filter(None, each), ""):
            self._bar(why)

    def _why_not(self, loss: Callable[..., Any], model: Any, inputs: dict[str, Any], items: Any) -> str | None:
        """Returns why the loss depends on the passes; empty: it does not; None: it cannot be told from this pass."""
        trainer = self.trainer
        is_divided = _is_divided(trainer, items)
        is_own = type(trainer).compute_loss is transformers.Trainer.compute_loss
        if is_divided and (how := balance_of_experts(self._model())):
            return (f"the balance of experts ({how}) is added to the loss of each pass as it is, and grows with the passes of a step: set accepts_loss_kwargs = False in {type(self._model()).__name__}, so that "
                    "a step takes the mean of its passes, or output_router_logits = False in its config")
        if not is_divided:
            multiplies = is_own and items is not None and (trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None)
            return f"the Trainer multiplies the loss by the number of workers: {self._remedy(is_own)}" if multiplies else ""
        if items is None:
            return f"the loss is a mean over a pass, and grows with the passes of a step: {self._remedy(is_own)}"
        once, twice = (self._computed(loss, model, inputs, times * items) for times in (1, 2))
        if not once or once != once or abs(once) == float("inf"):
            return None
        if abs(2 * twice - once) <= _SAME * abs(once):
            return ""
        return f"the loss is not divided by num_items_in_batch, and grows with the passes of a step: {self._remedy(is_own)}"

    def _remedy(self, is_own: bool) -> str:
        if self.trainer.compute_loss_func is not None:
            return "have compute_loss_func return the sum over the pass, divided by num_items_in_batch"
        if not is_own:
            return f"set loss_is_scaled_for_ga = False in {type(self.trainer).__name__}, whose compute_loss() gives a mean"
        return f"set accepts_loss_kwargs = False in {type(self._model()).__name__}, whose loss is a mean"

    def _computed(self, loss: Callable[..., Any], model: Any, inputs: dict[str, Any], items: Any) -> float:
        """Returns a loss; nothing of the training is changed by it."""
        kept, buffers = generators(), [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            with torch.no_grad():
                made = loss(model, dict(inputs), num_items_in_batch=items)
        finally:
            restore_generators(kept)
            for buffer, value in buffers:
                buffer.copy_(value)
        return float(made[0] if isinstance(made, tuple) else made)
