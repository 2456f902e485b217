"""What the task YAMLs name as ``process_results``: the metrics of one document, for one response or several.

acc: share of correct responses, the mean over ``repeats`` (avg@k). majority: whether the most frequent answer is
correct, where there are several. no_answer: share of responses without a readable answer. truncated: share of
responses that the token budget cut off; left out for models that do not tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Literal

from lm_eval_latentmas.records import Response
from lm_eval_latentmas.scoring.compare import judge, majority


def number(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """The metrics of a document whose answer is a number."""
    return _metrics("number", doc, results)


def choice(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """The metrics of a document whose answer is the letter of an option."""
    return _metrics("choice", doc, results)


def responses_of(results: list[Any]) -> list[str]:
    """All responses to a document: lists, as the tasks' own filter leaves them, or single texts."""
    return [text for result in results for text in ([result] if isinstance(result, str) else result)]


def truncated(responses: Iterable[str]) -> dict[str, float]:
    """The share of truncated responses, among those whose model tells; no entry where none does."""
    told = [text.record.truncated for text in responses if isinstance(text, Response) and text.record is not None]
    return {"truncated": share(told)} if told else {}


def share(facts: Iterable[bool]) -> float:
    """The share of facts that hold."""
    facts = list(facts)
    return sum(facts) / len(facts)


def _metrics(form: Literal["number", "choice"], doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    responses = responses_of(results)
    verdicts = [judge(form, doc, text) for text in responses]
    metrics = {
        "acc": share(verdict.correct for verdict in verdicts),
        "no_answer": share(verdict.answer is None for verdict in verdicts),
        **truncated(responses),
    }
    if len(responses) > 1:
        gold = Fraction(doc["gold"]) if form == "number" else doc["gold"]
        metrics["majority"] = float(majority(verdict.answer for verdict in verdicts) == gold)
    return metrics
