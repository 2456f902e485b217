"""Sweeps: scores over one numeric argument, for arms that are equal in everything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .arms import Arm
from .scores import score_interval, score_unit
from .statistics import Interval
from .tables import Column, Row, Table


@dataclass(frozen=True)
class Point:
    """One value of a swept argument: an arm's score on a task in shown units."""

    value: float
    score: Interval


def sweep(arms: Sequence[Arm], argument: str, task: str) -> dict[str, list[Point]]:
    """Scores over a numeric argument, per series of arms that are equal in everything else; two values at least."""
    series: dict[str, list[tuple[Arm, float]]] = {}
    for arm in arms:
        if (value := _as_number(arm.setting.get(argument))) is not None and task in arm.tasks:
            rest = {k: str(v) for k, v in arm.setting.items() if k not in (argument, "composition")}
            key = json.dumps(rest | {"compressor": arm.compressor}, sort_keys=True)
            series.setdefault(key, []).append((arm, value))
    lines = {}
    for members in series.values():
        if len(members) > 1:
            members.sort(key=lambda member: member[1])
            points = [Point(value, _shown(score_interval(arm, task), score_unit(arms, task))) for arm, value in members]
            lines[_series_name(members[0][0], argument, lines)] = points
    return lines


def swept_arguments(arms: Sequence[Arm]) -> list[str]:
    """Numeric arguments that take several values among the arms."""
    names = dict.fromkeys(name for arm in arms for name in arm.setting)
    values = {name: {_as_number(arm.setting.get(name)) for arm in arms} - {None} for name in names}
    return [name for name in names if len(values[name]) > 1]


def sweep_table(arms: Sequence[Arm], argument: str, tasks: Sequence[str]) -> Table | None:
    """All sweeps over one argument; None where no two arms differ in it alone."""
    rows = []
    for task in tasks:
        for name, points in sweep(arms, argument, task).items():
            rows += [Row((task, name, p.value, p.score.estimate, p.score.low, p.score.high)) for p in points]
    columns = (Column("task"), Column("series"), Column(argument, 2), Column("score"), Column("low"), Column("high"))
    return Table(f"sweep-{argument}", f"Sweep of {argument}", columns, tuple(rows)) if rows else None


def _shown(score: Interval, unit: int) -> Interval:
    return Interval(*(None if end is None else end * unit for end in (score.estimate, score.low, score.high)))


def _series_name(arm: Arm, argument: str, taken: dict[str, Any]) -> str:
    name = " ".join(part for part in arm.name.split() if not part.startswith(f"{argument}="))
    return name if name not in taken else f"{name} #{len(taken) + 1}"


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
