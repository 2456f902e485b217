"""Every benchmark at toy size: it runs, its variants agree (each checks that itself), and its table is whole."""

import importlib
import json
from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import chain, gpu, models, step
from benchmarks.sizes import QUICK, TOY

SMALL = replace(TOY, rounds=1, compile=False, batches=(2,), new_tokens=2, agents=(4, 5))
COLUMNS = {
    "a": {"loop", "exact", "fast", "loop / exact", "loop / fast"},
    "b": {"floor", "ours", "plain", "ours / floor", "plain / ours"},
    "c": {"way", "tokens / s", "useful slots, %"},
    "e": {"agents", "compressor", "of full"},
    "f": {"Gbit/s", "compressor", "MB a rollout", "last hop", "rollout", "of full"},
}


@pytest.mark.parametrize("letter", COLUMNS)
def test_the_table_is_whole(letter):
    table = importlib.import_module(f"benchmarks.{command.BENCHMARKS[letter]}").run(SMALL)
    assert table.rows
    assert table.targets
    assert all(target.keys() == {"what", "measured", "bound", "reached"} for target in table.targets)
    assert set().union(*table.rows) >= COLUMNS[letter]
    assert all(f"| {column}" in str(table) for column in COLUMNS[letter])


def test_tables_are_written_with_what_they_depend_on(tmp_path):
    path = tmp_path / "found" / "results.json"
    command.measure(["a"], SMALL, path)
    written = json.loads(path.read_text("utf-8"))
    assert written["size"] == "toy"
    assert written["sizes"]["rounds"] == 1
    assert {"cores", "threads", "load", "environment", "versions"} <= written["machine"].keys()
    assert list(written["tables"]) == ["a"]


def test_a_letter_without_a_benchmark_is_named():
    with pytest.raises(SystemExit):
        command.main(["--only", "a,z"])


def test_a_model_that_a_size_lacks_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["--toy", "--models", "toy,llama"])
    assert "--models llama: of this size are toy" in capsys.readouterr().err


def test_a_part_of_a_size_can_be_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "measure", lambda letters, sizes, path: asked.append(sizes))
    command.main(["--quick", "--models", "Qwen3-0.6B", "--batches", "1,8", "--skew", "2,150,1024", "--rounds", "3"])
    command.main(["--quick", "--skew", "0"])
    assert asked[0] == replace(QUICK, models={"Qwen3-0.6B": 3}, batches=(1, 8), skew=(2, 150, 1024), rounds=3)
    assert asked[1] == replace(QUICK, skew=(0, 0, 0))


def test_equal_lengths_alone_can_be_measured():
    table = chain.run(replace(SMALL, skew=(0, 0, 0)))
    assert "skewed: plain / ours" not in table.rows[0]
    assert [target["what"] for target in table.targets] == ["ours / floor, most", "plain / ours, least"]


@pytest.mark.parametrize("skew", ["2,3", "some"])
def test_a_skew_that_is_none_is_refused(skew):
    with pytest.raises(SystemExit):
        command.main(["--toy", "--skew", skew])


def test_the_gpu_script_says_that_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device; --toy"):
        gpu.main([])


def test_the_profile_of_a_step_is_whole(monkeypatch):
    monkeypatch.setattr(step, "TIMES", 2)
    monkeypatch.setattr(step, "ROUNDS", 2)
    table = step.run(models.toy())
    assert [row["what"] for row in table.rows][-1] == "the plain way's step"
    assert len(table.rows) == 7
    assert all(row["ms"].median > 0 for row in table.rows)
