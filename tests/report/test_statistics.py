"""The statistics tell the truth on data whose truth is known, and say nothing where there is nothing to say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lm_eval_latentmas.report import statistics
from lm_eval_latentmas.report.statistics import (
    detectable_difference,
    document_means,
    documents_needed,
    holm,
    mean_interval,
    paired_test,
    sign_test,
)

SIMULATIONS = 600


def simulated(rng: np.random.Generator, documents: int, seeds: int, harm: float) -> np.ndarray:
    """Differences of two arms on documents of uniform difficulty; the second answers ``harm`` of them less often.

    Their true mean is harm / 2.
    """
    easy = rng.random((documents, 1))
    first = rng.random((documents, seeds)) < easy
    second = rng.random((documents, seeds)) < easy * (1 - harm)
    return document_means(first) - document_means(second)


@pytest.mark.parametrize(("documents", "seeds", "harm"), [(150, 1, 0.0), (150, 3, 0.0), (150, 1, 0.2), (150, 3, 0.2)])
def test_95_percent_intervals_hold_the_truth_in_93_to_97_percent(documents: int, seeds: int, harm: float) -> None:
    rng = np.random.default_rng(20)
    held = 0
    for index in range(SIMULATIONS):
        interval = mean_interval(simulated(rng, documents, seeds, harm), resamples=599, seed=index)
        held += interval.low <= harm / 2 <= interval.high
    assert 0.93 <= held / SIMULATIONS <= 0.97


def test_pooled_intervals_hold_the_truth_in_93_to_97_percent() -> None:
    rng = np.random.default_rng(21)
    held = 0
    for index in range(SIMULATIONS):
        tasks = [simulated(rng, 60, 1, 0.1), simulated(rng, 150, 3, 0.3)]
        interval = mean_interval(*tasks, resamples=599, seed=index)
        held += interval.low <= (0.05 + 0.15) / 2 <= interval.high
    assert 0.93 <= held / SIMULATIONS <= 0.97


@pytest.mark.parametrize("seeds", [1, 3])
def test_equal_arms_are_called_different_in_at_most_6_percent(seeds: int) -> None:
    rng = np.random.default_rng(22)
    tests = [paired_test(simulated(rng, 150, seeds, 0.0), resamples=399, seed=i) for i in range(SIMULATIONS)]
    assert sum(t.p_value <= 0.05 for t in tests) / SIMULATIONS <= 0.06


@pytest.mark.parametrize("seeds", [1, 3])
def test_unequal_arms_are_called_different_most_of_the_time(seeds: int) -> None:
    rng = np.random.default_rng(23)
    tests = [paired_test(simulated(rng, 150, seeds, 0.5), resamples=399, seed=i) for i in range(200)]
    assert sum(t.p_value <= 0.05 for t in tests) / 200 > 0.9


def test_seeds_of_a_document_are_not_independent_documents() -> None:
    """Three copies of one seed must not narrow the interval."""
    rng = np.random.default_rng(24)
    one = rng.integers(0, 2, (80, 1)) - rng.integers(0, 2, (80, 1)) * 0.5
    assert mean_interval(document_means(np.repeat(one, 3, axis=1))) == mean_interval(document_means(one))


def test_means_leave_missing_seeds_out() -> None:
    means = document_means([[1, 0, np.nan], [1, 1, 1], [np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(means, [0.5, 1.0, np.nan])


def test_mcnemar_counts_only_documents_that_differ() -> None:
    assert paired_test([1] * 9 + [-1] * 2 + [0] * 500) == paired_test([1] * 9 + [-1] * 2)
    result = paired_test([1] * 9 + [-1] * 2)
    assert result.name == "exact McNemar"
    assert result.p_value == pytest.approx(stats.binomtest(9, 11).pvalue)


def test_flipping_signs_is_mcnemar_for_scores_of_any_scale() -> None:
    """With one size of difference the two tests are the same; few documents, so every flip is tried."""
    flipped = paired_test([0.5] * 8 + [-0.5])
    assert flipped.name == "sign flips over documents"
    assert flipped.p_value == pytest.approx(paired_test([1] * 8 + [-1]).p_value)


def test_sign_test_by_hand() -> None:
    assert sign_test([0.1] * 9) == pytest.approx(2 / 512)
    assert sign_test([0.1] * 9, alternative="greater") == pytest.approx(1 / 512)
    assert sign_test([1, 1, -1, 0]) == pytest.approx(1.0)


def test_holm_by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([None]) == [None]
    assert holm([]) == []


def test_the_detectable_difference_is_detected_as_often_as_promised() -> None:
    rng = np.random.default_rng(25)
    spread = rng.choice([-1.0, 0.0, 1.0], 120, p=[0.2, 0.6, 0.2])
    shift = detectable_difference(spread)
    draws = rng.normal(shift, spread.std(ddof=1), (2000, 120))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue <= 0.05
    assert found.mean() == pytest.approx(statistics.POWER, abs=0.03)
    assert documents_needed(spread, difference=shift) in (120, 121)


@pytest.mark.parametrize("vector", [[], [0.5], [0.0] * 20, [1.0] * 20])
def test_without_spread_there_is_no_interval_and_no_power(vector: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if vector:
            interval = mean_interval(vector)
            assert (interval.estimate, interval.low, interval.high) == (vector[0], None, None)
        assert detectable_difference(vector) is None
        assert documents_needed(vector) is None


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="no documents"):
        mean_interval([])


def test_nothing_differs_means_nothing_to_test() -> None:
    assert paired_test([0, 0, 0]).p_value is None
    assert paired_test([]).p_value is None
    assert sign_test([0, 0]) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=30))
def test_swapping_the_arms_mirrors_everything(differences: list[float]) -> None:
    mirrored = [-d for d in differences]
    assert paired_test(mirrored, resamples=199).p_value == paired_test(differences, resamples=199).p_value
    there, back = mean_interval(differences, resamples=199), mean_interval(mirrored, resamples=199)
    assert back.estimate == -there.estimate
    if there.low is not None and back.low is not None:
        assert back.low == pytest.approx(-there.high)
