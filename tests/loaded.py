"""Tasks and groups as lm-eval loads them, by name; its older versions nest them and have no call for just that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lm_eval.tasks import TaskManager


@dataclass
class Loaded:
    """tasks: lm-eval's task objects. groups: the tasks under each group.

    by_size: per group and metric, whether a task counts by its size in the mean.
    """

    tasks: dict[str, Any]
    groups: dict[str, set[str]]
    by_size: dict[str, dict[str, bool]]


def loaded(manager: TaskManager, name: str) -> Loaded:
    """A task or a group with all that is in it."""
    if hasattr(manager, "load"):
        found = manager.load(name)
        groups = {group: {task.task_name for task in held.get_all_tasks()} for group, held in found["groups"].items()}
        means = {group: _means(held.aggregate_metric_list) for group, held in found["groups"].items()}
        return Loaded(found["tasks"], groups, means)
    whole = Loaded({}, {}, {})
    _collect(manager.load_task_or_group(name), whole)
    return whole


def _collect(nested: dict[Any, Any], whole: Loaded) -> set[str]:
    names: set[str] = set()
    for key, value in nested.items():
        if isinstance(value, dict):
            whole.groups[key.group] = _collect(value, whole)
            whole.by_size[key.group] = _means(key._config.aggregate_metric_list)
            names |= whole.groups[key.group]
        else:
            whole.tasks[key] = value
            names.add(key)
    return names


def _means(metrics: list[Any]) -> dict[str, bool]:
    return {metric.metric: metric.weight_by_size for metric in metrics}


def task_of(manager: TaskManager, name: str) -> Any:
    """One task."""
    return loaded(manager, name).tasks[name]
