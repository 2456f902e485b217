"""Is one arm better than another on the same documents, by how much, and could this sample have shown it?

Every function takes one number per document. Seeds are averaged within their document first (`document_means`), so that
resampling or flipping a document moves all its seeds together: answers to one question are not independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .extras import optional

CONFIDENCE = 0.95
POWER = 0.8
RESAMPLES = 9_999
# room for one batch of resampled scores; larger samples are drawn in several batches
_BATCH_BYTES = 2**24


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval; ends are None where no honest one exists."""

    estimate: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low is not None and (self.low > 0 or self.high < 0)


def document_means(scores: ArrayLike) -> np.ndarray:
    """Mean over the seeds of a document: (documents, seeds) -> (documents,); NaN marks a missing score.

    A document without any score stays NaN.
    """
    scores = np.atleast_2d(np.asarray(scores, dtype=float))
    present = ~np.isnan(scores)
    counts = present.sum(axis=1)
    total = np.where(present, scores, 0.0).sum(axis=1)
    return np.divide(total, counts, out=np.full(len(scores), np.nan), where=counts > 0)


def mean_interval(
    *samples: ArrayLike,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval (BCa) of a mean over documents, or of the mean of several tasks' means.

    samples: per-document numbers, one vector per task; tasks are resampled apart and weigh the same. Without spread,
    or with a single document, there is no interval.

    Raises:
        ValueError: a task without documents.
    """
    vectors = [np.asarray(v, dtype=float) for v in samples]
    if not vectors or any(len(v) == 0 for v in vectors):
        raise ValueError("no documents: a mean needs at least one score in every task")
    estimate = float(np.mean([v.mean() for v in vectors]))
    if any(len(v) < 2 for v in vectors) or all(np.ptp(v) == 0 for v in vectors):
        return Interval(estimate, None, None)
    result = optional("scipy.stats").bootstrap(
        vectors,
        _mean_of_means,
        n_resamples=resamples,
        batch=max(1, _BATCH_BYTES // (8 * max(len(v) for v in vectors))),
        confidence_level=confidence,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    low, high = (float(end) for end in result.confidence_interval)
    return Interval(estimate, low, high) if np.isfinite([low, high]).all() else Interval(estimate, None, None)


def _mean_of_means(*vectors: np.ndarray, axis: int) -> np.ndarray:
    return sum(v.mean(axis=axis) for v in vectors) / len(vectors)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval (percentile) of a mean per token: sums over documents divided by their tokens.

    numerators, denominators: one number per document, which is resampled whole. No interval for a single document.

    Raises:
        ValueError: nothing to divide by.
    """
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if not under.sum() > 0:
        raise ValueError("no tokens: a mean per token needs at least one")
    estimate = float(over.sum() / under.sum())
    if len(over) < 2 or np.ptp(over / np.where(under > 0, under, 1)) == 0:
        return Interval(estimate, None, None)
    result = optional("scipy.stats").bootstrap(
        (over, under),
        lambda o, u, axis: o.sum(axis=axis) / u.sum(axis=axis),
        n_resamples=resamples,
        batch=max(1, _BATCH_BYTES // (8 * len(over))),
        paired=True,
        confidence_level=confidence,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(estimate, *(float(end) for end in result.confidence_interval))


@dataclass(frozen=True)
class PairedTest:
    """A two-sided test of no difference: its p-value, None where there is nothing to test, and its name."""

    p_value: float | None
    name: str


def paired_test(differences: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> PairedTest:
    """Test that a document is as likely to gain as to lose.

    Where every difference is -1, 0 or 1 (0/1 scores, one seed) this is the exact McNemar test. Otherwise the
    documents' signs are flipped and the mean is compared, which is the same test for scores of any kind; all seeds of
    a document flip together.
    """
    differences = np.asarray(differences, dtype=float)
    moved = differences[differences != 0]
    if not len(moved):
        return PairedTest(None, "no document differs")
    if np.isin(moved, (-1.0, 1.0)).all():
        better, worse = int((moved > 0).sum()), int((moved < 0).sum())
        tables = optional("statsmodels.stats.contingency_tables")
        return PairedTest(float(tables.mcnemar([[0, better], [worse, 0]], exact=True).pvalue), "exact McNemar")
    result = optional("scipy.stats").permutation_test(
        (np.append(moved, 0.0),),  # a zero changes no flip, and scipy asks for two numbers
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        n_resamples=resamples,
        batch=max(1, _BATCH_BYTES // (8 * len(moved))),
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return PairedTest(min(1.0, float(result.pvalue)), "sign flips over documents")


def sign_test(
    differences: ArrayLike, *, alternative: Literal["two-sided", "greater", "less"] = "two-sided"
) -> float | None:
    """Exact sign test over benchmarks: the p-value of this many wins among the differences that are not zero.

    ``greater`` asks whether wins prevail. None when nothing differs.
    """
    differences = np.asarray(differences, dtype=float)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    if wins + losses == 0:
        return None
    return float(optional("scipy.stats").binomtest(wins, wins + losses, alternative=alternative).pvalue)


def holm(p_values: list[float | None]) -> list[float | None]:
    """Holm's correction over the comparisons that were made; None (nothing to test) stays None and is not counted."""
    known = [p for p in p_values if p is not None]
    if not known:
        return list(p_values)
    adjusted = iter(optional("statsmodels.stats.multitest").multipletests(known, method="holm")[1])
    return [None if p is None else float(next(adjusted)) for p in p_values]


def detectable_difference(
    differences: ArrayLike, *, power: float = POWER, confidence: float = CONFIDENCE
) -> float | None:
    """The smallest mean difference that so many documents, with this spread, show with probability ``power``.

    None without spread or with fewer than three documents.
    """
    differences = np.asarray(differences, dtype=float)
    if len(differences) < 3 or np.ptp(differences) == 0:
        return None
    return float(differences.std(ddof=1)) * _solve(nobs=len(differences), alpha=1 - confidence, power=power)


def documents_needed(
    differences: ArrayLike, *, difference: float = 0.01, power: float = POWER, confidence: float = CONFIDENCE
) -> int | None:
    """Documents that a mean difference of ``difference`` (0.01 is one point) needs to be seen with ``power``.

    None without spread or with fewer than three documents.
    """
    differences = np.asarray(differences, dtype=float)
    if len(differences) < 3 or np.ptp(differences) == 0:
        return None
    effect = difference / differences.std(ddof=1)
    return int(np.ceil(_solve(effect_size=effect, alpha=1 - confidence, power=power)))


def _solve(**known: float) -> float:
    """The missing one of effect size, documents, alpha and power of a paired t test."""
    power = optional("statsmodels.stats.power").TTestPower()
    return float(np.squeeze(power.solve_power(**({"effect_size": None, "nobs": None} | known))))
