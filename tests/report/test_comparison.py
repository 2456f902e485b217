"""Arms are grouped and named by their settings, paired by document, and compared in plain words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_latentmas.report.answer import answer
from lm_eval_latentmas.report.arms import Arm, find_arm, gather_arms
from lm_eval_latentmas.report.comparison import Comparison, compare_arms, wins
from lm_eval_latentmas.report.findings import read_findings
from lm_eval_latentmas.report.pairing import NotComparable, pair
from lm_eval_latentmas.report.reading import find_results
from lm_eval_latentmas.report.runs import load_runs
from lm_eval_latentmas.report.score_tables import main_table


def arms_in(*places: Path) -> list[Arm]:
    return gather_arms(load_runs(find_results(places)[0]))[0]


def compared(arms: list[Arm]) -> list[Comparison]:
    return compare_arms(arms, find_arm(arms, None))


def test_an_arm_is_a_setting_whatever_the_seed(write_run: Callable[..., Path]) -> None:
    for seed in (444, 4, 44):
        last = write_run({"sums": [1, 0]}, compressor="h-obf", seed=seed, run_dir=f"run{seed}")
    write_run({"sums": [1, 0]}, compressor="full", seed=4)
    arms = arms_in(last.parent)
    assert [arm.name for arm in arms] == ["full", "h-obf"]
    assert arms[1].seeds("sums") == (4, 44, 444)


def test_names_add_only_what_tells_arms_apart(write_run: Callable[..., Path]) -> None:
    for given in ({"compressor": "full"}, {"compressor": "h-obf"}, {"compressor": "h-obf", "kv_budget": 8}):
        last = write_run({"sums": [1, 0]}, **given)
    write_run({"sums": [1, 0]}, compressor="full", relay="none")
    names = [arm.name for arm in arms_in(last.parent)]
    assert names == ["full", "h-obf", "h-obf kv_budget=8", "none"]


def test_one_model_under_two_paths_is_one_arm_and_two_models_are_two(write_run: Callable[..., Path]) -> None:
    """The weights count, not the path: a model handed over as an object has none."""
    paths = [write_run({"sums": [1, 0]}, compressor="full", seed=seed, relay_bytes=9) for seed in (1, 2, 3)]
    for path, loading, weights in zip(paths, ("/a/tiny", "LlamaForCausalLM object", "/b/other"), "xxy", strict=True):
        results = json.loads(path.read_text())
        results["config"]["latentmas"] |= {"loading": {"pretrained": loading}, "model": {"fingerprint": weights}}
        path.write_text(json.dumps(results))
    arms = arms_in(paths[0].parent)
    assert [arm.name for arm in arms] == ["full tiny", "full other"]
    assert arms[0].seeds("sums") == (1, 2)


def test_a_preset_and_its_composition_are_one_arm(write_run: Callable[..., Path]) -> None:
    paths = [write_run({"sums": [1, 0]}, compressor="h-obf", seed=seed, relay_bytes=9) for seed in (1, 2)]
    for path, given in zip(paths, ("h-obf", "headwise+obf"), strict=True):
        results = json.loads(path.read_text())
        results["config"]["model_args"]["compressor"] = given
        results["config"]["latentmas"]["chain"]["compressor"] = "headwise+obf"
        path.write_text(json.dumps(results))
    assert [arm.name for arm in arms_in(paths[0].parent)] == ["h-obf"]


def test_other_models_have_their_name(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full", pretrained="tiny")
    last = write_run({"sums": [1, 0]}, pretrained="big")
    assert [arm.name for arm in arms_in(last.parent)] == ["full tiny", "big"]


def test_the_latest_of_two_equal_runs_counts(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [0, 0]}, compressor="full")
    last = write_run({"sums": [1, 1]}, compressor="full")
    arms, notes = gather_arms(load_runs(find_results([last.parent])[0]))
    assert [sample.score for sample in arms[0].runs["sums"][0].samples] == [1, 1]
    assert "replaces the earlier" in notes[0]


def test_an_unknown_reference_names_the_nearest(write_run: Callable[..., Path]) -> None:
    arms = arms_in(write_run({"sums": [1]}, compressor="h-obf"))
    with pytest.raises(ValueError, match="did you mean 'h-obf'"):
        find_arm(arms, "hobf")


def test_documents_are_paired_by_content_not_by_number(write_run: Callable[..., Path]) -> None:
    """The second run has the same documents in another order, under other numbers."""
    write_run({"sums": [1, 0, 0]}, compressor="full")

    def turned(row: dict[str, Any]) -> dict[str, Any]:
        source = 2 - row["doc_id"]
        question, target = f"sums question {source}", f"target {source}"
        return row | {
            "doc_hash": f"doc {question}",
            "prompt_hash": f"prompt {question}",
            "target_hash": f"hash {target}",
        }

    last = write_run({"sums": [0, 0, 1]}, compressor="h-obf", edit=turned)
    comparison = compared(arms_in(last.parent))[0]
    assert (comparison.documents, comparison.better, comparison.worse, comparison.notes) == (3, 0, 0, ())


def test_equal_documents_stay_apart(write_run: Callable[..., Path]) -> None:
    twins = {"doc_hash": "twin", "target_hash": "t"}
    write_run({"sums": [1, 0]}, compressor="full", edit=lambda row: row | twins)
    last = write_run({"sums": [0, 0]}, compressor="h-obf", edit=lambda row: row | twins)
    comparison = compared(arms_in(last.parent))[0]
    assert (comparison.documents, comparison.worse) == (2, 1)


def test_what_only_one_arm_has_is_left_out_and_counted(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1] * 6}, compressor="full", edit=lambda row: row if row["doc_id"] != 0 else None)
    last = write_run({"sums": [0] * 6}, compressor="h-obf", edit=lambda row: row if row["doc_id"] < 4 else None)
    comparison = compared(arms_in(last.parent))[0]
    assert comparison.documents == 3
    assert comparison.notes[0] == "compared on 3 documents; 1 only in h-obf, 2 only in full"


def test_other_prompts_are_counted(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full")
    last = write_run({"sums": [0, 0]}, compressor="h-obf", edit=lambda row: row | {"prompt_hash": "x"})
    assert "prompts differ on 2 of 2 documents" in compared(arms_in(last.parent))[0].notes


def test_other_targets_are_left_out(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full")
    last = write_run(
        {"sums": [0, 0]}, compressor="h-obf", edit=lambda row: row | ({"target_hash": "x"} if row["doc_id"] else {})
    )
    comparison = compared(arms_in(last.parent))[0]
    assert comparison.documents == 1
    assert "1 documents have another target and are left out" in comparison.notes


def test_another_task_version_is_refused(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full")
    last = write_run({"sums": [1, 0]}, compressor="h-obf", version=2.0)
    comparison = compared(arms_in(last.parent))[0]
    assert "versions 1.0 and 2.0 are not comparable" in comparison.verdict
    assert comparison.difference is None


def test_nothing_in_common_is_refused(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full")
    last = write_run({"sums": [1, 0]}, compressor="h-obf", edit=lambda row: row | {"doc_hash": f"o{row['doc_id']}"})
    assert "no scored document in common" in compared(arms_in(last.parent))[0].verdict


def test_zero_samples_and_scores_of_nan_are_refused(write_run: Callable[..., Path]) -> None:
    write_run({"sums": []}, compressor="full")
    last = write_run({"sums": [float("nan")] * 3}, compressor="h-obf")
    assert "(0 documents)" in compared(arms_in(last.parent))[0].verdict


def test_missing_seeds_are_said(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full", seed=4)
    write_run({"sums": [1, 0]}, compressor="full", seed=44)
    last = write_run({"sums": [1, 1]}, compressor="h-obf", seed=4)
    assert "seeds differ: h-obf has 4; full has 4, 44" in compared(arms_in(last.parent))[0].notes


def test_a_seed_that_lacks_documents_is_said(write_run: Callable[..., Path]) -> None:
    for compressor in ("full", "h-obf"):
        write_run({"sums": [1, 0]}, compressor=compressor, seed=4)
        last = write_run({"sums": [1, None]}, compressor=compressor, seed=44)
    notes = compared(arms_in(last.parent))[0].notes
    assert any("h-obf: 1 scores of single seeds are missing" in note for note in notes)


def test_equal_scores_are_not_called_proof_of_equality(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0, 1] * 10}, compressor="full")
    last = write_run({"sums": [1, 0, 1] * 10}, compressor="h-obf")
    comparison = compared(arms_in(last.parent))[0]
    assert comparison.verdict == "same score on all 30 documents; up to 9.5% could still differ"
    assert (comparison.difference.low, comparison.p_holm, comparison.needed) == (None, None, None)


def test_one_class_only_is_compared_without_a_crash(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1] * 30}, compressor="full")
    last = write_run({"sums": [0] * 30}, compressor="gen")
    comparison = compared(arms_in(last.parent))[0]
    assert comparison.verdict == "worse"
    assert comparison.difference.low is None
    assert comparison.needed is None


def test_a_small_difference_states_the_documents_it_would_need(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0, 1] * 10}, compressor="full")
    last = write_run({"sums": [1, 0, 0] + [1, 0, 1] * 9}, compressor="h-obf")
    comparison = compared(arms_in(last.parent))[0]
    assert comparison.verdict.startswith("not distinguishable; ")
    assert comparison.needed > 1000
    assert any("only 1 documents differ" in note for note in comparison.notes)


def test_a_plain_difference_is_found_and_lower_can_be_better(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0] * 30}, compressor="full")
    last = write_run({"sums": [0] * 60}, compressor="gen")
    arms = arms_in(last.parent)
    assert compared(arms)[0].verdict == "worse"
    assert wins(compared(arms), "gen")[:2] == (0, 1)


def test_the_mean_of_tasks_weighs_tasks_not_documents(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [0] * 90, "picks": [1] * 10}, compressor="full")
    last = write_run({"sums": [1] * 9 + [0] * 81, "picks": [1] * 9 + [0]}, compressor="h-obf")
    pooled = next(c for c in compared(arms_in(last.parent)) if c.task is None)
    assert pooled.difference.estimate == pytest.approx((0.1 - 0.1) / 2)
    assert pooled.difference.low < 0 < pooled.difference.high
    assert pooled.notes[0] == "mean of 2 tasks"


def test_scores_that_are_no_shares_are_shown_as_they_are(write_run: Callable[..., Path]) -> None:
    write_run({"loss": [2.0, 3.5, 4.0, 2.5] * 5, "sums": [1, 0] * 10}, compressor="full")
    last = write_run({"loss": [2.5, 3.0, 4.5, 2.75] * 5, "sums": [1, 0] * 10}, compressor="gen")
    arms = arms_in(last.parent)
    loss = compared(arms)[0]
    assert (loss.unit, loss.needed) == (1, None)
    assert "points" not in answer(read_findings([last.parent]))[0]
    table = main_table(arms, ["loss", "sums"])
    assert [column.name for column in table.columns] == ["arm", "loss", "sums"]
    assert table.rows[0].cells == ("full", 3.0, 50.0)
    assert not any(c.task is None for c in compared(arms))


def test_holm_covers_every_comparison_made(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0] * 6}, compressor="full")
    for compressor in ("gen", "h-obf"):
        last = write_run({"sums": [0] * 12}, compressor=compressor)
    first, second = compared(arms_in(last.parent))
    assert first.p_value == pytest.approx(2 / 64)
    assert first.p_holm == pytest.approx(4 / 64) == second.p_holm
    assert not first.distinguishable


def test_where_agents_ran_makes_no_other_arm(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="gen", seed=1)
    places = {"pipeline": True, "pipeline_timeout": 60, "agent_devices": "planner:cpu"}
    last = write_run({"sums": [1, 0]}, compressor="gen", seed=2, **places)
    assert [(arm.name, arm.seeds("sums")) for arm in arms_in(last.parent)] == [("gen", (1, 2))]


def test_runs_of_any_model_can_be_compared(dummy_folder: Path) -> None:
    arms = arms_in(dummy_folder)
    runs = arms[0].runs["picks"]
    assert list(pair(runs, runs, ("a", "b")).first) == [0.0, 0.0, 1.0]


def test_other_metrics_are_not_paired(dummy_folder: Path) -> None:
    files, _ = find_results([dummy_folder])
    picks = [[run for run in load_runs(files, metric) if run.task == "picks"] for metric in ("acc", "acc_norm")]
    with pytest.raises(NotComparable, match="metrics acc and acc_norm"):
        pair(*picks, ("a", "b"))
