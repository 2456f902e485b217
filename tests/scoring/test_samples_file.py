"""The programs of a run, as a file that EvalPlus reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evalplus.data import load_solutions

from lm_eval_latentmas.scoring.samples_file import keep_samples_in, write_samples

ROWS = [
    [{"task_id": "Mbpp/2", "solution": "def f():\n    return '\ud800 ä'\n", "base": "passed"}],
    [{"task_id": "Mbpp/3", "solution": "", "base": "no_code"}, {"task_id": "Mbpp/3", "solution": "x = 1"}],
]


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch, tmp_path):
    monkeypatch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LATENTMAS_SAMPLES_DIR", raising=False)
    yield
    keep_samples_in(None)


def test_evalplus_reads_every_program():
    read = list(load_solutions(write_samples(ROWS)))
    assert [(row["task_id"], row["solution"]) for row in read] == [
        (row["task_id"], row["solution"]) for rows in ROWS for row in rows
    ]


def test_the_file_goes_where_it_was_asked_for(monkeypatch, tmp_path):
    assert Path(write_samples(ROWS)).is_relative_to(tmp_path / "cache" / "samples")
    keep_samples_in(tmp_path / "run")
    assert Path(write_samples(ROWS)) == tmp_path / "run" / "mbpp_samples.jsonl"
    monkeypatch.setenv("LATENTMAS_SAMPLES_DIR", str(tmp_path / "asked"))
    assert Path(write_samples(ROWS)) == tmp_path / "asked" / "mbpp_samples.jsonl"


def test_a_run_that_is_resumed_writes_a_whole_file_again(tmp_path):
    keep_samples_in(tmp_path)
    write_samples(ROWS)
    path = Path(write_samples(ROWS[:1]))
    assert [json.loads(line)["task_id"] for line in path.read_text().splitlines()] == ["Mbpp/2"]
    assert [each.name for each in tmp_path.glob("*samples*")] == ["mbpp_samples.jsonl"]
