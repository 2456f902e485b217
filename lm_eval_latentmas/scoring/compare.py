"""Whether an answer is the gold one, and what several answers to one question agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from lm_eval_latentmas.scoring.answers import Answer, extract_choice, extract_number, why_none


@dataclass(frozen=True)
class Verdict:
    """What a response is worth: the answer that was read, if any, whether it is right, and why."""

    correct: bool
    answer: Answer | None
    reason: str


def judge(form: Literal["number", "choice"], doc: dict[str, Any], response: str) -> Verdict:
    """The verdict on a response to a document with ``gold`` and, for a choice, ``choices`` and ``letters``."""
    if form == "number":
        answer, gold = extract_number(response), Fraction(doc["gold"])
    else:
        answer, gold = extract_choice(response, doc["choices"], doc["letters"]), doc["gold"]
    if answer is None:
        return Verdict(False, None, f"no answer: {why_none(response)}")
    correct = answer.value == gold
    return Verdict(
        correct, answer, f"{answer.value} {'is' if correct else 'is not'} {gold}, read by the rule '{answer.rule}'"
    )


def majority(answers: Iterable[Answer | None]) -> Fraction | str | None:
    """The value that most answers have, of equally frequent ones the first; None if there is no answer at all."""
    values = Counter(answer.value for answer in answers if answer is not None)
    return max(values, key=values.__getitem__, default=None)
