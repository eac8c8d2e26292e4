# SPDX-License-Identifier: BSD-3-Clause
"""The values that a Lightning training has logged in its present epoch, and its metrics' states, which Lightning's own checkpoints leave out."""

from __future__ import annotations

from typing import Any

import torch
import torchmetrics
from lightning.pytorch.trainer.connectors.logger_connector.result import _Metadata, _ResultMetric, _Sync
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_mean, dim_zero_min, dim_zero_sum

__all__ = ["is_any", "joined", "restore", "taken"]

_PLAIN = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx", "dataloader_idx", "metric_attribute")
_KINDS = {dim_zero_sum: "sum", dim_zero_cat: "cat", dim_zero_max: "max", dim_zero_min: "min", dim_zero_mean: "mean"}


def _metrics(module: torch.nn.Module) -> dict[str, Any]:
    return {name: each for name, each in module.named_modules() if isinstance(each, torchmetrics.Metric)}


def _copy(value: Any) -> Any:
    return [each.detach().cpu() for each in value] if isinstance(value, list) else value.detach().clone().cpu()


class _Restored(_Metadata):  # type: ignore[misc]
    """How a value is logged, until the first call after a start: the call's own function and process group stand then, which no checkpoint holds (reduce_fx=max, sync_dist_group=)."""

    def __eq__(self, other: Any) -> bool:
        if type(other) is not _Metadata or any(getattr(self, name) != getattr(other, name) for name in _PLAIN) or self.__dict__["reduce_fx"].__name__ != other.reduce_fx.__name__ or \
                (self.__dict__["_sync"].should, self.__dict__["_sync"].rank_zero_only) != (other.sync.should, other.sync.rank_zero_only):
            return False
        self.__dict__.update(reduce_fx=other.reduce_fx, _sync=other.sync)
        object.__setattr__(self, "__class__", _Metadata)
        return True


def is_any(trainer: Any, module: torch.nn.Module) -> bool:
    """Whether taken() has more than what callbacks monitor, which all workers have alike."""
    return any(not each.has_reset for each in trainer.fit_loop.epoch_loop._results.values()) or any(each.update_called for each in _metrics(module).values())


def taken(trainer: Any, module: torch.nn.Module) -> dict[str, Any]:
    """Returns this worker's part: results of the epoch so far, states of metrics that were updated in it, and what callbacks monitor."""
    logged = {}
    for key, each in trainer.fit_loop.epoch_loop._results.items():
        if each.has_reset:
            continue
        meta = each.meta
        about = {name: getattr(meta, name) for name in _PLAIN}
        about.update(reduce=meta.reduce_fx.__name__, syncs=meta.sync.should, first=meta.sync.rank_zero_only)
        logged[key] = {"about": about, "value": each.value.detach().clone().cpu() if each.is_tensor else None,
                       "size": each.cumulated_batch_size.clone().cpu() if each.is_tensor and meta.is_mean_reduction else None}
    states = {name: {"count": metric._update_count, "of": {state: _copy(getattr(metric, state)) for state in metric._defaults},
                     "by": {state: _KINDS.get(metric._reductions[state], "") for state in metric._defaults}}
              for name, metric in _metrics(module).items() if metric.update_called}
    monitored = {name: value.detach().clone().cpu() for name, value in trainer._logger_connector._callback_metrics.items()}
    return {"logged": logged, "states": states, "monitored": monitored}


def _sum(values: list[Any]) -> Any:
    return torch.stack(values).sum(0)


def _joined_by(kind: str, values: list[Any]) -> Any:
    """One value for all workers' values of a state."""
    if kind == "cat":
        return [part for value in values for part in (value if isinstance(value, list) else [value])]
    if kind == "sum":
        return _sum(values)
    if kind in ("max", "min"):
        return getattr(torch.stack(values), "a" + kind)(0)
    return torch.stack(values).mean(0) if kind == "mean" else values[0]


def joined(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what all workers have taken as one, for restore() on any number of them."""
    first = each[0]
    logged = {}
    for key, entry in first["logged"].items():
        parts, about = [part["logged"][key] for part in each if key in part["logged"]], entry["about"]
        if entry["value"] is None or not about["syncs"]:
            logged[key] = entry     # of the first worker alone, as Lightning reports it
            continue
        by = "sum" if about["reduce"] in ("mean", "sum") else about["reduce"]
        logged[key] = {"about": about, "value": _joined_by(by, [part["value"] for part in parts]),
                       "size": _sum([part["size"] for part in parts]) if entry["size"] is not None else None}
    states = {}
    for name, entry in first["states"].items():
        parts = [part["states"][name] for part in each if name in part["states"]]
        states[name] = {"count": entry["count"], "by": entry["by"],
                        "of": {state: _joined_by(by, [part["of"][state] for part in parts]) for state, by in entry["by"].items()}}
    return {"logged": logged, "states": states, "monitored": first["monitored"], "world": len(each)}


def restore(trainer: Any, module: torch.nn.Module, saved: dict[str, Any]) -> None:
    """Goes on with what joined() has returned. Sums over workers are restored on the first one."""
    is_first, device = trainer.global_rank == 0, trainer.strategy.root_device
    metrics, results = _metrics(module), trainer.fit_loop.epoch_loop._results
    for name, entry in saved["states"].items():
        metric = metrics.get(name)
        if metric is None:
            continue
        metric.reset()
        metric._update_count = entry["count"]
        for state, value in entry["of"].items():
            if is_first or entry["by"][state] not in ("sum", "cat"):
                is_list = isinstance(metric._defaults[state], list)
                value = [part.to(device) for part in value] if isinstance(value, list) else value.to(device)
                setattr(metric, state, torch.cat(value) if isinstance(value, list) and not is_list else value)
    for key, entry in saved["logged"].items():
        about = entry["about"]
        meta = _Restored(**{name: about[name] for name in _PLAIN}, reduce_fx=getattr(torch, about["reduce"]))
        meta.sync = _Sync(_should=about["syncs"], fn=trainer.strategy.reduce, rank_zero_only=about["first"])
        made = results[key] = _ResultMetric(meta, entry["value"] is not None).to(device)
        if entry["value"] is None:
            made.value = metrics.get(about["metric_attribute"])
            if made.value is None:
                del results[key]
            continue
        made._update_count = 1
        if not is_first and about["syncs"] and about["reduce"] in ("mean", "sum"):
            continue        # nothing, beside what the first one has
        made.value = entry["value"].to(device)
        if entry["size"] is not None:
            # A worker that counts for itself has batches of another size now.
            made.cumulated_batch_size = entry["size"].to(device) * (1 if about["syncs"] else saved["world"])
            if not about["syncs"]:
                made.value, made.cumulated_batch_size = made.value * saved["world"] / trainer.world_size, made.cumulated_batch_size / trainer.world_size
    if saved["logged"]:
        trainer._logger_connector._first_loop_iter = False      # else what is logged first begins anew
    trainer._logger_connector._callback_metrics.update({name: value.to(device) for name, value in saved["monitored"].items()})
