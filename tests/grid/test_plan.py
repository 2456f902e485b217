"""A grid stands for exactly the runs it says, and anything unclear in it is refused by name."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lm_eval_latentmas.cli import main
from lm_eval_latentmas.grid import options
from lm_eval_latentmas.grid.plan import Cell, Grid, arms_of, expand, read_grid, swept
from lm_eval_latentmas.relay.settings import number

GRID = """
tasks: [latentmas_gsm8k, latentmas_demo]
seeds: [4, 44]
limit: 8
results: out
model_args: {dtype: float32}
arms:
  - compressor: [full, gen]
  - compressor: [h-obf, l-obf]
    kv_budget: [8, 16]
"""


def test_lists_multiply_within_an_entry() -> None:
    arms = expand([{"compressor": ["full", "gen"]}, {"compressor": "h-obf", "kv_budget": [8, 16]}])
    assert arms == (
        {"compressor": "full"},
        {"compressor": "gen"},
        {"compressor": "h-obf", "kv_budget": 8},
        {"compressor": "h-obf", "kv_budget": 16},
    )


def test_a_file_is_read_and_overridden(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    grid = read_grid(path, limit=2, batch_size=None)
    assert (len(grid.arms), len(grid.cells), grid.limit, grid.batch_size) == (6, 12, 2, 1)
    assert [cell.name for cell in grid.cells[:3]] == ["full, seed 4", "full, seed 44", "gen, seed 4"]
    assert grid.tasks == ("latentmas_gsm8k", "latentmas_demo")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: [", "can't be read"),
        ("- a", "a grid is a mapping"),
        (GRID + "seed: 4", "unknown field 'seed'; did you mean 'seeds'?"),
        ("tasks: [a]\narms: h-obf", "'arms' is a list of mappings"),
        ("arms: [{compressor: full}]", "lacks 'tasks'"),
        ("tasks: []\narms: [{compressor: full}]", "a grid needs tasks"),
        ("tasks: a\nseeds: x\narms: [{compressor: full}]", "'x' is no whole number"),
        ("tasks: a\narms: [{compressor: full}, {compressor: [full]}]", "twice among its arms"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        read_grid(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"nowhere\.yaml: can't be read"):
        read_grid("nowhere.yaml")


def test_controls_are_named_like_compressors() -> None:
    arms = arms_of("none,shuffled,full,h-obf,single,text")
    assert arms[:2] == [{"compressor": "full", "relay": "none"}, {"compressor": "full", "relay": "shuffled"}]
    assert [Cell(arm, 0).arm for arm in arms] == ["none", "shuffled", "full", "h-obf", "single", "text"]
    assert arms[-2:] == [{"mode": "single"}, {"mode": "text"}]
    assert Cell({"compressor": "h-obf", "relay": "shuffled", "kv_budget": 8}, 0).arm == "h-obf shuffled kv_budget=8"


def test_folders_differ_exactly_where_runs_do() -> None:
    odd = [
        {"compressor": "layerwise+obf:rank=4"},
        {"compressor": "layerwise+obf rank=4"},
        {"compressor": "my.module:" + "x" * 90},
        {"compressor": "my.module:" + "x" * 91},
        {"compressor": "h-obf", "kv_budget": 8},
        {"compressor": "h-obf", "kv_budget": 80},
        {},
    ]
    folders = [Cell(arguments, seed).folder for arguments in odd for seed in (4, 44)]
    assert len(set(folders)) == len(folders)
    assert Cell({"compressor": "h-obf", "kv_budget": 8}, 4).folder == "h-obf_kv_budget=8/seed4"
    assert all(":" not in folder and " " not in folder for folder in folders)


def test_swept_arguments_become_numbers_where_they_are_some() -> None:
    assert swept(["kv_budget=8,0.5", "pca_rank=auto,2"]) == {"kv_budget": [8, 0.5], "pca_rank": ["auto", 2]}
    with pytest.raises(ValueError, match="write it as kv_budget=8,16,32"):
        swept(["kv_budget"])


def test_defaults_are_those_of_one_run() -> None:
    grid = Grid(arms=({"compressor": "full"},), tasks=("latentmas_demo",))
    assert [cell.folder for cell in grid.cells] == ["full/seed0"]


@pytest.mark.parametrize("limit", ["-3", "0", "2.5", "nan", "inf", "many", "true"])
@pytest.mark.parametrize("command", [["fidelity"], ["compare"], ["sweep", "kv_budget=8"]])
def test_a_limit_that_leaves_no_documents_is_named(
    command: list[str], limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--compressors", "gen", "--tasks", "latentmas_demo", "--limit", limit]) == 2
    expected = f"limit={number(limit)}: give a number of documents, 1 or more, or a share between 0 and 1\n"
    assert capsys.readouterr().err == f"latentmas-obf {command[0]}: {expected}"


@pytest.mark.parametrize("limit", [1, 1234567, 8.0, 0.25, None])
def test_counts_and_shares_are_limits(limit: float | None) -> None:
    assert Grid(arms=({},), tasks=("a",), limit=limit).limit == limit


def test_a_limit_of_many_digits_is_not_rounded() -> None:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    assert options.settings(parser.parse_args(["--limit", "1234567"])) == {"limit": 1234567}
