"""An arm: everything that was run under one setting, whatever the seed, with a short name that tells it from others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_latentmas.naming import nearest

from .runs import NOT_A_SETTING, Run

_REFERENCES = ("full", "single")
#: The arguments that `relay_name` makes a name of.
NAMED = ("compressor", "relay", "mode")


@dataclass(frozen=True)
class Arm:
    """Runs of one setting. ``runs`` maps a task to its runs, one per seed, in the order of the seeds."""

    name: str
    arguments: dict[str, Any]
    setting: dict[str, Any]
    runs: dict[str, tuple[Run, ...]]

    @property
    def compressor(self) -> str | None:
        """The compressor as it was asked for, without what else the name tells apart."""
        return self.arguments.get("compressor")

    @property
    def is_control(self) -> bool:
        """Whether the judger got no relay, or another document's."""
        return self.arguments.get("relay") in ("none", "shuffled")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks with at least one run."""
        return tuple(self.runs)

    def seeds(self, task: str) -> tuple[int | None, ...]:
        """Seeds of a task's runs."""
        return tuple(run.seed for run in self.runs.get(task, ()))


def gather_arms(runs: Iterable[Run]) -> tuple[list[Arm], list[str]]:
    """Group runs into arms, named, references first, else in the order of the runs; and notes on what was replaced.

    Of several runs of the same setting, task and seed the latest counts.
    """
    latest: dict[str, dict[tuple[str, Any], Run]] = {}
    notes = []
    for run in sorted(runs, key=lambda run: run.stamp):
        held = latest.setdefault(_setting(run), {})
        if (old := held.get((run.task, run.seed))) is not None:
            notes.append(f"{run.task}, seed {run.seed}: {run.origin} replaces the earlier {old.origin}")
        held[run.task, run.seed] = run
    groups = [list(held.values()) for held in latest.values()]
    names = _names([group[0] for group in groups])
    arms = [
        Arm(name, group[0].arguments, group[0].setting, _by_task(group))
        for name, group in zip(names, groups, strict=True)
    ]
    return sorted(arms, key=lambda arm: arm.name not in _REFERENCES), notes


def find_arm(arms: list[Arm], name: str | None) -> Arm:
    """The arm that others are compared with: the one named, else ``full``, else ``single``, else the first.

    Raises:
        ValueError: no arm has that name.
    """
    by_name = {arm.name: arm for arm in arms}
    if name is not None:
        if name not in by_name:
            raise ValueError(f"unknown arm {nearest(name, by_name)}")
        return by_name[name]
    return next((by_name[reference] for reference in _REFERENCES if reference in by_name), arms[0])


def relay_name(arguments: Mapping[str, Any]) -> str | None:
    """The compressor's name; for a baseline its mode, for a control what the judger got in place of its own relay.

    ``single`` and ``text`` for the modes, ``none`` for no relay, ``shuffled`` for the full relay of another document,
    ``h-obf shuffled`` for a compressed one.
    """
    compressor, relay, mode = (arguments.get(name) for name in NAMED)
    if mode in ("single", "text"):
        return mode
    if relay == "none":
        return "none"
    if relay == "shuffled":
        return "shuffled" if compressor in (None, "full") else f"{compressor} shuffled"
    return compressor


def all_tasks(arms: list[Arm]) -> list[str]:
    """Every task of any arm, in the order of first appearance."""
    return list(dict.fromkeys(task for arm in arms for task in arm.tasks))


def _setting(run: Run) -> str:
    return json.dumps({name: str(value) for name, value in run.setting.items()}, sort_keys=True)


def _by_task(group: list[Run]) -> dict[str, tuple[Run, ...]]:
    tasks = dict.fromkeys(run.task for run in group)
    ordered = sorted(group, key=lambda run: (run.seed is None, run.seed))
    return {task: tuple(run for run in ordered if run.task == task) for task in tasks}


def _names(firsts: list[Run]) -> list[str]:
    """The compressor (or model) of each setting, and of what else was given only what tells equal names apart."""
    names = [_head(run, firsts) for run in firsts]
    for source in ("given", "setting"):
        names = [name + _difference(index, names, firsts, source) for index, name in enumerate(names)]
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _head(run: Run, all_runs: list[Run]) -> str:
    parts = [relay_name(run.arguments) or run.arguments.get("pretrained") or run.arguments["model"]]
    for key, told_by in (("model", ("model",)), ("pretrained", ("pretrained", "weights"))):
        # one model has many paths, and one path may be loaded in many ways: both must differ
        if all(len({_told(other, name) for other in all_runs}) > 1 for name in told_by):
            parts.append(run.arguments.get(key))
    return " ".join(dict.fromkeys(_short(str(part)) for part in parts if part))


def _told(run: Run, name: str) -> str:
    """An argument, or for ``weights`` what tells them apart: their fingerprint, else the model's name."""
    return str(run.setting.get(name, run.arguments.get("pretrained" if name == "weights" else name)))


def _short(name: str) -> str:
    """A local folder's own name; ids of models stay as they are."""
    return Path(name).name if Path(name).is_absolute() else name


def _difference(index: int, names: list[str], runs: list[Run], source: str) -> str:
    same = [getattr(run, source) for run, name in zip(runs, names, strict=True) if name == names[index]]
    own = getattr(runs[index], source)
    keys = [k for k in own if k not in (*NOT_A_SETTING, *NAMED) and len({str(other.get(k)) for other in same}) > 1]
    return "".join(f" {key}={own[key]}" for key in keys)
