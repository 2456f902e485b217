"""lm-eval's own tasks, unchanged but for their data: log-likelihoods, generation, few-shot, chat template, CLI."""

import json
import subprocess
import sys
from types import SimpleNamespace

import lm_eval
import pytest
import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
from stock import DEFINITIONS, TASKS, write_task
from tiny import saved_model

from lm_eval_latentmas import instances
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.sampling import Generation

PROMPTS = """
system: Be brief.
agents:
  - {name: planner, prompt: 'Plan: {question}'}
  - {name: critic, prompt: 'Review {question}', text: 'Review {question} {messages}'}
  - {name: judger, prompt: 'Answer {question} {answer_form}', text: 'Answer {question} {messages} {answer_form}'}
answer_styles: {free: 'Say it.', continue: 'Go on.'}
tasks: {'*': free}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model, short prompts, and every stock task over local rows."""
    folder = tmp_path_factory.mktemp("home")
    saved_model(folder / "model")
    (folder / "prompts.yaml").write_text(PROMPTS)
    (folder / "tasks").mkdir()
    for name in TASKS:
        changes = {"num_fewshot": 2, "generation_kwargs": {"until": ["Question:"], "max_gen_toks": 8}}
        write_task(folder / "tasks", name, **(changes if name == "gsm8k" else {}))
    return folder


@pytest.fixture(autouse=True)
def _no_environment_report(monkeypatch):
    """lm-eval asks pip and the compilers for their versions after every run, which takes seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def model(home, **changes):
    values = {"pretrained": str(home / "model"), "prompts": str(home / "prompts.yaml"), "latent_steps": 2}
    return LatentMASLM(**{**values, "kv_budget": 8, "device": "cpu", "batch_size": 2, **changes})


def evaluate(home, lm, *tasks, folder="tasks", **changes):
    return lm_eval.simple_evaluate(
        model=lm,
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(home / folder), include_defaults=False),
        bootstrap_iters=0,
        **changes,
    )


def shown(lm, sample):
    """What every agent is shown for a document's first request, and the question that it became."""
    context, asked = sample["arguments"][0]
    request = SimpleNamespace(task_name="demo", doc_id=0, repeats=1, args=(context, asked))
    (question,) = instances.scored([request]) if isinstance(asked, str) else instances.written([request], 8)
    return [lm.tokenizer.decode(list(prompt)) for prompt in lm.chain.plan(question).prompts], question


def test_every_task_runs_and_no_text_is_decoded_where_answers_are_given(home):
    lm = model(home)
    results = evaluate(home, lm, *TASKS, gen_kwargs={"max_gen_toks": 4})
    assert set(results["results"]) == set(TASKS)
    summary = lm.get_model_info()["latentmas"]["summary"]
    for name in TASKS:
        samples = results["samples"][name]
        if name == "wikitext":
            assert name not in summary
            continue
        totals = summary[name]
        assert totals["L"] > 0
        assert len(totals["relay_bytes_per_hop"]) == 2
        if name.startswith("gsm8k"):
            assert (totals["samples"], totals["continuations"]) == (len({s["doc_id"] for s in samples}), 0)
            assert totals["decoded_tokens"] > 0
        else:
            assert totals["continuations"] == sum(len(sample["arguments"]) for sample in samples)
            assert totals["decoded_tokens"] == totals["truncated"] == 0
            assert totals["seconds"]["scoring"] > 0
            # one chain a context: only winogrande has as many contexts as choices
            contexts = {sample["doc_id"]: {a[0] for a in sample["arguments"]} for sample in samples}
            assert totals["samples"] == sum(map(len, contexts.values()))


@pytest.mark.parametrize("settings", [{}, {"mode": "single"}, {"mode": "text", "text_tokens": 4}])
def test_scores_do_not_depend_on_batch_size_or_limit(home, settings):
    def scores(limit=None, **changes):
        results = evaluate(home, model(home, **settings, **changes), "arc_easy", limit=limit)
        return {s["doc_id"]: [value for ((value, _),) in s["resps"]] for s in results["samples"]["arc_easy"]}

    alone = scores(batch_size=1)
    for other in (scores(batch_size=4), scores(batch_size="auto"), scores(limit=1)):
        for doc_id, values in other.items():
            assert values == pytest.approx(alone[doc_id], abs=1e-3)
    if not settings:
        assert scores(compressor="gen") != alone


