"""What each arm's relay keeps: scores of the relay probe by the type of the fact and by how far back it stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arms import Arm
from .statistics import document_means
from .tables import Column, Row, Table

_PARTS = ("late", "middle", "early")


def probe_tables(arms: Sequence[Arm], tasks: Sequence[str]) -> list[Table]:
    """One table per task whose documents say which type of fact they ask for, and how many sentences follow it."""
    return [table for task in tasks if (table := _table(arms, task)) is not None]


def _table(arms: Sequence[Arm], task: str) -> Table | None:
    facts = {sample.key: sample.fact for arm in arms for run in arm.runs.get(task, ()) for sample in run.samples}
    known = {key: fact for key, fact in facts.items() if fact is not None}
    if not known:
        return None
    types = list(dict.fromkeys(kind for kind, _ in known.values()))
    edges = np.quantile([distance for _, distance in known.values()], (1 / 3, 2 / 3))
    parts = {key: _PARTS[int(np.searchsorted(edges, distance))] for key, (_, distance) in known.items()}
    rows = []
    for arm in arms:
        scores = _by_document(arm, task)
        groups = [[scores[key] for key in scores if known.get(key, ("",))[0] == kind] for kind in types]
        groups += [[scores[key] for key in scores if parts.get(key) == part] for part in _PARTS]
        rows.append(Row((arm.name, *(_percent(group) for group in [list(scores.values()), *groups]))))
    columns = (Column("arm"), *(Column(name, 1, "max") for name in ("all", *types, *_PARTS)))
    note = (
        "Percent right, by type of fact and by thirds of the distance: late facts are followed by at most "
        f"{edges[0]:.0f} sentences, early ones by more than {edges[1]:.0f}. {len(known)} documents."
    )
    return Table(f"probe-{task}", f"What the relay keeps: {task}", columns, tuple(rows), note)


def _by_document(arm: Arm, task: str) -> dict[tuple[str, int], float]:
    scores: dict[tuple[str, int], list[float]] = {}
    for run in arm.runs.get(task, ()):
        for sample in run.samples:
            if sample.score is not None:
                scores.setdefault(sample.key, []).append(sample.score)
    return {key: float(document_means([held])[0]) for key, held in scores.items()}


def _percent(scores: list[float]) -> float | None:
    return 100 * float(np.mean(scores)) if scores else None
