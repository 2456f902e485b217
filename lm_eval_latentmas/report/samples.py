"""One document as one run answered it, from a row of lm-eval's samples file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# where data sets keep what was asked; a document without any of them shows the prompt
_QUESTION_FIELDS = ("question", "problem", "query", "prompt", "text")


@dataclass(frozen=True)
class Sample:
    """One document as one run answered it.

    key: the document's hash and, for documents that occur more than once, which of them it is.
    fact: in the relay probe, the type of the fact asked for and the sentences that follow it.
    score: None when the metric gave no number (NaN, or parts of a score that only exists for the whole set).
    """

    key: tuple[str, int]
    doc_id: int
    prompt_hash: str
    target_hash: str
    question: str
    prompt: str
    target: str
    responses: tuple[str, ...]
    filtered: str
    score: float | None
    fact: tuple[str, int] | None = None


def read_sample(row: dict[str, Any], metric: str, occurrence: int) -> Sample:
    """A row as a sample; ``occurrence`` counts earlier documents of the same content."""
    prompts = list((row.get("arguments") or {}).values())
    prompt = str(prompts[0].get("arg_0", "")) if prompts else ""
    doc = row.get("doc") if isinstance(row.get("doc"), dict) else {}
    return Sample(
        key=(row["doc_hash"], occurrence),
        doc_id=row["doc_id"],
        prompt_hash=row.get("prompt_hash", ""),
        target_hash=row.get("target_hash", ""),
        question=next((doc[f] for f in _QUESTION_FIELDS if isinstance(doc.get(f), str)), prompt),
        prompt=prompt,
        target=_target(row, prompts),
        responses=_responses(row["resps"], prompts),
        filtered=_filtered(row.get("filtered_resps")),
        score=number_of(row.get(metric)),
        fact=(doc["fact_type"], doc["distance"]) if {"fact_type", "distance"} <= doc.keys() else None,
    )


def _target(row: dict[str, Any], prompts: list[dict]) -> str:
    """What was expected; of a choice its text where lm-eval notes its number, and each choice has a text of its own."""
    target, first = str(row["target"]), (row["resps"] or [[]])[0]
    choices = [str(prompt.get("arg_1", "")).strip() for prompt in prompts]
    scored = bool(first) and not isinstance(first[0], str)
    if scored and target.isdecimal() and int(target) < len(choices) == len(set(choices)):
        return choices[int(target)]
    return target


def _responses(resps: list, prompts: list[dict]) -> tuple[str, ...]:
    """Generated texts, or the continuation that a log-likelihood task found likeliest."""
    first = resps[0] if resps else []
    if first and all(isinstance(text, str) for text in first):
        return tuple(first)
    pairs = zip(resps, prompts, strict=False)
    scored = [(float(tries[0][0]), str(prompt.get("arg_1", "")).strip()) for tries, prompt in pairs]
    return (max(scored)[1],) if scored else ()


def _filtered(filtered: Any) -> str:
    """What the filters left of the text; pairs of log-likelihoods are nothing to read."""
    texts = [text for text in filtered or () if isinstance(text, str)]
    return " | ".join(texts)


def number_of(value: Any) -> float | None:
    """A finite number or a truth value as a float, else None."""
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None
