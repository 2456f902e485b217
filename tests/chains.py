"""Short prompt sets and chains over the tiny model: a byte tokenizer makes the package's own prompts long."""

from __future__ import annotations

from typing import Any

from lm_eval_latentmas.agents import Agent, PromptSet
from lm_eval_latentmas.chain import Chain, Question
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings
from lm_eval_latentmas.sampling import Generation
from lm_eval_latentmas.text_chain import TextChain

TEXTS = ["What is 2 + 2?", "Name a colour of the rainbow, please.", "Why?", "How long is a piece of string?"]
CONTINUATIONS = ("four", "a long answer that goes on", "x")


def prompt_set(*thinkers: str, topology: str = "sequential") -> PromptSet:
    """Thinking agents with the given messages, named by their place, and a judger."""
    agents = [Agent(f"agent{n}", text, f"{text} {{messages}}") for n, text in enumerate(thinkers, 1)]
    judger = Agent("judger", "Answer {question} {answer_form}", "{messages} Answer {question} {answer_form}")
    styles = {"free": "Say it.", "continue": "Go on."}
    return PromptSet("Be brief.", (*agents, judger), styles, (("*", "free"),), "test", topology)


CHAIN = prompt_set("Plan: {question}", "Review the plan for {question} now", "Refine: {question}")
HIERARCHY = prompt_set("Count: {question}", "Recall what {question} needs", "Run {question}", topology="hierarchical")


def make_chain(
    adapter: Any,
    prompts: PromptSet = CHAIN,
    spec: str = "full",
    *,
    max_length: int = 4096,
    seed: int = 7,
    kind: type[Chain] | None = None,
    **settings: Any,
) -> Chain:
    """A chain of four latent steps; ``settings`` are those of `ChainSettings`, `RelaySettings` and the chain itself."""
    beside = ("elsewhere", "ring", "shares", "diagnostics", "think_end_token")
    own = {name: settings.pop(name) for name in beside if name in settings}
    hand_off = {name: settings.pop(name) for name in ("kv_budget", "sink_size") if name in settings}
    made = ChainSettings(compressor=spec, hand_off=RelaySettings(**hand_off), **({"latent_steps": 4} | settings))
    kind = kind or (TextChain if made.mode == "text" else Chain)
    return kind(adapter, compressor(spec, made.hand_off), prompts, made, max_length=max_length, seed=seed, **own)


def asked(**generation: Any) -> list[Question]:
    """One question per text, to be decoded."""
    generation = Generation(**({"max_gen_toks": 12} | generation))
    return [Question("demo", index, 0, text, generation) for index, text in enumerate(TEXTS)]


def given(*continuations: str, prefix: str = "") -> list[Question]:
    """One question per text, with continuations to be scored."""
    chosen = continuations or CONTINUATIONS
    return [
        Question("demo", index, 0, text, Generation(), prefix=prefix, continuations=chosen)
        for index, text in enumerate(TEXTS)
    ]


def answers(chain: Chain, batch: int, **generation: Any) -> dict[int, str]:
    """The texts by document."""
    plans = [chain.plan(question) for question in asked(**generation)]
    return {plan.question.doc_id: record.text for plan, record in chain.answer(plans, batch)}
