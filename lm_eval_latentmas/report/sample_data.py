"""What the report's sample browser shows, as plain data: questions, prompts, answers and verdicts by task and arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval_latentmas.agents import Agent, PromptSet
from lm_eval_latentmas.conversation import unpack
from lm_eval_latentmas.relay_probe import split_upstream

from .arms import Arm
from .diagnostics import kept_share, prompts_with_selection
from .findings import Findings
from .runs import Run
from .samples import Sample

# longer texts are shown without their middle; the samples file beside the results has all of them
SHOWN_CHARACTERS = 8_000


def sample_data(findings: Findings) -> dict[str, Any]:
    """JSON-ready data: ``arms`` by name, the ``reference``'s index, and per task documents and answers by column."""
    return {
        "arms": [arm.name for arm in findings.arms],
        "reference": findings.arms.index(findings.reference),
        "tasks": [_task(findings.arms, task) | {"kept": _kept(findings, task)} for task in findings.tasks],
    }


def _task(arms: Sequence[Arm], task: str) -> dict[str, Any]:
    runs = [(index, run) for index, arm in enumerate(arms) for run in arm.runs.get(task, ())]
    samples: dict[tuple[str, int], Sample] = {}
    for _, run in runs:
        for sample in run.samples:
            samples.setdefault(sample.key, sample)
    place = {key: index for index, key in enumerate(samples)}
    return {
        "name": task,
        "documents": [_document(sample) for sample in samples.values()],
        "prompts": _prompts(runs, task),
        "answers": [_answers(arm, run, place) for arm, run in runs],
    }


def _kept(findings: Findings, task: str) -> list[dict[str, Any]]:
    """Per arm, document and agent the prompt's tokens and the share of heads, over all layers, that kept each."""
    names = [arm.name for arm in findings.arms]
    return [
        {
            "arm": names.index(held.arm),
            "id": prompt[1],
            "agent": prompt[2],
            "tokens": held.tokens[prompt],
            "share": kept_share(held, prompt, len(held.tokens[prompt])).mean(axis=0).round(2).tolist(),
        }
        for held in findings.diagnostics
        if held.arm in names
        for prompt in prompts_with_selection(held)
        if prompt[0] == task
    ]


def _document(sample: Sample) -> dict[str, Any]:
    """``prompt``, ``asked``: what took the place of ``{question}`` for the agents before the judger, and for it.

    None where that is just the question.
    """
    question = unpack(sample.question).question
    prompt, asked = split_upstream(unpack(sample.prompt).question)
    return {
        "id": sample.doc_id,
        "question": _shown(question),
        "prompt": None if prompt == question else _shown(prompt),
        "asked": None if asked == question else _shown(asked),
        "target": _shown(sample.target),
    }


def _answers(arm: int, run: Run, place: dict[tuple[str, int], int]) -> dict[str, Any]:
    """One run's answers by column; ``document`` points into the task's documents."""
    cost = _by_document(run)
    return {
        "arm": arm,
        "seed": run.seed,
        "document": [place[s.key] for s in run.samples],
        "text": [_shown(_joined(s)) for s in run.samples],
        "read": [_shown(s.filtered) for s in run.samples],
        "score": [s.score for s in run.samples],
        "tokens": [cost.get(s.doc_id, (None, None))[0] for s in run.samples],
        "truncated": [cost.get(s.doc_id, (None, None))[1] for s in run.samples],
    }


def _by_document(run: Run) -> dict[int, tuple[int | None, bool]]:
    columns = [run.relay.get(name) or [] for name in ("doc_id", "decoded_tokens", "truncated")]
    # an answer that was written has its end token at least: no token means that it was given, and only scored
    return {doc_id: (tokens or None, truncated) for doc_id, tokens, truncated in zip(*columns, strict=False)}


def _prompts(runs: Sequence[tuple[int, Run]], task: str) -> list[dict[str, Any]]:
    """What agents were shown, fields ``{question}`` and ``{messages}`` left open: once for all ``arms`` alike."""
    found: list[dict[str, Any]] = []
    for arm, run in runs:
        if run.prompt_set is None:
            continue
        agents = _agents(run, task)
        alike = next((prompts for prompts in found if prompts["agents"] == agents), None)
        if alike is None:
            found.append({"arms": [arm], "agents": agents})
        elif arm not in alike["arms"]:
            alike["arms"].append(arm)
    return found


def _agents(run: Run, task: str) -> list[dict[str, str]]:
    """The agents that ran, each with its message."""
    told = run.prompt_set
    prompts = PromptSet(
        system=told["system"],
        agents=tuple(Agent(**agent) for agent in told["agents"]),
        answer_styles=told["answer_styles"],
        tasks=tuple(told["tasks"].items()),
        source=told["source"],
    )
    mode = run.arguments.get("mode")
    alone = mode == "single" or run.arguments.get("relay") == "none"
    messages = "{messages}" if mode == "text" else None
    scored = "scored" in (run.relay.get("stop") or ())
    return [
        {"name": agent.name, "prompt": "\n\n".join(turn["content"] for turn in turns)}
        for agent in ([prompts.judger] if alone else prompts.agents)
        for turns in [prompts.turns(agent, "{question}", task=task, scored=scored, messages=messages)]
    ]


def _joined(sample: Sample) -> str:
    return "\n\n--- next try ---\n\n".join(sample.responses)


def _shown(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    cut = len(text) - SHOWN_CHARACTERS
    return f"{text[: SHOWN_CHARACTERS // 2]}\n[... {cut:,} characters left out ...]\n{text[-SHOWN_CHARACTERS // 2 :]}"
