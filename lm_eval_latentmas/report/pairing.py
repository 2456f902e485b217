"""Puts two arms' scores side by side, document by document, and says what could not be paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .runs import Run
from .samples import Sample
from .statistics import document_means

Key = tuple[str, int]


class NotComparable(ValueError):
    """Two arms whose scores mean different things; the message says why and what to do."""


@dataclass(frozen=True)
class Pairs:
    """Scores of the documents that both arms answered: ``first`` and ``second``, one mean over seeds per document."""

    keys: tuple[Key, ...]
    first: np.ndarray
    second: np.ndarray
    notes: tuple[str, ...]


def pair(first: Sequence[Run], second: Sequence[Run], names: tuple[str, str]) -> Pairs:
    """Pair two arms' runs of one task by document.

    first, second: the runs, one per seed. What only one of them has is left out, and the notes count it.

    Raises:
        NotComparable: another version of the task, another metric, other targets, or no document in common.
    """
    _check_versions([*first, *second])
    ours, theirs = _scores(first), _scores(second)
    keys = [key for key in ours if key in theirs]
    samples = [{s.key: s for run in runs for s in run.samples} for runs in (first, second)]
    keys, notes = _same_target(keys, samples)
    if not keys:
        raise NotComparable(
            f"{names[0]} ({len(ours)} documents) and {names[1]} ({len(theirs)}) have no scored document in common"
        )
    if len(keys) < max(len(ours), len(theirs)):
        only = f"{len(ours) - len(keys)} only in {names[0]}, {len(theirs) - len(keys)} only in {names[1]}"
        notes.append(f"compared on {len(keys)} documents; {only}")
    if changed := sum(samples[0][key].prompt_hash != samples[1][key].prompt_hash for key in keys):
        notes.append(f"prompts differ on {changed} of {len(keys)} documents")
    notes += _seeds(first, second, names)
    for name, scores in zip(names, (ours, theirs), strict=True):
        if missing := sum(np.isnan(scores[key]).sum() for key in keys):
            notes.append(
                f"{name}: {missing} scores of single seeds are missing; means are over the seeds that are there"
            )
    return Pairs(tuple(keys), _means(ours, keys), _means(theirs, keys), tuple(notes))


def scored(runs: Sequence[Run]) -> np.ndarray:
    """One mean score per document of an arm's runs of one task; empty when nothing has a score."""
    scores = _scores(runs)
    return _means(scores, list(scores))


def _scores(runs: Sequence[Run]) -> dict[Key, list[float]]:
    """Per document the scores of all seeds; documents without any are left out."""
    table: dict[Key, list[float]] = {}
    for index, run in enumerate(runs):
        for sample in run.samples:
            if sample.score is not None:
                table.setdefault(sample.key, [np.nan] * len(runs))[index] = sample.score
    return table


def _means(scores: dict[Key, list[float]], keys: list[Key]) -> np.ndarray:
    return document_means([scores[key] for key in keys]) if keys else np.empty(0)


def _check_versions(runs: Sequence[Run]) -> None:
    task = runs[0].task
    for name in ("version", "metric"):
        if len(values := {str(getattr(run, name)) for run in runs}) > 1:
            listed = " and ".join(sorted(values))
            raise NotComparable(
                f"{task}: {name}s {listed} are not comparable; run again or grade again with one of them"
            )


def _same_target(keys: list[Key], samples: list[dict[Key, Sample]]) -> tuple[list[Key], list[str]]:
    same = [key for key in keys if samples[0][key].target_hash == samples[1][key].target_hash]
    changed = len(keys) - len(same)
    return same, [f"{changed} documents have another target and are left out"] if changed else []


def _seeds(first: Sequence[Run], second: Sequence[Run], names: tuple[str, str]) -> list[str]:
    ours, theirs = ({run.seed for run in runs} for runs in (first, second))
    if ours == theirs:
        return []
    listed = [", ".join(map(str, sorted(seeds, key=str))) for seeds in (ours, theirs)]
    return [f"seeds differ: {names[0]} has {listed[0]}; {names[1]} has {listed[1]}"]
