"""What an arm scored on a task: its mean over documents and seeds, the interval, and the unit to show it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from .arms import Arm
from .pairing import scored
from .statistics import Interval, mean_interval


def mean_score(arm: Arm, task: str) -> float | None:
    """The mean over an arm's documents of a task; without samples, what the results file reports."""
    runs = arm.runs.get(task, ())
    scores = scored(runs)
    if len(scores):
        return float(scores.mean())
    reported = [run.aggregate for run in runs if run.aggregate is not None]
    return float(np.mean(reported)) if reported else None


def score_interval(arm: Arm, task: str) -> Interval | None:
    """`mean_score` with its interval over documents; no ends without samples."""
    scores = scored(arm.runs.get(task, ()))
    if len(scores):
        return mean_interval(scores)
    mean = mean_score(arm, task)
    return None if mean is None else Interval(mean, None, None)


def score_unit(arms: Sequence[Arm], task: str) -> int:
    """What scores of a task are multiplied with to be shown: 100 for shares, 1 for anything else."""
    runs = [run for arm in arms for run in arm.runs.get(task, ())]
    scores = [sample.score for run in runs for sample in run.samples if sample.score is not None]
    scores += [run.aggregate for run in runs if run.aggregate is not None]
    return 100 if not scores or (min(scores) >= 0 and max(scores) <= 1) else 1


def shown_scores(arm: Arm, arms: Sequence[Arm], tasks: Sequence[str]) -> list[float | None]:
    """Mean scores of the tasks in the unit that all arms' scores have; None where a task was not run."""
    means = [mean_score(arm, task) for task in tasks]
    return [None if m is None else m * score_unit(arms, task) for m, task in zip(means, tasks, strict=True)]


def with_mean(scores: list[float | None]) -> list[float | None]:
    """The scores and, of several, their mean; none where one is missing, since it would mean something else."""
    if len(scores) < 2:
        return scores
    return [*scores, None if None in scores else float(np.mean(scores))]


def direction(arms: Sequence[Arm], task: str) -> Literal["max", "min"]:
    """Which end of a task's metric is good."""
    runs = [run for arm in arms for run in arm.runs.get(task, ())]
    return "max" if all(run.higher_is_better for run in runs) else "min"
