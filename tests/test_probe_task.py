"""The relay probe as lm-eval runs it: any model, both ways of asking, metrics by type of fact."""

from __future__ import annotations

from typing import Any

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from lm_eval_latentmas.autoload import task_folder
from lm_eval_latentmas.probe_task import generated, ranked, splits
from lm_eval_latentmas.relay_probe import UPSTREAM_MARK

DOC = {"answer": "red", "candidates": ["blue", "red", "green"], "fact_type": "colour"}


class Reader(LM):
    """Answers from the notes; ``blind`` sees the question alone and answers nothing."""

    def __init__(self, blind: bool) -> None:
        super().__init__()
        self.blind = blind

    def _answer(self, text: str) -> str:
        notes, _, question = text.partition(UPSTREAM_MARK)
        asked = next(word for word in question.replace("?", " ").split() if f"the {word}" in notes and word in PLACES)
        line = next(line for line in notes.splitlines() if f"the {asked} " in line and any(s in line for s in SAID))
        return "" if self.blind else line

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [self._answer(request.args[0]) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        found = [request.args[1].strip() in self._answer(request.args[0]) for request in requests]
        return [(0.0 if right else -1.0, right) for right in found]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


SAID = ("code word", "inventory number", "is painted", "holds")
PLACES = {place for doc in splits()["test"] for place in doc["question"].replace("?", " ").split()} - {"the", "of"}


def evaluate(task: str, *, blind: bool = False, **metadata: Any) -> dict[str, Any]:
    settings = {"probe_documents": 16, "seed": 99} | metadata
    manager = TaskManager(include_path=task_folder(), include_defaults=False, metadata=settings)
    return lm_eval.simple_evaluate(Reader(blind), tasks=[task], task_manager=manager, bootstrap_iters=0)


@pytest.fixture(autouse=True)
def _no_environment_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


@pytest.mark.parametrize("task", ["latentmas_relay_probe", "latentmas_relay_probe_rank"])
def test_whoever_reads_the_notes_is_right_on_every_type(task: str) -> None:
    metrics = evaluate(task)["results"][task]
    shares = {
        name: metrics[f"{name},none"] for name in ("acc", "acc_code_word", "acc_number", "acc_colour", "acc_list")
    }
    assert set(shares.values()) == {1.0}


def test_whoever_does_not_is_wrong_and_counted_as_without_an_answer() -> None:
    metrics = evaluate("latentmas_relay_probe", blind=True)["results"]["latentmas_relay_probe"]
    assert (metrics["acc,none"], metrics["no_answer,none"]) == (0.0, 1.0)
    rank = evaluate("latentmas_relay_probe_rank", blind=True)["results"]["latentmas_relay_probe_rank"]
    assert rank["rank,none"] == 8.0


def test_documents_follow_the_probes_settings_and_not_the_models() -> None:
    first = evaluate("latentmas_relay_probe", seed=1)["samples"]["latentmas_relay_probe"]
    second = evaluate("latentmas_relay_probe", seed=2)["samples"]["latentmas_relay_probe"]
    other = evaluate("latentmas_relay_probe", probe_seed=5)["samples"]["latentmas_relay_probe"]
    texts = [[sample["doc"]["text"] for sample in samples] for samples in (first, second, other)]
    assert len(texts[0]) == 16
    assert texts[0] == texts[1]
    assert not set(texts[0]) & set(texts[2])


def test_metrics_of_one_document() -> None:
    assert generated(DOC, [["Red.", "blue", "?"]]) == {"acc": 1 / 3, "acc_colour": 1 / 3, "no_answer": 1 / 3}
    assert ranked(DOC, [(-1.0, False), (-2.0, False), (-3.0, False)]) == {"acc": 0.0, "acc_colour": 0.0, "rank": 2.0}
