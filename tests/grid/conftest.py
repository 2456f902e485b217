"""A tiny model, short prompts and a small task that a grid can run in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager
from tiny import saved_model

PROMPTS = """
system: Be brief.
agents:
  - {name: planner, prompt: 'Plan: {question}'}
  - {name: judger, prompt: 'Answer {question} {answer_form}'}
answer_styles: {free: 'Say it.'}
tasks: {'*': free}
"""
TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: '{{{{question}}}}'
doc_to_target: '{{{{answer}}}}'
generation_kwargs: {{until: [], max_gen_toks: 6, do_sample: true, temperature: 0.9}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model``, ``prompts.yaml`` and ``tasks/sums.yaml``."""
    folder = tmp_path_factory.mktemp("grid")
    saved_model(folder / "model")
    (folder / "prompts.yaml").write_text(PROMPTS)
    rows = [{"question": f"What is {n} + {n}, written with Ünïcode?", "answer": str(2 * n)} for n in range(4)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "sums.yaml").write_text(TASK.format(data=folder / "data.jsonl"))
    return folder


@pytest.fixture(autouse=True)
def _quick_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-eval asks pip and compilers for versions after a run, and reads every task it has before one."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
    quick = "lm_eval_latentmas.grid.runner.TaskManager"
    monkeypatch.setattr(quick, lambda **settings: TaskManager(**settings, include_defaults=False))
