"""The paper's analyses over any results: damage against recovery, Borda ranks, accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arms import Arm
from .costs import arm_cost
from .extras import optional
from .scores import direction, mean_score, score_unit, shown_scores, with_mean
from .tables import Column, Row, Table

# eviction without backfill, and the same with it
_FAMILIES = {"headwise": "h-obf", "layerwise": "l-obf"}


@dataclass(frozen=True)
class RecoveryCell:
    """One task under one setting: what eviction costs against full, and what backfill wins back, in points."""

    family: str
    task: str
    setting: str
    damage: float
    recovery: float


@dataclass(frozen=True)
class Fit:
    """A least-squares line of recovery over damage, and Pearson's r; None where the cells allow no line."""

    slope: float | None
    intercept: float | None
    r: float | None
    cells: int


def recovery_cells(arms: Sequence[Arm], family: str) -> list[RecoveryCell]:
    """Damage and recovery of ``headwise`` or ``layerwise``; recovery is the mean over the ranks that were run."""
    cells = []
    for eviction in (arm for arm in arms if arm.compressor == family):
        full = _like(arms, eviction, "full", ("pca_rank", "svd", "kv_budget", "sink_size"))
        backfilled = _like(arms, eviction, _FAMILIES[family], ("pca_rank", "svd"))
        for task in eviction.tasks if full and backfilled else ():
            base, evicted = _score([full[0]], task), _score([eviction], task)
            filled = _score(backfilled, task)
            if None not in (base, evicted, filled):
                unit = score_unit(arms, task)
                setting = f"kv_budget={eviction.arguments.get('kv_budget', 'default')}"
                cells.append(RecoveryCell(family, task, setting, (base - evicted) * unit, (filled - evicted) * unit))
    return cells


def fit_recovery(cells: Sequence[RecoveryCell]) -> Fit:
    """Recovery = slope x damage + intercept. Needs three cells whose damage and recovery both vary."""
    damage, recovery = [c.damage for c in cells], [c.recovery for c in cells]
    if len(cells) < 3 or np.ptp(damage) == 0 or np.ptp(recovery) == 0:
        return Fit(None, None, None, len(cells))
    line = optional("scipy.stats").linregress(damage, recovery)
    return Fit(float(line.slope), float(line.intercept), float(line.rvalue), len(cells))


def recovery_table(arms: Sequence[Arm]) -> Table | None:
    """Every cell, and a last row per family with its fit; None where no family was run with its reference."""
    rows = []
    for family in _FAMILIES:
        cells = recovery_cells(arms, family)
        rows += [Row((family, cell.task, cell.setting, cell.damage, cell.recovery, None, None)) for cell in cells]
        if cells:
            fit = fit_recovery(cells)
            rows.append(Row((family, f"fit over {fit.cells} cells", "", None, None, fit.slope, fit.r)))
    columns = (Column("family"), Column("task"), Column("setting"), Column("damage"), Column("recovery"))
    columns += (Column("slope"), Column("Pearson r"))
    note = "Damage: full minus eviction. Recovery: mean over ranks of backfill minus eviction. In points."
    return Table("recovery", "Damage and recovery", columns, tuple(rows), note) if rows else None


def borda_table(arms: Sequence[Arm], tasks: Sequence[str]) -> Table | None:
    """Arms by the number of arms they beat, summed over the tasks that all of them ran; ties count half."""
    shared = [task for task in tasks if all(_score([arm], task) is not None for arm in arms)]
    if len(arms) < 2 or not shared:
        return None
    scores = np.array([[_score([arm], task) * _sign(arms, task) for task in shared] for arm in arms])
    points = optional("scipy.stats").rankdata(scores, axis=0) - 1
    ranks = len(arms) - points
    rows = [
        Row((arm.name, float(points[i].sum()), float(ranks[i].mean())))
        for i, arm in sorted(enumerate(arms), key=lambda numbered: -points[numbered[0]].sum())
    ]
    columns = (Column("arm"), Column("Borda points", 1, "max"), Column("mean rank", 2, "min"))
    return Table("borda", "Borda ranks", columns, tuple(rows), f"Over {', '.join(shared)}; ties count half.")


def score_cost_table(arms: Sequence[Arm], tasks: Sequence[str]) -> Table | None:
    """Mean score against what generation costs; None where nothing was generated."""
    rows, costs = [], [arm_cost(arm, tasks) for arm in arms]
    if all(cost.decoded_tokens is None for cost in costs):
        return None
    for arm, cost in zip(arms, costs, strict=True):
        mean = with_mean(shown_scores(arm, arms, tasks))[-1]
        rows.append(Row((arm.name, mean, cost.decoded_tokens, cost.decoding, cost.total)))
    columns = (Column("arm"), Column("mean score", 2, "max"), Column("output tokens", 1, "min"))
    columns += (Column("decoding s", 3, "min"), Column("end to end s", 3, "min"))
    return Table("score-cost", "Score against generation cost", columns, tuple(rows), "Costs are means per sample.")


def _like(arms: Sequence[Arm], model: Arm, compressor: str, free: tuple[str, ...]) -> list[Arm]:
    """Arms with another compressor that agree with ``model`` in all settings both have, ``free`` ones aside."""

    def agrees(arm: Arm) -> bool:
        names = (set(arm.setting) & set(model.setting)) - {"compressor", "composition", *free}
        return all(str(arm.setting[name]) == str(model.setting[name]) for name in names)

    return [arm for arm in arms if arm.compressor == compressor and agrees(arm)]


def _score(arms: Sequence[Arm], task: str) -> float | None:
    found = [score for arm in arms if (score := mean_score(arm, task)) is not None]
    return float(np.mean(found)) if found else None


def _sign(arms: Sequence[Arm], task: str) -> int:
    return 1 if direction(arms, task) == "max" else -1