def test_finished_contexts_are_not_scored_again(home, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    first = evaluate(home, model(home, run_dir=run_dir), "arc_easy", limit=2)
    lm = model(home, run_dir=run_dir)
    thought = []
    think = lm.chain.think
    monkeypatch.setattr(lm.chain, "think", lambda plans: thought.extend(plans) or think(plans))
    again = evaluate(home, lm, "arc_easy")
    assert len(thought) == 1
    assert [s["resps"] for s in again["samples"]["arc_easy"]][:2] == [s["resps"] for s in first["samples"]["arc_easy"]]
    columns = lm.get_model_info()["latentmas"]["samples"]["arc_easy"]
    assert (columns["doc_id"], set(columns["stop"])) == ([0, 1, 2], {"scored"})


def test_the_harness_cache_keeps_scores_by_configuration(home, tmp_path):
    def values(compressor):
        results = lm_eval.simple_evaluate(
            model="latentmas-obf",
            model_args={
                "pretrained": str(home / "model"),
                "prompts": str(home / "prompts.yaml"),
                "latent_steps": 2,
                "compressor": compressor,
            },
            device="cpu",
            tasks=["arc_easy"],
            task_manager=TaskManager(include_path=str(home / "tasks"), include_defaults=False),
            use_cache=str(tmp_path / "cache"),
            bootstrap_iters=0,
        )
        return [[value for ((value, _),) in sample["resps"]] for sample in results["samples"]["arc_easy"]]

    full = values("full")
    assert values("gen") != full
    assert values("full") == full


def test_texts_without_a_question_are_scored_as_under_hf(home, caplog):
    plain = get_model("hf")(pretrained=str(home / "model"), device="cpu", batch_size=2)
    lm = model(home)
    assert evaluate(home, lm, "wikitext")["results"] == evaluate(home, plain, "wikitext")["results"]
    assert lm.get_model_info()["latentmas"]["without_agents"] == {"wikitext": "rolling log-likelihood"}
    assert "no agent thinks" in caplog.text


def test_an_empty_context_is_scored_as_under_hf_and_keeps_its_place(home):
    requests = [
        Instance("loglikelihood", {}, arguments, index, metadata=("demo", index, 1))
        for index, arguments in enumerate([("Why?", " so"), ("", "so"), ("Why?", " not")])
    ]
    plain = get_model("hf")(pretrained=str(home / "model"), device="cpu", batch_size=2)
    lm = model(home)
    scores = lm.loglikelihood(requests, disable_tqdm=True)
    assert scores[1] == pytest.approx(plain.loglikelihood(requests[1:2], disable_tqdm=True)[0])
    assert scores[0] != scores[2]
    assert scores[::2] == lm.loglikelihood(requests[::2], disable_tqdm=True)
    assert lm.get_model_info()["latentmas"]["without_agents"] == {"demo": "empty context"}


def test_plain_scoring_with_automatic_batches_needs_no_trial(home):
    lm = model(home, batch_size="auto")
    assert 1 <= lm._detect_batch_size() <= lm.max_batch_size
    assert evaluate(home, lm, "wikitext")["results"] == evaluate(home, model(home), "wikitext")["results"]


@pytest.mark.parametrize("task", ["gsm8k", "arc_easy", "winogrande"])
def test_alone_the_judger_equals_hf_with_the_same_prompt(home, tmp_path, task):
    """Under a chat template ``hf`` is shown the question as the user's turn, which this prompt set does too."""
    (tmp_path / "prompts.yaml").write_text("agents: [{name: judger, prompt: '{question}'}]")
    plain = get_model("hf")(pretrained=str(home / "model"), device="cpu", batch_size=1)
    alone = model(home, mode="single", prompts=str(tmp_path / "prompts.yaml"), compressor="h-obf", batch_size=2)
    one_turn = {"apply_chat_template": True, "fewshot_as_multiturn": False}
    results = [evaluate(home, lm, task, **one_turn)["samples"][task] for lm in (plain, alone)]
    rows = [{sample["doc_id"]: sample["resps"] for sample in samples} for samples in results]
    for doc_id, expected in rows[0].items():
        if task == "gsm8k":
            assert rows[1][doc_id] == expected
            continue
        for ((value, greedy),), ((wanted, likeliest),) in zip(rows[1][doc_id], expected, strict=True):
            assert value == pytest.approx(wanted, abs=1e-3)
            assert greedy == likeliest


@pytest.mark.parametrize(
    "folder", ["arc", "gpqa", "gsm8k", "hellaswag", "ifeval", "leaderboard", "medqa", "truthfulqa"]
)
def test_what_the_leaderboards_ask_of_a_model_is_known(folder):
    kinds, generations = set(), []
    for path in (DEFINITIONS / folder).rglob("*"):
        if path.suffix == ".yaml" or path.name.endswith("_yaml"):
            definition = yaml.load(path.read_text("utf-8"), Loader=Definition)
            kinds.add(definition.get("output_type"))
            generations.append(definition.get("generation_kwargs") or {})
    assert kinds - {None}
    assert kinds <= {None, "multiple_choice", "generate_until"}
    for arguments in generations:
        assert Generation.of(arguments).max_gen_toks >= 1


class Definition(yaml.SafeLoader):
    """YAML whose functions are left out."""


Definition.add_multi_constructor("!", lambda loader, suffix, node: None)


# -- what few-shot examples, chat template, system instruction and answer prefix become ------------------------


def test_without_a_chat_template_the_whole_context_is_the_question(home):
    lm = model(home)
    results = evaluate(home, lm, "gsm8k", system_instruction="Be kind.", limit=1)
    prompts, question = shown(lm, results["samples"]["gsm8k"][0])
    assert question.system is None
    assert question.text.startswith("Be kind.")
    assert question.text.count("Question:") == 3
    assert all(question.text in prompt and "<|system|>Be brief." in prompt for prompt in prompts)


@pytest.mark.parametrize("multiturn", [False, True])
def test_with_a_chat_template_the_conversation_is_the_question_and_the_instruction_replaces_ours(home, multiturn):
    lm = model(home)
    results = evaluate(
        home,
        lm,
        "gsm8k",
        apply_chat_template=True,
        fewshot_as_multiturn=multiturn,
        system_instruction="Be kind.",
        limit=1,
    )
    prompts, question = shown(lm, results["samples"]["gsm8k"][0])
    assert question.system == "Be kind."
    assert question.text.count("Question:") == 3
    assert ("User: Question:" in question.text and "\n\nAssistant: " in question.text) == multiturn
    assert all(question.text in prompt and "<|system|>Be kind.<|end|>" in prompt for prompt in prompts)
    assert all(prompt.endswith("<|assistant|>") for prompt in prompts)


def test_a_likelihood_task_under_a_chat_template_scores_the_bare_choice(home):
    lm = model(home)
    results = evaluate(home, lm, "arc_easy", apply_chat_template=True, limit=1)
    sample = results["samples"]["arc_easy"][0]
    assert [arguments[1] for arguments in sample["arguments"]] == ["Mars", "coal", "a fox"]
    plain = evaluate(home, lm, "arc_easy", limit=1)["samples"]["arc_easy"][0]
    assert [arguments[1] for arguments in plain["arguments"]] == [" Mars", " coal", " a fox"]
    # the delimiter parts a choice from a context that does not stand before it here, so that both are one request
    assert sample["resps"] == plain["resps"]


@pytest.mark.parametrize("task", ["arc_easy", "gsm8k"])
def test_an_answer_prefix_begins_the_judgers_answer_and_no_other_agent_sees_it(home, tmp_path, task):
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks", task, gen_prefix="It is")
    lm = model(home)
    results = evaluate(
        tmp_path, lm, task, apply_chat_template=True, num_fewshot=0, limit=1, gen_kwargs={"max_gen_toks": 3}
    )
    prompts, question = shown(lm, results["samples"][task][0])
    assert question.prefix == "It is"
    assert prompts[-1].endswith("<|assistant|>It is")
    assert all("It is" not in prompt for prompt in prompts[:-1])
    if task == "arc_easy":
        plan = lm.chain.plan(question)
        assert lm.tokenizer.decode(list(plan.continuations[0])) == " Mars"


# -- the command line ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["latent", "text"])
def test_the_command_line_runs_stock_tasks(home, tmp_path, mode):
    arguments = f"pretrained={home / 'model'},prompts={home / 'prompts.yaml'},latent_steps=2,mode={mode},text_tokens=4"
    command = [
        *(sys.executable, "-m", "lm_eval", "--model", "latentmas-obf", "--model_args", arguments),
        *("--tasks", "arc_easy,gsm8k", "--include_path", str(home / "tasks"), "--limit", "2", "--device", "cpu"),
        *("--batch_size", "2", "--output_path", str(tmp_path), "--log_samples"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = tmp_path.rglob("results_*.json")
    config = json.loads(path.read_text())["config"]["latentmas"]
    assert config["chain"]["mode"] == mode
    assert {name: totals["samples"] for name, totals in config["summary"].items()} == {"arc_easy": 2, "gsm8k": 2}
    assert config["summary"]["arc_easy"]["decoded_tokens"] == 0
    assert (config["summary"]["gsm8k"]["message_tokens"] > 0) == (mode == "text")
