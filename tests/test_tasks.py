"""The task YAMLs through lm-eval itself, with a stub in place of a model."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from loaded import loaded, task_of

from lm_eval_latentmas import datasets
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.autoload import task_folder
from lm_eval_latentmas.benchmarks import BENCHMARKS
from lm_eval_latentmas.records import Record, Response
from lm_eval_latentmas.scoring import process

FOLDER = task_folder()
NEW_TOKENS = {
    **dict.fromkeys(["gsm8k", "arc_easy", "arc_challenge"], 2048),
    **dict.fromkeys(["medqa", "mbpp_plus", "humaneval_plus"], 4096),
    **dict.fromkeys(["aime24", "aime25"], 20000),
    "gpqa_diamond": 8192,
}
CHOICES = {"text": ["red", "green", "blue"], "label": ["1", "2", "3"]}
PROBLEM = {
    "task_id": "Mbpp/2",
    "prompt": '"""\nAdd two numbers.\nassert add(1, 2) == 3\n"""\n',
    "entry_point": "add",
    "canonical_solution": "def add(a, b):\n    return a + b\n",
    "base_input": [[1, 2]],
    "plus_input": [[2**70, 1]],
    "atol": 0,
}
ROWS = {
    "gsm8k": [{"question": f"What is {n} + 4?", "answer": f"It is {n + 4}.\n#### {n + 4}"} for n in range(4)],
    "aime24": [{"ID": "1", "Problem": "Find {{x}}.", "Answer": 25}],
    "aime25": [{"id": "1", "problem": "Find \x0crac{1}{2} of 50.", "answer": "025"}],
    "gpqa_diamond": [
        {"Question": "Which?", "Correct Answer": "right", **{f"Incorrect Answer {i}": f"wrong {i}" for i in (1, 2, 3)}}
    ],
    "medqa": [
        {"question": "Which?\nSay.", "options": {"A": "one", "B": "{% two %}"}, "answer_idx": "B", "answer": "two"}
    ],
    "arc_easy": [{"id": "q", "question": "Which?", "choices": CHOICES, "answerKey": "2"}],
    "arc_challenge": [{"id": "q", "question": "Which?", "choices": CHOICES, "answerKey": "3"}],
    "mbpp_plus": [PROBLEM],
    "humaneval_plus": [PROBLEM | {"task_id": "HumanEval/0", "prompt": 'def add(a, b):\n    """Add."""\n'}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    for name, rows in ROWS.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def manager(folder):
    return TaskManager(
        include_path=FOLDER, include_defaults=False, metadata={"data_dir": folder, "pretrained": "model"}
    )


class Stub(LM):
    """Answers every request with the texts it was made with, in turn."""

    def __init__(self, *texts):
        super().__init__()
        self.texts, self.requests = texts, []

    def generate_until(self, requests):
        self.requests += requests
        return [self.texts[place % len(self.texts)] for place in range(len(requests))]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def evaluate(manager, model, tasks, **options):
    return simple_evaluate(model, tasks=tasks, task_manager=manager, bootstrap_iters=0, **options)


@pytest.mark.parametrize("name", NEW_TOKENS)
def test_each_benchmark_has_the_published_settings(manager, name):
    task = task_of(manager, f"latentmas_{name}")
    expected = {"until": [], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "max_gen_toks": NEW_TOKENS[name]}
    assert task.config.generation_kwargs == expected
    assert (task.config.num_fewshot, task.VERSION, task.OUTPUT_TYPE) == (0, 1.0, "generate_until")
    assert len(task.eval_docs) == len(ROWS[name])


def test_every_benchmark_is_a_task_and_the_demo_is_greedy(manager):
    known = set(manager.all_subtasks)
    assert {f"latentmas_{name}" for name in BENCHMARKS} <= known
    assert set(NEW_TOKENS) == set(BENCHMARKS) - {"demo"}
    demo = task_of(manager, "latentmas_demo")
    assert demo.config.generation_kwargs["do_sample"] is False


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if BENCHMARKS[name].form != "code"])
def test_the_yaml_names_functions_of_the_imported_package(manager, name):
    task = task_of(manager, f"latentmas_{name}")
    assert task.config.custom_dataset is datasets.splits
    assert task.config.process_results is getattr(process, BENCHMARKS[name].form)


def test_no_module_of_the_package_is_loaded_a_second_time_by_path(manager):
    loaded(manager, "latentmas_suite")
    mine = [module for name, module in sys.modules.items() if "scoring" in name and name.endswith("process")]
    assert mine == [process]


def test_the_code_tasks_ask_for_consent(manager):
    for name in ("mbpp_plus", "humaneval_plus"):
        task = task_of(manager, f"latentmas_{name}")
        assert task.UNSAFE_CODE
        assert task.config.process_results.__module__ == "lm_eval_latentmas.scoring.evalplus"


QUESTIONS = {
    "gsm8k": "What is 0 + 4?",
    "aime24": "Find {{x}}.",
    "aime25": r"Find \frac{1}{2} of 50.",
    "medqa": "Which?\nSay.\n\nA. one\nB. {% two %}",
    "arc_easy": "Which?\n\nA. red\nB. green\nC. blue",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_prompt_is_the_question_and_its_options_and_nothing_else(manager, name):
    task = task_of(manager, f"latentmas_{name}")
    assert task.doc_to_text(task.eval_docs[0]) == QUESTIONS[name]
    assert task.doc_to_target(task.eval_docs[0]) == task.eval_docs[0]["gold"]


RIGHT = {
    "gsm8k": "\\boxed{4}",
    "aime24": "025",
    "aime25": "The answer is 25.0",
    "gpqa_diamond": "\\boxed{\\text{right}}",
    "medqa": "B",
    "arc_easy": "(b)",
    "arc_challenge": "blue",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_of_any_model_scores_one(manager, name):
    task = f"latentmas_{name}"
    results = evaluate(manager, Stub(RIGHT[name]), [task], limit=1)["results"][task]
    assert (results["acc,none"], results["no_answer,none"]) == (1.0, 0.0)
    assert "truncated,none" not in results


def test_a_model_that_tells_is_shown_with_its_share_of_truncated_answers(manager):
    whole, cut = (Response("4", Record("t", 0, 0, "4", stop=stop)) for stop in ("eos", "length"))
    results = evaluate(manager, Stub(whole, cut), ["latentmas_gsm8k"])["results"]["latentmas_gsm8k"]
    assert results["truncated,none"] == 0.5


def test_all_repeats_of_a_task_of_the_user_s_own_reach_the_metrics(folder, tmp_path):
    own = f"include: {FOLDER}/latentmas_gsm8k.yaml\ntask: four_times\nrepeats: 4\n"
    (tmp_path / "four_times.yaml").write_text(own)
    manager, model = (
        TaskManager(include_path=str(tmp_path), include_defaults=False, metadata={"data_dir": folder}),
        Stub("4", "4", "4", "none"),
    )
    results = evaluate(manager, model, ["four_times"], limit=1)
    assert len(model.requests) == 4
    scores = results["results"]["four_times"]
    assert (scores["acc,none"], scores["majority,none"], scores["no_answer,none"]) == (0.75, 1.0, 0.25)
    assert len(results["samples"]["four_times"]) == 1


def test_a_group_has_its_benchmarks_scores_and_their_mean(manager):
    results = evaluate(manager, Stub("B"), ["latentmas_commonsense_qa"])["results"]
    assert results["latentmas_arc_easy"]["acc,none"] == 1.0
    assert results["latentmas_arc_challenge"]["acc,none"] == 0.0
    assert results["latentmas_commonsense_qa"]["acc,none"] == 0.5


def test_the_mean_of_a_group_is_over_benchmarks_not_over_questions(manager):
    results = evaluate(manager, Stub("25"), ["latentmas_math"])["results"]
    assert results["latentmas_math"]["acc,none"] == pytest.approx(2 / 3)


def test_the_suite_holds_all_nine_and_a_mean_without_the_aime_sets(manager):
    suite = loaded(manager, "latentmas_suite")
    assert set(suite.tasks) == suite.groups["latentmas_suite"] == {f"latentmas_{name}" for name in NEW_TOKENS}
    without = suite.groups["latentmas_suite_without_aime"]
    assert without == set(suite.tasks) - {"latentmas_aime24", "latentmas_aime25"}
    for group in ("latentmas_suite", "latentmas_suite_without_aime"):
        assert suite.by_size[group] == {"acc": False, "no_answer": False}


def test_task_files_carry_the_harness_s_own_keys_and_our_prefix():
    names = [file.name for file in Path(FOLDER).glob("*.yaml")]
    assert all(name.startswith("latentmas_") for name in names)
    known = {"include", "task", "group", "dataset_kwargs", "generation_kwargs"}
    for name in [f"latentmas_{benchmark}.yaml" for benchmark in BENCHMARKS]:
        text = Path(FOLDER, name).read_text("utf-8")
        assert set(yaml.safe_load(text)) <= known
        assert not re.search(r"prompt|agent", text)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_judger_is_asked_for_the_form_that_is_graded(manager, name):
    prompts = load_prompts()
    assert prompts.answer_style(f"latentmas_{name}") == BENCHMARKS[name].form
    if BENCHMARKS[name].form == "choice":
        task = task_of(manager, f"latentmas_{name}")
        turns = prompts.turns(prompts.agents[-1], task.doc_to_text(task.eval_docs[0]), task=f"latentmas_{name}")
        letters = task.eval_docs[0]["letters"]
        assert f"{', '.join(letters[:-1])} or {letters[-1]}" in turns[-1]["content"]
