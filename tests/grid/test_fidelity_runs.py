"""Fidelity compares every arm with the full relay on the same answers: full is perfect, less relay is less so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_eval_latentmas.cli import main
from lm_eval_latentmas.decoding import Decoder
from lm_eval_latentmas.grid import fidelity
from lm_eval_latentmas.grid.plan import Cell, Grid, expand
from lm_eval_latentmas.grid.weights import Weights
from lm_eval_latentmas.report.fidelity import read_fidelity, summarise_fidelity


def grid(home: Path, results: Path, arms: list[dict[str, Any]]) -> Grid:
    return Grid(
        arms=expand(arms),
        tasks=("sums",),
        results=results,
        seeds=(1,),
        model_args={"pretrained": str(home / "model"), "prompts": str(home / "prompts.yaml"), "latent_steps": 2},
        batch_size=2,
        device="cpu",
        include_path=str(home / "tasks"),
    )


def test_full_is_perfect_and_less_relay_is_less_so(home: Path, tmp_path: Path) -> None:
    arms = [{"compressor": ["full", "gen", "headwise"], "kv_budget": 8}, {"compressor": "full", "relay": "none"}]
    paths = fidelity.measure_fidelity(grid(home, tmp_path, arms), say=lambda line: None)
    assert [path.name for path in paths] == ["fidelity_sums_seed1.jsonl"]
    documents = read_fidelity([tmp_path])
    summaries = {summary.arm: summary for summary in summarise_fidelity(documents)}
    assert summaries["full kv_budget=8"].kl.estimate == pytest.approx(0, abs=1e-6)
    assert summaries["full kv_budget=8"].agreement.estimate == 1
    assert summaries["gen kv_budget=8"].kl.estimate > 1e-4
    assert summaries["none"].kl.estimate > 1e-4
    assert {summary.documents for summary in summaries.values()} == {4}


@torch.inference_mode()
def test_states_are_those_of_decoding(home: Path, tmp_path: Path) -> None:
    """Greedily decoded tokens are the likeliest ones along the answer that they make."""
    plan = grid(home, tmp_path, [{"compressor": "headwise", "kv_budget": 4}])
    lm = Weights(plan).under(plan.cells[0])
    question = fidelity.Question("sums", 0, 0, "What is 3 + 3?", fidelity.Generation(max_gen_toks=8))
    handed = fidelity._handed(lm, [question], [question])[0]
    decoder = Decoder(lm.adapter, rows=1)
    done = decoder.admit([lm.chain._job(handed)])
    while not done:
        done = decoder.run()
    tokens = torch.tensor(done[0].tokens)
    logits = lm.adapter.logits(fidelity.read_answer(lm, handed, done[0].tokens))
    assert len(tokens) > 3
    assert torch.equal(logits.argmax(dim=-1), tokens)


def test_an_arm_of_other_weights_is_refused(home: Path, tmp_path: Path) -> None:
    plan = grid(home, tmp_path, [{"compressor": "gen", "dtype": "bfloat16"}])
    with pytest.raises(ValueError, match="dtype loads another"):
        list(fidelity.compare_with_full(Weights(plan), plan.cells, []))


def test_batches_do_not_matter(home: Path, tmp_path: Path) -> None:
    plan = grid(home, tmp_path, [{"compressor": ["gen", "full"]}, {"compressor": "full", "relay": "shuffled"}])
    fidelity.measure_fidelity(plan, say=lambda line: None)
    answered = fidelity.read_answered(plan.folder(Cell(fidelity.FULL, 1)))
    one, all_four = (
        list(fidelity.compare_with_full(Weights(replace(plan, batch_size=size)), plan.cells, answered))
        for size in (1, 4)
    )
    by_arm = [{(d.arm, d.doc_id): d.kl for d in found} for found in (one, all_four)]
    assert len(by_arm[0]) == 3 * len(answered)
    assert by_arm[0] == pytest.approx(by_arm[1], rel=1e-3, abs=1e-9)


def test_the_command_shows_the_table(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_args = f"pretrained={home}/model,prompts={home}/prompts.yaml,latent_steps=2"
    given = ["--compressors", "gen,h-obf", "--tasks", "sums", "--include_path", f"{home}/tasks", "--device", "cpu"]
    assert main(["fidelity", *given, "--model_args", model_args, "--results", str(tmp_path), "--limit", "3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("### Relay fidelity")
    assert "| h-obf | 3 |" in out
    assert re.search(r"fidelity: 100%.* 6/6 ", err)


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fidelity", "--tasks", "sums"]) == 2
    assert "needs --compressors and --tasks" in capsys.readouterr().err
