"""Files that lm-eval wrote are read as they are; everything else is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_latentmas.report.extras import optional
from lm_eval_latentmas.report.reading import UnreadableFile, find_results, read_samples
from lm_eval_latentmas.report.runs import Run, load_runs


def dummy_run(folder: Path, task: str, metric: str | None = None) -> Run:
    files, _ = find_results([folder])
    return next(run for run in load_runs(files, metric) if run.task == task)


def test_a_generation_task_written_by_lm_eval(dummy_folder: Path) -> None:
    run = dummy_run(dummy_folder, "sums")
    assert (run.metric, run.filter, run.version, run.seed, run.aggregate) == (
        "exact_match",
        "strict-match",
        3.0,
        3,
        0.0,
    )
    assert [sample.target for sample in run.samples] == ["36", "40", "13"]
    assert run.samples[1].question.startswith("Lena réads")
    assert run.samples[1].question.endswith("😀")
    assert run.samples[0].responses == ("lol", "lol")
    assert run.samples[0].filtered == "[invalid]"
    assert not run.notes


def test_a_choice_task_written_by_lm_eval(dummy_folder: Path) -> None:
    run = dummy_run(dummy_folder, "picks")
    assert [sample.target for sample in run.samples][:2] == ["blue", "sparrow"]
    assert run.metric == "acc"
    assert [sample.score for sample in run.samples] == [0.0, 0.0, 1.0]
    assert [sample.responses for sample in run.samples] == [("stone",), ("carrot",), ("snow",)]
    assert run.aggregate == pytest.approx(1 / 3)


def test_metric_and_filter_can_be_chosen(dummy_folder: Path) -> None:
    assert dummy_run(dummy_folder, "picks", "acc_norm").metric == "acc_norm"
    assert dummy_run(dummy_folder, "sums", "exact_match,loose").samples[0].filtered == "lol"


def test_an_unknown_metric_names_the_nearest(dummy_folder: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'acc_norm,none'"):
        dummy_run(dummy_folder, "picks", "acc_nrm,none")


def test_files_load_in_pandas_without_work(dummy_folder: Path) -> None:
    pandas = optional("pandas")
    path = next(dummy_folder.glob("samples_picks_*.jsonl"))
    assert list(pandas.read_json(path, lines=True)["acc"]) == [0.0, 0.0, 1.0]


def test_a_missing_place_is_named() -> None:
    with pytest.raises(UnreadableFile, match="nowhere: no such file or folder"):
        find_results(["nowhere"])


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no results of lm-eval in"):
        find_results([tmp_path])


def test_a_truncated_results_file_is_noted_in_a_folder_and_refused_by_name(
    write_run: Callable[..., Path],
) -> None:
    good, bad = write_run({"sums": [1, 0]}, seed=1), write_run({"sums": [1, 0]}, seed=2)
    bad.write_text(bad.read_text()[:200])
    files, notes = find_results([good.parent])
    assert [file.path for file in files] == [good]
    assert len(notes) == 1
    assert bad.name in notes[0]
    assert "cut off" in notes[0]
    with pytest.raises(UnreadableFile, match="cut off"):
        find_results([bad])


def test_a_file_of_another_tool_is_named(tmp_path: Path) -> None:
    other = tmp_path / "results_2026-01-01T10-00-00.000000.json"
    other.write_text(json.dumps({"scores": [1, 2]}))
    with pytest.raises(UnreadableFile, match=r"no results file of lm-eval \(without results"):
        find_results([other])


def test_a_truncated_samples_file_is_named_with_its_line(write_run: Callable[..., Path]) -> None:
    results = write_run({"sums": [1, 0, 1]})
    samples = next(results.parent.glob("samples_*"))
    samples.write_text(samples.read_text()[:-30])
    with pytest.raises(UnreadableFile, match="line 3: cut off"):
        list(read_samples(samples))


def test_samples_of_another_tool_are_named(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"prompt": "x"}\n')
    with pytest.raises(UnreadableFile, match="line 1: no sample of lm-eval"):
        list(read_samples(path))


def test_missing_rows_are_counted(write_run: Callable[..., Path]) -> None:
    path = write_run({"sums": [1, 0, 1]}, edit=lambda row: row if row["doc_id"] else None)
    assert "2 of 3 documents" in load_runs(find_results([path])[0])[0].notes[0]


def test_scores_that_are_no_numbers_are_left_out_and_counted(write_run: Callable[..., Path]) -> None:
    run = load_runs(find_results([write_run({"sums": [1, float("nan"), None, [0, 1]]})])[0])[0]
    assert [sample.score for sample in run.samples] == [1.0, None, None, None]
    assert "3 of 4 documents have no number" in run.notes[0]


def test_a_run_without_samples_says_so(write_run: Callable[..., Path]) -> None:
    path = write_run({"sums": [1, 0]})
    next(path.parent.glob("samples_*")).unlink()
    run = load_runs(find_results([path])[0])[0]
    assert run.aggregate == 0.5
    assert "--log_samples" in run.notes[0]


def test_model_args_written_as_text_are_read(write_run: Callable[..., Path]) -> None:
    path = write_run({"sums": [1]})
    data = json.loads(path.read_text())
    data["config"]["model_args"] = "pretrained=tiny,compressor=l-obf,seed=44"
    path.write_text(json.dumps(data))
    run = load_runs(find_results([path])[0])[0]
    assert (run.arguments["compressor"], run.seed) == ("l-obf", 44)
