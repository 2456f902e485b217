"""Every arm against the reference arm, task by task and over all tasks, with a verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .arms import Arm, all_tasks
from .pairing import NotComparable, Pairs, pair
from .statistics import (
    CONFIDENCE,
    Interval,
    detectable_difference,
    documents_needed,
    holm,
    mean_interval,
    paired_test,
    sign_test,
)

# fewer moved documents than this, and a bootstrap has too few different values to draw from
_FEW = 5


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference on one task, or on the mean of all (``task`` is None).

    Scores and differences are in the metric's own unit (0 to 1 for accuracy), the difference is arm minus reference;
    ``unit`` is what they are multiplied with to be shown: 100 for shares, as points.
    better, worse: documents on which the arm gains or loses. ``refused`` says why there is nothing else.
    """

    arm: str
    reference: str
    task: str | None
    documents: int = 0
    score: float | None = None
    reference_score: float | None = None
    difference: Interval | None = None
    better: int = 0
    worse: int = 0
    p_value: float | None = None
    test: str = ""
    p_holm: float | None = None
    detectable: float | None = None
    needed: int | None = None
    higher_is_better: bool = True
    unit: int = 100
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def distinguishable(self) -> bool:
        """Whether the corrected test rejects equality."""
        return self.p_holm is not None and self.p_holm <= 1 - CONFIDENCE

    @property
    def verdict(self) -> str:
        """The finding in a few words."""
        if self.refused:
            return f"not compared: {self.refused}"
        if self.p_value is None:
            # with no difference in n documents, the exact upper bound on the share that differ
            unseen = 1 - (1 - CONFIDENCE) ** (1 / self.documents)
            return f"same score on all {self.documents} documents; up to {unseen:.1%} could still differ"
        if self.distinguishable:
            return "better" if (self.difference.estimate > 0) == self.higher_is_better else "worse"
        if self.needed is None:
            return "not distinguishable"
        return f"not distinguishable; {self.needed:,} documents would be needed for 1 point"


def compare_arms(arms: Sequence[Arm], reference: Arm, *, seed: int = 0) -> list[Comparison]:
    """Compare each arm with ``reference`` on each task both have, then on their mean where there are several.

    Holm's correction covers all tasks' comparisons; those over the mean are one family of their own.
    """
    single, pooled = [], []
    for arm in arms:
        if arm is reference:
            continue
        pairs: list[Pairs] = []
        for task in all_tasks([reference]):
            if task in arm.tasks:
                comparison, paired = _one_task(arm, reference, task, seed)
                single.append(comparison)
                pairs += [paired] if paired is not None and _in_points(paired) else []
        if len(pairs) > 1:
            pooled.append(_pooled(arm, reference, pairs, seed))
    return [*_corrected(single), *_corrected(pooled)]


def wins(comparisons: Sequence[Comparison], arm: str) -> tuple[int, int, float | None]:
    """Tasks won and lost by an arm, and the exact two-sided sign test over them."""
    sign = [
        c.difference.estimate * (1 if c.higher_is_better else -1)
        for c in comparisons
        if c.arm == arm and c.task is not None and c.difference is not None
    ]
    return sum(s > 0 for s in sign), sum(s < 0 for s in sign), sign_test(sign)


def _one_task(arm: Arm, reference: Arm, task: str, seed: int) -> tuple[Comparison, Pairs | None]:
    ours, theirs = arm.runs[task], reference.runs[task]
    try:
        pairs = pair(ours, theirs, (arm.name, reference.name))
    except NotComparable as error:
        return Comparison(arm.name, reference.name, task, refused=str(error)), None
    differences = pairs.first - pairs.second
    return _described(
        Comparison(arm.name, reference.name, task, higher_is_better=ours[0].higher_is_better, notes=pairs.notes),
        [pairs],
        differences,
        seed,
    ), pairs


def _pooled(arm: Arm, reference: Arm, pairs: list[Pairs], seed: int) -> Comparison:
    """Tasks weigh the same, and every document's difference counts with the weight that gives."""
    documents = sum(len(p.keys) for p in pairs)
    weighted = [(p.first - p.second) * documents / (len(pairs) * len(p.keys)) for p in pairs]
    blank = Comparison(arm.name, reference.name, None, notes=(f"mean of {len(pairs)} tasks",))
    return _described(blank, pairs, np.concatenate(weighted), seed)


def _described(blank: Comparison, pairs: list[Pairs], differences: np.ndarray, seed: int) -> Comparison:
    test = paired_test(differences, seed=seed)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    notes = list(blank.notes)
    if 0 < better + worse < _FEW:
        notes.append(f"only {better + worse} documents differ: trust the test, not the interval")
    in_points = all(map(_in_points, pairs))
    return replace(
        blank,
        documents=len(differences),
        score=float(np.mean([p.first.mean() for p in pairs])),
        reference_score=float(np.mean([p.second.mean() for p in pairs])),
        difference=mean_interval(*[p.first - p.second for p in pairs], seed=seed),
        better=better,
        worse=worse,
        p_value=test.p_value,
        test=test.name,
        detectable=detectable_difference(differences),
        needed=documents_needed(differences) if in_points else None,
        unit=100 if in_points else 1,
        notes=tuple(notes),
    )


def _in_points(pairs: Pairs) -> bool:
    """Whether scores lie between 0 and 1, so that a point is 0.01 and means over tasks make sense."""
    return all(scores.min() >= 0 and scores.max() <= 1 for scores in (pairs.first, pairs.second))


def _corrected(comparisons: list[Comparison]) -> list[Comparison]:
    corrected = holm([c.p_value for c in comparisons])
    return [replace(c, p_holm=p) for c, p in zip(comparisons, corrected, strict=True)]
