"""A grid runs every cell once over one loaded model, can be stopped and resumed, and its results can be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lm_eval_latentmas.autoload import task_folder
from lm_eval_latentmas.cli import main
from lm_eval_latentmas.grid import runner
from lm_eval_latentmas.grid.plan import Grid, arms_of, expand
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.report.contents import pictures_of
from lm_eval_latentmas.report.diagnostics import kept_share, prompts_with_selection
from lm_eval_latentmas.report.findings import read_findings
from lm_eval_latentmas.report.reading import find_results, read_samples
from lm_eval_latentmas.report.sample_data import sample_data


def grid(home: Path, results: Path, arms: list[dict[str, Any]], **changes: Any) -> Grid:
    model_args = {"pretrained": str(home / "model"), "prompts": str(home / "prompts.yaml"), "latent_steps": 2}
    settings = {"seeds": (1, 2), "batch_size": 2, "device": "cpu", "include_path": str(home / "tasks"), **changes}
    return Grid(arms=expand(arms), tasks=("sums",), results=results, model_args=model_args, **settings)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often weights were loaded and samples computed."""
    counts = {"loads": 0, "samples": 0}
    create, answer = LatentMASLM._create_model, LatentMASLM._response

    def counted_create(self: LatentMASLM, *args: Any, **kwargs: Any) -> None:
        counts["loads"] += 1
        create(self, *args, **kwargs)

    def counted_answer(self: LatentMASLM, *args: Any) -> Any:
        counts["samples"] += 1
        return answer(self, *args)

    monkeypatch.setattr(LatentMASLM, "_create_model", counted_create)
    monkeypatch.setattr(LatentMASLM, "_response", counted_answer)
    return counts


def test_every_cell_is_run_over_one_loaded_model_and_can_be_compared(
    home: Path, tmp_path: Path, counted: dict[str, int]
) -> None:
    said: list[str] = []
    runner.run_grid(
        grid(home, tmp_path, [{"compressor": ["full", "h-obf"]}, {"compressor": "h-obf", "kv_budget": 4}]), said.append
    )
    assert counted["loads"] == 1
    assert [line.split(" (")[0] for line in said[:2]] == ["run 1 of 6: full, seed 1", "run 2 of 6: full, seed 2"]
    findings = read_findings([tmp_path])
    assert [arm.name for arm in findings.arms] == ["full", "h-obf", "h-obf kv_budget=4"]
    assert all(arm.seeds("sums") == (1, 2) for arm in findings.arms)
    assert [c.documents for c in findings.comparisons] == [4, 4]
    assert findings.notes == ()


def test_what_is_finished_is_not_run_again(home: Path, tmp_path: Path, counted: dict[str, int]) -> None:
    plan = grid(home, tmp_path, [{"compressor": ["full", "gen"]}])
    runner.run_grid(plan)
    said: list[str] = []
    runner.run_grid(plan, said.append)
    assert said == ["4 of 4 runs are finished already"]
    assert counted == {"loads": 1, "samples": 16}


def test_a_changed_limit_runs_again_and_takes_finished_samples_from_the_run_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [{"compressor": "gen"}]
    runner.run_grid(grid(home, tmp_path, arms, seeds=(1,), limit=2))
    computed: list[int] = []
    from lm_eval_latentmas.journal import Journal

    put = Journal.put
    monkeypatch.setattr(
        Journal, "put", lambda self, key, record: (computed.append(record.doc_id), put(self, key, record))
    )
    plan = grid(home, tmp_path, arms, seeds=(1,))
    runner.run_grid(plan)
    assert sorted(computed) == [2, 3]
    assert runner.is_finished(plan, plan.cells[0])


def test_results_of_other_arguments_or_cut_off_ones_do_not_count_as_finished(home: Path, tmp_path: Path) -> None:
    plan = grid(home, tmp_path, [{"compressor": "gen"}], seeds=(1,))
    runner.run_grid(plan)
    cell = plan.cells[0]
    assert runner.is_finished(plan, cell)
    assert not runner.is_finished(
        grid(home, tmp_path, [{"compressor": "gen"}], seeds=(1,), gen_kwargs={"top_p": 0.5}), cell
    )
    results = find_results([tmp_path])[0][0].path
    results.write_text(results.read_text()[:100])
    assert not runner.is_finished(plan, cell)


def test_another_model_is_loaded_where_loading_differs(home: Path, tmp_path: Path, counted: dict[str, int]) -> None:
    runner.run_grid(grid(home, tmp_path, [{"compressor": "gen", "dtype": ["float32", "bfloat16"]}], seeds=(1,)))
    assert counted["loads"] == 2
    assert [arm.name for arm in read_findings([tmp_path]).arms] == ["gen dtype=float32", "gen dtype=bfloat16"]


