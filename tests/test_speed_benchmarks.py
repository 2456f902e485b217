"""Every benchmark at toy size: it runs, its variants agree (each checks that itself), and its table is whole."""

import importlib
import json
from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import gpu
from benchmarks.sizes import TOY

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
    assert {"cores", "threads", "load", "environment", "versions"} <= written["machine"].keys()
    assert list(written["tables"]) == ["a"]


def test_a_letter_without_a_benchmark_is_named():
    with pytest.raises(SystemExit):
        command.main(["--only", "a,z"])


def test_a_model_that_a_size_lacks_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["--toy", "--models", "toy,llama"])
    assert "--models llama: of this size are toy" in capsys.readouterr().err


def test_some_models_of_a_size_can_be_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "measure", lambda letters, sizes, path: asked.append(sizes.models))
    command.main(["--quick", "--models", "Qwen3-0.6B"])
    assert asked == [{"Qwen3-0.6B": 3}]


def test_the_gpu_script_says_that_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device; --toy"):
        gpu.main([])
