"""Fidelity is zero for an unchanged relay, grows with what changes, and carries intervals over documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from lm_eval_latentmas.report.fidelity import (
    DocumentFidelity,
    fidelity_table,
    predicts_scores,
    read_fidelity,
    summarise_fidelity,
    token_sums,
    write_fidelity,
)
from lm_eval_latentmas.report.reading import UnreadableFile


def measured(noise: float, arm: str, documents: int = 20) -> list[DocumentFidelity]:
    rng = np.random.default_rng(7)
    found = []
    for doc_id in range(documents):
        full = rng.normal(size=(5 + doc_id, 30))
        other = full + noise * rng.normal(size=full.shape)
        found.append(DocumentFidelity("sums", doc_id, arm, **token_sums(full, other, full.argmax(axis=1))))
    return found


def test_sums_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    full, other, targets = rng.normal(size=(6, 9)), rng.normal(size=(6, 9)), rng.integers(0, 9, 6)
    sums = token_sums(full, other, targets)
    p, q = softmax(full, axis=1), softmax(other, axis=1)
    assert sums["kl"] == pytest.approx(rel_entr(p, q).sum())
    assert sums["nll"] == pytest.approx(-np.log(q[np.arange(6), targets]).sum())
    assert sums["full_nll"] == pytest.approx(-np.log(p[np.arange(6), targets]).sum())
    assert sums["agreed"] == (full.argmax(1) == other.argmax(1)).sum()


def test_logits_may_be_shifted_and_tokens_ruled_out() -> None:
    full = np.array([[1.0, 2.0, -np.inf], [0.0, 5.0, 1.0]])
    other = np.array([[1.5, 1.0, 0.0], [0.0, 5.0, 1.0]])
    sums, shifted = token_sums(full, other, np.array([0, 1])), token_sums(full + 1000, other - 1000, np.array([0, 1]))
    assert np.isfinite(sums["kl"])
    assert sums == pytest.approx(shifted)


def test_an_unchanged_relay_is_perfect() -> None:
    summary = summarise_fidelity(measured(0.0, "full"))[0]
    assert summary.kl.estimate == 0
    assert summary.agreement.estimate == 1
    assert summary.perplexity_ratio.estimate == 1
    assert summary.kl.low is None


def test_more_noise_is_less_fidelity() -> None:
    documents = measured(1.0, "gen") + measured(0.1, "h-obf") + measured(0.4, "headwise")
    summaries = summarise_fidelity(documents)
    assert [summary.arm for summary in summaries] == ["h-obf", "headwise", "gen"]
    assert summaries[0].agreement.estimate > summaries[2].agreement.estimate
    assert summaries[0].perplexity_ratio.estimate < summaries[2].perplexity_ratio.estimate
    assert all(s.kl.low < s.kl.estimate < s.kl.high for s in summaries)
    assert summaries[0].tokens == sum(5 + d for d in range(20))


def test_arms_that_go_astray_on_the_same_documents_are_told_apart_in_pairs() -> None:
    rng = np.random.default_rng(3)
    hard = rng.exponential(size=20)
    documents = [
        DocumentFidelity("sums", doc_id, arm, 10, 10 * (kl + more), 5, 10.0, 12.0)
        for arm, more in (("near", 0.0), ("far", 0.05), ("farther", 0.5))
        for doc_id, kl in enumerate(hard)
    ]
    near, far, farther = summarise_fidelity(documents)
    assert near.behind is None
    assert near.kl.low < far.kl.low < near.kl.high < far.kl.high  # apart by themselves nothing is told
    assert far.behind.estimate == pytest.approx(0.05)
    assert far.behind.low == pytest.approx(0.05)
    assert farther.behind.estimate == pytest.approx(0.5)
    noisy = [replace(d, kl=d.kl + 0.1 * rng.random()) if d.arm == "far" else d for d in documents]
    assert 0.05 < summarise_fidelity(noisy)[1].behind.low < summarise_fidelity(noisy)[1].behind.high < 0.06


def test_only_documents_that_both_followed_are_paired() -> None:
    documents = measured(0.1, "near") + measured(1.0, "far", documents=3)
    assert summarise_fidelity(documents)[1].behind.estimate > 0
    assert (
        summarise_fidelity(measured(0.1, "near") + [replace(d, doc_id=99) for d in measured(1.0, "far")])[1].behind
        is None
    )


def test_seeds_of_a_document_are_one_document() -> None:
    once, twice = measured(0.3, "gen"), measured(0.3, "gen") * 2
    alone, together = summarise_fidelity(once)[0], summarise_fidelity(twice)[0]
    assert together.documents == alone.documents == 20
    assert together.tokens == 2 * alone.tokens
    assert (together.kl.low, together.kl.high) == pytest.approx((alone.kl.low, alone.kl.high))


def test_how_well_it_predicts_score_differences() -> None:
    summaries = summarise_fidelity(measured(1.0, "gen") + measured(0.1, "h-obf") + measured(0.4, "headwise"))
    falling = {"h-obf": -0.01, "headwise": -0.03, "gen": -0.1}
    assert predicts_scores(summaries, falling) == (pytest.approx(-1.0), 3)
    assert predicts_scores(summaries, {"gen": -0.1}) == (None, 1)
    assert predicts_scores(summaries, dict.fromkeys(falling, 0.0)) == (None, 3)
    assert "Spearman -1.00" in fidelity_table(summaries, falling).note


def test_files_round_trip(tmp_path: Path) -> None:
    documents = measured(0.3, "gen", documents=3)
    write_fidelity(tmp_path / "fidelity_sums.jsonl", documents)
    assert read_fidelity([tmp_path]) == documents


def test_a_line_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fidelity_sums.jsonl"
    write_fidelity(path, measured(0.3, "gen", documents=2))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UnreadableFile, match="line 2: cut off"):
        read_fidelity([tmp_path])
    path.write_text('{"task": "sums"}\n')
    with pytest.raises(UnreadableFile, match="line 1: no fidelity record"):
        read_fidelity([tmp_path])


def test_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        summarise_fidelity([DocumentFidelity("sums", 0, "gen", 0, 0.0, 0, 0.0, 0.0)])
