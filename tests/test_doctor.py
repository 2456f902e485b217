"""The doctor finds what is there, and says what to do about what is not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import LlamaConfig, T5Config

from lm_eval_latentmas import doctor
from lm_eval_latentmas.cli import main
from lm_eval_latentmas.datasets import FOLDER_VARIABLE

OFFLINE = argparse.Namespace(offline=True, pretrained=None)


def states(look: Callable, asked: argparse.Namespace = OFFLINE) -> dict[str, doctor.Check]:
    return {check.name: check for check in look(asked)}


def test_every_requirement_is_checked() -> None:
    checks = states(doctor.versions)
    assert {"lm-eval", "torch", "transformers"} <= set(checks)
    assert all(check.state == "good" for check in checks.values())


def test_a_version_outside_the_range_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda name: ["torch>=999", "no-such-package>=1", "x; extra == 'y'"]
    )
    checks = states(doctor.versions)
    assert checks["torch"].state == "bad"
    assert checks["torch"].remedy == "pip install 'torch>=999'"
    assert checks["no-such-package"].found == "not installed"
    assert "x" not in checks


def test_a_missing_extra_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.util, "find_spec", lambda module: None)
    check = states(doctor.extras)["extra report"]
    assert check.state == "limited"
    assert check.remedy == "pip install 'lm-eval-latentmas[report]'"


def test_lm_eval_knows_model_and_tasks() -> None:
    check = states(doctor.harness)["lm-eval"]
    assert check.state == "good"
    assert "knows the model and" in check.found


def test_data_are_looked_for_in_the_local_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = {"question": "What is 1 + 1?", "answer": "It is 2.\n#### 2"}
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "medqa.jsonl").write_text("{\n")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    checks = states(doctor.data)
    assert checks["data gsm8k"].found == "1 documents from local folder"
    assert checks["data demo"].state == "good"
    assert "medqa.jsonl, line 1" in checks["data medqa"].remedy
    assert checks["data aime24"].remedy.startswith("put aime24.jsonl into a folder")


@pytest.mark.parametrize(("config", "state"), [(LlamaConfig, "good"), (T5Config, "bad")])
def test_a_named_model_is_checked_by_its_configuration(tmp_path: Path, config: type, state: str) -> None:
    config().save_pretrained(tmp_path)
    check = next(doctor.model(argparse.Namespace(offline=True, pretrained=str(tmp_path))))
    assert check.state == state


def test_a_sandbox_that_does_not_work_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval_latentmas.scoring import sandbox

    class Broken:
        @property
        def level(self) -> str:
            raise sandbox.SandboxError("no namespaces")

    monkeypatch.setattr(sandbox, "Sandbox", Broken)
    check = states(doctor.sandbox)["sandbox"]
    assert (check.state, check.remedy) == ("limited", "no namespaces")


def test_the_status_tells_whether_runs_are_possible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = doctor.Check("a", "good", "there"), doctor.Check("b", "bad", "gone", "bring it back")
    monkeypatch.setattr(doctor, "CHECKS", (lambda asked: [good],))
    assert main(["doctor"]) == 0
    monkeypatch.setattr(doctor, "CHECKS", (lambda asked: [good, bad],))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["!!  b: gone", "      bring it back"]


def test_a_check_is_shown_before_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def look(asked: object) -> Iterator[doctor.Check]:
        yield doctor.Check("fast", "good", "there")
        seen.append(capsys.readouterr().out)
        yield doctor.Check("slow", "good", "there")

    monkeypatch.setattr(doctor, "CHECKS", (look,))
    assert main(["doctor"]) == 0
    assert seen == ["ok  fast: there\n"]
