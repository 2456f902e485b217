"""Tables of scores and of differences: the main table, scores by seed, comparisons, sign tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .arms import Arm
from .comparison import Comparison, wins
from .pairing import scored
from .runs import Run
from .scores import direction, score_unit, shown_scores, with_mean
from .statistics import CONFIDENCE, POWER, Interval
from .tables import Cell, Column, Row, Table

_POINTS = 100


def main_table(arms: Sequence[Arm], tasks: Sequence[str], extra: Sequence[Row] = ()) -> Table:
    """Scores of every arm on every task, and their mean; ``extra`` rows (published figures) follow in groups."""
    columns = [Column("arm"), *(Column(task, 2, direction(arms, task)) for task in tasks)]
    averaged = len(tasks) > 1 and all(score_unit(arms, task) == _POINTS for task in tasks)
    columns += [Column("mean", 2, "max")] if averaged else []
    shown = {arm.name: shown_scores(arm, arms, tasks) for arm in arms}
    rows = [Row((name, *(with_mean(scores) if averaged else scores)), "measured") for name, scores in shown.items()]
    extra = [replace(row, cells=row.cells[: len(columns)]) for row in extra]
    kinds = {f"{task} ({metric})" for task in tasks for metric in _metrics(arms, task)}
    note = f"Means over documents and seeds, in percent where scores are shares: {', '.join(sorted(kinds))}."
    return Table("scores", "Scores", tuple(columns), (*rows, *extra), note)


def seed_table(arms: Sequence[Arm], tasks: Sequence[str]) -> Table:
    """Scores by seed, the documents behind them, and how far seeds lie apart."""
    rows = []
    for task in tasks:
        for arm in arms:
            runs = arm.runs.get(task, ())
            unit = score_unit(arms, task)
            means = [None if (score := _run_score(run)) is None else score * unit for run in runs]
            known = [mean for mean in means if mean is not None]
            spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
            shown = ["no score" if mean is None else f"{mean:.2f}" for mean in means]
            listed = ", ".join(f"{run.seed}: {mean}" for run, mean in zip(runs, shown, strict=True))
            rows.append(Row((task, arm.name, listed or "not run", spread, float(len(scored(runs))))))
    columns = (Column("task"), Column("arm"), Column("seed: score"), Column("deviation"), Column("documents", 0))
    return Table("seeds", "Scores by seed", columns, tuple(rows), "Deviation: standard deviation over seeds.")


def health_table(arms: Sequence[Arm], tasks: Sequence[str]) -> Table | None:
    """Why a score may be low for other reasons than the relay: answers that can't be read, or were cut off.

    None where no task reports it (this project's do).
    """
    rows = []
    for task in tasks:
        for arm in arms:
            shares = [_mean_other(arm, task, name) for name in ("no_answer", "truncated")]
            if any(share is not None for share in shares):
                rows.append(Row((task, arm.name, *shares), task))
    columns = (Column("task"), Column("arm"), Column("no answer %", 1, "min"), Column("cut off %", 1, "min"))
    return Table("health", "Answers not read or cut off", columns, tuple(rows)) if rows else None


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Differences in points with their intervals, tests and verdicts; rows over the mean of tasks come last."""
    level = f"{CONFIDENCE:.0%}"
    columns = (
        Column("arm"),
        Column("task"),
        Column("difference"),
        Column(f"{level} low"),
        Column(f"{level} high"),
        Column("p", 4),
        Column("p (Holm)", 4),
        Column("verdict"),
        Column("documents", 0),
        Column("gained", 0),
        Column("lost", 0),
        Column("detectable", 1),
        Column("against"),
        Column("remarks"),
    )
    note = (
        "Difference: arm minus reference, in points (0.01 of a share) where scores are shares. "
        f"Interval: {level}, bootstrap over documents with their seeds together. "
        "p: exact McNemar, or sign flips over documents where scores are not 0 or 1; "
        "Holm's correction covers all comparisons by task, and apart from them those over the mean of tasks. "
        f"Detectable: the smallest difference that so many documents show with probability {POWER:.0%}."
    )
    return Table("comparisons", "Differences", columns, tuple(Row(_cells(c)) for c in comparisons), note)


def sign_table(comparisons: Sequence[Comparison]) -> Table:
    """Tasks won and lost by each arm, with the exact sign test."""
    rows = []
    for arm in dict.fromkeys(c.arm for c in comparisons):
        won, lost, p_value = wins(comparisons, arm)
        rows.append(Row((arm, float(won), float(lost), p_value)))
    columns = (Column("arm"), Column("tasks won", 0), Column("tasks lost", 0), Column("p, two-sided", 4))
    return Table("signs", "Sign test over tasks", columns, tuple(rows), "Exact; ties are left out.")


def _cells(c: Comparison) -> tuple[Cell, ...]:
    difference = c.difference or Interval(None, None, None)
    points = [None if v is None else v * c.unit for v in (difference.estimate, difference.low, difference.high)]
    tested = c.difference is not None
    counts = [float(count) if tested else None for count in (c.documents, c.better, c.worse)]
    detectable = None if c.detectable is None else c.detectable * c.unit
    where = c.task or "mean of tasks"
    remarks = "; ".join(c.notes)
    return (c.arm, where, *points, c.p_value, c.p_holm, c.verdict, *counts, detectable, c.reference, remarks)


def _mean_other(arm: Arm, task: str, metric: str) -> float | None:
    known = [run.others[metric] for run in arm.runs.get(task, ()) if metric in run.others]
    return _POINTS * float(np.mean(known)) if known else None


def _run_score(run: Run) -> float | None:
    scores = scored([run])
    return float(scores.mean()) if len(scores) else run.aggregate


def _metrics(arms: Sequence[Arm], task: str) -> set[str]:
    runs = [run for arm in arms for run in arm.runs.get(task, ())]
    return {run.metric if run.filter == "none" else f"{run.metric}, {run.filter}" for run in runs}
