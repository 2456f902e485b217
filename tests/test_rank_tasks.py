"""The benchmarks with options, scored by log-likelihood: the wording of lm-eval's own ARC tasks, our documents."""

from __future__ import annotations

import json

import pytest
import yaml
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from stock import DEFINITIONS

from lm_eval_latentmas.autoload import task_folder
from lm_eval_latentmas.benchmarks import BENCHMARKS, benchmarks_of

ARC = [
    {"question": "Which is long?", "choices": {"text": ["a pin", "a river"], "label": ["1", "2"]}, "answerKey": "2"},
    {"question": "What {{x}} melts?", "choices": {"text": ["ice", "sand"], "label": ["A", "B"]}, "answerKey": "A"},
]


class Longest(LM):
    """Finds the longest continuation the likeliest, in total and by byte alike."""

    def __init__(self):
        super().__init__()
        self.requests = []

    def loglikelihood(self, requests):
        self.requests += [request.args for request in requests]
        return [(float(len(request.args[1]) ** 2), False) for request in requests]

    def generate_until(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = generate_until


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "arc_easy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ARC), encoding="utf-8")
    manager = TaskManager(include_path=task_folder(), include_defaults=False, metadata={"data_dir": str(folder)})
    model = Longest()
    results = simple_evaluate(model, tasks=["latentmas_arc_easy_rank"], task_manager=manager, bootstrap_iters=0)
    return model.requests, results["results"]["latentmas_arc_easy_rank"]


def test_requests_are_worded_as_the_stock_task(evaluated):
    stock = yaml.load((DEFINITIONS / "arc" / "arc_easy.yaml").read_text("utf-8"), yaml.BaseLoader)
    asked = [stock["doc_to_text"].replace("{{question}}", row["question"]) for row in ARC for _ in range(2)]
    assert evaluated[0] == [
        (text, f" {choice}")
        for text, choice in zip(asked, [c for row in ARC for c in row["choices"]["text"]], strict=True)
    ]


def test_the_gold_option_counts(evaluated):
    assert evaluated[1]["acc,none"] == 0.5
    assert evaluated[1]["acc_norm,none"] == 0.5


def test_each_benchmark_with_options_has_one_and_its_data_are_recorded():
    with_options = [name for name, benchmark in BENCHMARKS.items() if benchmark.form == "choice"]
    known = set(TaskManager(include_path=task_folder(), include_defaults=False).all_subtasks)
    for name in with_options:
        assert f"latentmas_{name}_rank" in known
        assert benchmarks_of([f"latentmas_{name}_rank"]) == [name]