def test_samples_that_were_not_written_stop_the_grid(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.EvaluationTracker, "save_results_samples", lambda *args, **kwargs: None)
    with pytest.raises(runner.ResultsNotWritten, match="the samples of sums are not all there"):
        runner.run_grid(grid(home, tmp_path, [{"compressor": "gen"}], seeds=(1,)))


def test_a_wrong_argument_stops_before_weights_load(home: Path, tmp_path: Path, counted: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="did you mean 'kv_budget'"):
        runner.run_grid(grid(home, tmp_path, [{"compressor": "gen"}, {"kv_buget": 8}], seeds=(1,)))
    assert counted["loads"] == 0


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (arms_of("gen,shuffled"), r"relay=shuffled: .* each of 2 processes"),
        ([{"compressor": ["gen", "full"], "pipeline": True}], r"pipeline=True: .* 2 runs"),
        ([{"compressor": "gen"}, {"agent_devices": "planner:cpu"}], "2 processes would share these devices"),
        ([{"compressor": "gen"}, {"agent_devices": "planer:cpu"}], "did you mean 'planner'"),
        ([{"compressor": "gen"}, {"prompts": "nowhere.yaml"}], "prompts=nowhere.yaml: no such file"),
    ],
)
def test_what_any_cell_cannot_run_is_refused_before_weights_load(
    home: Path,
    tmp_path: Path,
    counted: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    arms: list[dict[str, Any]],
    message: str,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=message):
        runner.run_grid(grid(home, tmp_path, arms, seeds=(1,)))
    assert counted["loads"] == 0


def test_compare_runs_a_grid_file_and_reports(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(
        f"tasks: [sums]\ninclude_path: {home}/tasks\nbatch_size: 2\n"
        f"model_args: {{pretrained: {home}/model, prompts: {home}/prompts.yaml, latent_steps: 2}}\n"
        "arms: [{compressor: [full, gen]}]\n"
    )
    assert main(["compare", "--grid", "grid.yaml", "--limit", "2", "--output", "report"]) == 0
    out, err = capsys.readouterr()
    assert "report/report.html" in out
    assert "run 2 of 2: gen, seed 0" in err
    assert len(list(read_samples(next((tmp_path / "results").rglob("samples_*"))))) == 2


def test_sweep_runs_every_combination(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_args = f"pretrained={home}/model,prompts={home}/prompts.yaml,latent_steps=2"
    given = ["--compressors", "h-obf", "--tasks", "sums", "--include_path", f"{home}/tasks", "--device", "cpu"]
    given += ["--model_args", model_args, "--results", str(tmp_path), "--batch_size", "4"]
    assert main(["sweep", "kv_budget=2,8", "pca_rank=1,2", *given]) == 0
    out = capsys.readouterr().out
    assert "### Sweep of kv_budget" in out
    assert "### Sweep of pca_rank" in out
    assert out.count("| sums |") == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["compare"], "nothing to compare"),
        (["compare", "--compressors", "full"], "name what to run them on, --tasks"),
        (["compare", "--compressors", "full", "--tasks", "sums", "--model_args", "x"], "'x' is no NAME=VALUE"),
        (["sweep", "kv_budget=8"], "a sweep needs --tasks"),
        (["sweep", "kv_budget", "--tasks", "sums"], "names no values"),
        (["compare", "--compressors", "full,full", "--tasks", "sums"], "twice among its arms"),
    ],
)
def test_what_is_missing_is_one_line(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_local_data_are_used(home: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(2)]
    (tmp_path / "data" / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = replace(
        grid(home, tmp_path / "out", [{"compressor": "gen"}], seeds=(1,), gen_kwargs={"max_gen_toks": 4}),
        tasks=("latentmas_gsm8k",),
        data_dir=str(tmp_path / "data"),
        include_path=task_folder(),
    )
    runner.run_grid(plan)
    samples = list(read_samples(next((tmp_path / "out").rglob("samples_latentmas_gsm8k_*"))))
    assert [sample["doc"]["question"] for sample in samples] == [row["question"] for row in rows]


def test_diagnostics_of_a_grid_reach_the_report(home: Path, tmp_path: Path) -> None:
    plan = grid(home, tmp_path, [{"compressor": ["headwise", "h-obf"], "kv_budget": 4}], seeds=(1,), limit=2)
    runner.run_grid(replace(plan, model_args=plan.model_args | {"diagnostics": True}))
    findings = read_findings([tmp_path])
    assert [held.arm for held in findings.diagnostics] == ["headwise", "h-obf"]
    prompt = prompts_with_selection(findings.diagnostics[0])[0]
    share = kept_share(findings.diagnostics[0], prompt, len(findings.diagnostics[0].tokens[prompt]))
    # four of the candidates in each of two heads, in each of three layers; the sink is no candidate
    assert share.shape[0] == 3
    assert (share.sum(axis=1) == 4).all()
    assert {"diagnostics", "selection"} <= {picture.name for picture in pictures_of(findings)}
    assert sample_data(findings)["tasks"][0]["kept"]
