"""The published figures are in the package and give back what can be computed from them."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.report.arms import Arm
from lm_eval_latentmas.report.paper import (
    PAPER_ARMS,
    PAPER_P_VALUE,
    backbone_of,
    backbones,
    benchmark,
    published_cost_table,
    published_rows,
    published_scores,
    published_sign_table,
    published_sign_test,
)
from lm_eval_latentmas.report.statistics import sign_test


def test_every_published_score_has_a_benchmark() -> None:
    assert backbones() == ("qwen3-4b", "qwen3-8b")
    for backbone in backbones():
        scores = published_scores(backbone)
        assert set(scores) == set(PAPER_ARMS)
        assert all(len(row) == 9 and all(0 < value < 100 for value in row.values()) for row in scores.values())


def test_the_sign_test_of_h_obf_over_headwise() -> None:
    """All nine benchmarks are won: 2/2^9 two-sided, 1/2^9 one-sided. The paper's 0.008 is eight wins, two-sided."""
    test = published_sign_test("qwen3-4b", "h-obf", "headwise")
    assert (test["won"], test["lost"]) == (9, 0)
    assert test["two_sided"] == pytest.approx(2 / 2**9)
    assert test["one_sided"] == pytest.approx(1 / 2**9)
    assert sign_test([1.0] * 8) == pytest.approx(PAPER_P_VALUE, abs=5e-4)


def test_the_other_backbone_shows_no_such_win() -> None:
    test = published_sign_test("qwen3-8b", "h-obf", "headwise")
    assert (test["won"], test["lost"]) == (5, 4)
    assert test["two_sided"] == pytest.approx(1.0)


def test_tasks_have_the_names_of_the_paper() -> None:
    assert [benchmark(task) for task in ("latentmas_gsm8k", "latentmas_gpqa_diamond")] == ["gsm8k", "gpqa"]


def test_published_rows_stand_in_a_group_of_their_own() -> None:
    rows = published_rows("qwen3-4b", ["latentmas_gsm8k", "latentmas_demo"])
    full = rows[0]
    assert full.cells == ("full (published, qwen3-4b)", 88.98, None, None)
    assert full.group == "published qwen3-4b"
    assert published_rows("qwen3-4b", ["latentmas_demo"]) == []


def test_the_backbone_is_known_by_the_model_that_ran() -> None:
    arms = [Arm(name, {"pretrained": name}, {}, {}) for name in ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B/")]
    assert backbone_of(arms) == "qwen3-4b"
    assert backbone_of([*arms, Arm("other", {"pretrained": "Qwen/Qwen3-8B"}, {}, {})]) is None
    assert backbone_of([Arm("x", {}, {}, {})]) is None


def test_published_tables() -> None:
    assert len(published_sign_table().rows) == 8
    costs = published_cost_table()
    assert costs.rows[0].cells[:3] == ("full", 290.1, 1.0)
    assert costs.rows[-1].cells[-1] is None
