"""Everything that a report is made of, read and computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .arms import Arm, all_tasks, find_arm, gather_arms
from .comparison import Comparison, compare_arms
from .diagnostics import Diagnostics, read_diagnostics
from .fidelity import DocumentFidelity, read_fidelity
from .reading import find_results
from .runs import load_runs


@dataclass(frozen=True)
class Findings:
    """Arms with their runs, the reference they were compared with, and notes on whatever was left out."""

    arms: tuple[Arm, ...]
    reference: Arm
    tasks: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    fidelity: tuple[DocumentFidelity, ...]
    diagnostics: tuple[Diagnostics, ...]
    notes: tuple[str, ...]


def read_findings(
    places: Sequence[str | Path], *, metric: str | None = None, against: str | None = None, seed: int = 0
) -> Findings:
    """Read results files and folders, and compare every arm with the reference.

    metric: ``NAME`` or ``NAME,FILTER`` instead of each task's first. against: name of the reference arm.

    Raises:
        ValueError: nothing readable there, or an unknown metric or arm.
    """
    files, passed_over = find_results(places)
    runs = load_runs(files, metric)
    if not runs:
        raise ValueError(f"the results in {', '.join(map(str, places))} hold no task with a metric")
    arms, replaced = gather_arms(runs)
    reference = find_arm(arms, against)
    notes = [*passed_over, *replaced, *(note for run in runs for note in run.notes)]
    return Findings(
        arms=tuple(arms),
        reference=reference,
        tasks=tuple(all_tasks(arms)),
        comparisons=tuple(compare_arms(arms, reference, seed=seed)),
        fidelity=tuple(read_fidelity(places)),
        diagnostics=tuple(read_diagnostics(places, arms)),
        notes=tuple(dict.fromkeys(notes)),
    )
