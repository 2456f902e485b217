"""The doctor finds what is there, and says what to do about what is not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from transformers import Gemma3Config, LlamaConfig, T5Config

from lm_eval_latentmas import datasets, doctor, reach
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


def test_the_layers_of_a_model_of_several_parts_are_those_that_read_text(tmp_path: Path) -> None:
    Gemma3Config(text_config={"num_hidden_layers": 7}).save_pretrained(tmp_path)
    check = next(doctor.model(argparse.Namespace(offline=True, pretrained=str(tmp_path))))
    assert (check.state, check.found) == ("good", "gemma3, 7 layers")


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """No server answers; how the doctor is asked without --offline."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(reach, "answers", lambda server: False)
    return argparse.Namespace(offline=False, pretrained="no-one/such-model")


def test_servers_that_do_not_answer_are_named_once(silence: argparse.Namespace) -> None:
    checks = list(doctor.network(silence))
    assert [check.name for check in checks] == ["network huggingface.co", "network github.com"]
    assert {check.state for check in checks} == {"limited"}
    assert "only what is on this machine counts" in checks[0].found


def test_what_no_server_gives_is_read_from_what_is_kept(
    silence: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets as library

    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", False)

    def load(name: str, folder: str | None) -> list[int]:
        if datasets.BENCHMARKS[name].packaged:
            return [1]
        assert library.config.HF_HUB_OFFLINE, "the network was asked"
        if name == "gsm8k":
            return [1, 2]
        raise ValueError("nothing kept")

    monkeypatch.setattr(datasets, "load", load)
    checks = states(doctor.data, silence)
    assert checks["data gsm8k"].found == "2 documents from openai/gsm8k, kept on this machine"
    assert checks["data medqa"].found == "not on this machine, and huggingface.co does not answer"
    assert checks["data mbpp_plus"].found == "not on this machine, and github.com does not answer"
    assert not library.config.HF_HUB_OFFLINE


def test_a_model_that_is_elsewhere_is_not_waited_for(silence: argparse.Namespace) -> None:
    check = next(doctor.model(silence))
    assert (check.state, check.found) == ("bad", "not on this machine, and huggingface.co does not answer")


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
