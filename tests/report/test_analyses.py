"""The paper's tables and analyses come out of results, with known numbers where the results are made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_latentmas.report.analyses import (
    borda_table,
    fit_recovery,
    recovery_cells,
    recovery_table,
    score_cost_table,
)
from lm_eval_latentmas.report.arms import Arm, find_arm, gather_arms
from lm_eval_latentmas.report.comparison import compare_arms
from lm_eval_latentmas.report.costs import arm_cost, cost_table, has_costs, length_table
from lm_eval_latentmas.report.probe import probe_tables
from lm_eval_latentmas.report.reading import find_results
from lm_eval_latentmas.report.runs import load_runs
from lm_eval_latentmas.report.score_tables import comparison_table, health_table, main_table, seed_table, sign_table
from lm_eval_latentmas.report.sweeps import sweep, sweep_table, swept_arguments
from lm_eval_latentmas.report.tables import Table

TASKS = ["sums", "picks", "codes"]


def arms_in(*places: Path) -> list[Arm]:
    return gather_arms(load_runs(find_results(places)[0]))[0]


def by_name(table: Table) -> dict[str, dict[str, object]]:
    names = [column.name for column in table.columns]
    return {row.cells[0]: dict(zip(names, row.cells, strict=True)) for row in table.rows}


def share(percent: int, documents: int = 100) -> list[int]:
    return [1] * percent + [0] * (documents - percent)


@pytest.fixture
def paper_like(write_run: Callable[..., Path]) -> list[Arm]:
    """Three tasks; recovery is half of the damage, whatever the rank."""
    scores = {"full": (80, 60, 90), "headwise": (70, 56, 70), "h-obf": (75, 58, 80), "gen": (50, 60, 40)}
    sizes = {"full": 1000, "headwise": 200, "h-obf": 200, "gen": 100}
    for compressor, shares in scores.items():
        values = {task: share(percent) for task, percent in zip(TASKS, shares, strict=True)}
        for rank in (2, 4) if compressor == "h-obf" else (None,):
            given = {"pca_rank": rank} if rank else {}
            last = write_run(values, compressor=compressor, relay_bytes=sizes[compressor], **given)
    return arms_in(last.parent)


def test_main_table(paper_like: list[Arm]) -> None:
    table = main_table(paper_like, TASKS)
    rows = by_name(table)
    assert rows["full"] == {"arm": "full", "sums": 80.0, "picks": 60.0, "codes": 90.0, "mean": pytest.approx(230 / 3)}
    assert [places[1] for places in table.places()] == [1, None, 2, 2, None]
    assert "sums (exact_match)" in table.note


def test_a_mean_over_fewer_tasks_is_not_shown(paper_like: list[Arm]) -> None:
    assert by_name(main_table(paper_like, [*TASKS, "other"]))["full"]["mean"] is None


def test_seeds_are_listed(write_run: Callable[..., Path]) -> None:
    write_run({"sums": share(50)}, compressor="full", seed=4)
    last = write_run({"sums": share(60)}, compressor="full", seed=44)
    row = seed_table(arms_in(last.parent), ["sums"]).rows[0]
    assert row.cells[2] == "4: 50.00, 44: 60.00"
    assert row.cells[3] == pytest.approx(50**0.5)


def test_unread_and_cut_off_answers_are_shown_where_tasks_report_them(write_run: Callable[..., Path]) -> None:
    path = write_run({"sums": share(50)}, compressor="full")
    assert health_table(arms_in(path), ["sums"]) is None
    results = json.loads(path.read_text())
    results["results"]["sums"] |= {"no_answer,none": 0.25, "truncated,none": 0.5, "truncated,other": 0.9}
    path.write_text(json.dumps(results))
    assert health_table(arms_in(path), ["sums"]).rows[0].cells == ("sums", "full", 25.0, 50.0)


def test_costs_in_the_columns_of_the_paper(paper_like: list[Arm]) -> None:
    rows = by_name(cost_table(paper_like, find_arm(paper_like, None), TASKS))
    assert rows["headwise"]["relay MB"] == pytest.approx(6 * 200e-6)
    assert rows["headwise"]["relay ratio"] == pytest.approx(5.0)
    assert rows["full"]["end to end s"] == pytest.approx(4.1)
    assert rows["gen"]["truncated %"] == pytest.approx(1.0)
    lengths = by_name(length_table(paper_like, TASKS))["sums"]
    assert lengths["L"] == pytest.approx(599)
    assert lengths["rho % gen"] == pytest.approx(100 * sum(100 / (500 + 2 * d) for d in range(100)) / 100)


def test_the_relay_probe_is_told_by_type_and_distance(write_run: Callable[..., Path]) -> None:
    def fact(row: dict) -> dict:
        doc = {"question": row["doc"]["question"], "fact_type": ["colour", "number"][row["doc_id"] % 2]}
        return row | {"doc": doc | {"distance": row["doc_id"]}}

    write_run({"probe": [1] * 9}, compressor="full", edit=fact)
    last = write_run({"probe": [1, 0, 1, 0, 1, 0, 0, 0, 0]}, compressor="gen", edit=fact)
    table = probe_tables(arms_in(last.parent), ["probe"])[0]
    row = by_name(table)["gen"]
    assert row["all"] == pytest.approx(100 / 3)
    assert (row["colour"], row["number"]) == (pytest.approx(60.0), 0.0)
    assert (row["late"], row["middle"], row["early"]) == (pytest.approx(200 / 3), pytest.approx(100 / 3), 0.0)
    assert "9 documents" in table.note


def test_other_tasks_have_no_probe_table(write_run: Callable[..., Path]) -> None:
    assert probe_tables(arms_in(write_run({"sums": [1, 0]})), ["sums"]) == []


def test_other_models_costs_are_unknown_not_zero(dummy_folder: Path) -> None:
    arms = arms_in(dummy_folder)
    assert not has_costs(arms)
    assert arm_cost(arms[0], ["sums"]).relay_bytes is None


def test_recovery_is_fitted_over_damage(paper_like: list[Arm]) -> None:
    cells = recovery_cells(paper_like, "headwise")
    assert [(round(c.damage), round(c.recovery)) for c in cells] == [(10, 5), (4, 2), (20, 10)]
    fit = fit_recovery(cells)
    assert (fit.slope, fit.r, fit.cells) == (pytest.approx(0.5), pytest.approx(1.0), 3)
    assert recovery_table(paper_like).rows[-1].cells[1] == "fit over 3 cells"


def test_no_line_is_fitted_through_too_little(paper_like: list[Arm]) -> None:
    assert fit_recovery(recovery_cells(paper_like, "headwise")[:2]).slope is None
    assert recovery_cells(paper_like, "layerwise") == []
    assert recovery_table(paper_like[:1]) is None


def test_borda_ranks_by_hand(write_run: Callable[..., Path]) -> None:
    for compressor, (first, second) in {"full": (3, 2), "gen": (2, 2), "h-obf": (1, 3)}.items():
        last = write_run({"sums": share(first), "picks": share(second)}, compressor=compressor)
    rows = by_name(borda_table(arms_in(last.parent), ["sums", "picks"]))
    assert {name: row["Borda points"] for name, row in rows.items()} == {"full": 2.5, "gen": 1.5, "h-obf": 2.0}
    assert rows["full"]["mean rank"] == pytest.approx(1.75)
    assert borda_table(arms_in(last.parent)[:1], ["sums"]) is None


def test_score_against_cost(paper_like: list[Arm]) -> None:
    row = by_name(score_cost_table(paper_like, TASKS))["gen"]
    assert row["mean score"] == pytest.approx(50.0)
    assert row["output tokens"] == pytest.approx(40 + 99 / 2)


def test_where_nothing_was_decoded_no_length_is_the_best(paper_like: list[Arm]) -> None:
    for arm in paper_like:
        for run in (run for runs in arm.runs.values() for run in runs):
            run.relay["decoded_tokens"] = [0] * len(run.relay["decoded_tokens"])
    assert score_cost_table(paper_like, TASKS) is None
    columns = [column.name for column in cost_table(paper_like, paper_like[0], TASKS).columns]
    assert "output tokens" not in columns
    assert "truncated %" not in columns


def test_a_sweep_joins_arms_that_differ_in_one_argument(write_run: Callable[..., Path]) -> None:
    for budget in (8, 2, 32):
        for compressor in ("headwise", "h-obf"):
            last = write_run({"sums": share(50 + budget)}, compressor=compressor, kv_budget=budget, relay_bytes=9)
    write_run({"sums": share(99)}, compressor="full", relay_bytes=9)
    arms = arms_in(last.parent)
    assert swept_arguments(arms) == ["kv_budget"]
    lines = sweep(arms, "kv_budget", "sums")
    assert sorted(lines) == ["h-obf", "headwise"]
    assert [(p.value, round(p.score.estimate)) for p in lines["h-obf"]] == [(2, 52), (8, 58), (32, 82)]
    assert all(p.score.low < p.score.estimate < p.score.high for p in lines["h-obf"])
    assert len(sweep_table(arms, "kv_budget", ["sums"]).rows) == 6
    assert sweep_table(arms, "latent_steps", ["sums"]) is None


def test_comparisons_and_sign_tests_as_tables(paper_like: list[Arm]) -> None:
    comparisons = compare_arms(paper_like, find_arm(paper_like, "headwise"))
    table = comparison_table(comparisons)
    row = next(row.cells for row in table.rows if row.cells[:2] == ("h-obf pca_rank=2", "sums"))
    cells = dict(zip([column.name for column in table.columns], row, strict=True))
    assert cells["difference"] == pytest.approx(5.0)
    assert (cells["documents"], cells["gained"], cells["lost"]) == (100.0, 5.0, 0.0)
    assert cells["against"] == "headwise"
    assert by_name(sign_table(comparisons))["h-obf pca_rank=2"] == {
        "arm": "h-obf pca_rank=2",
        "tasks won": 3.0,
        "tasks lost": 0.0,
        "p, two-sided": pytest.approx(0.25),
    }
