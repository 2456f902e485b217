"""Saved answers, graded without a model: lines of ``{"doc": row, "response": text}``, or a samples file of lm-eval."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lm_eval_latentmas.benchmarks import BENCHMARKS
from lm_eval_latentmas.datasets import document, read_rows
from lm_eval_latentmas.scoring.compare import judge


@dataclass(frozen=True)
class Saved:
    """One saved response to one document. line, repeat: where it was read, counted from 1 and from 0."""

    line: int
    repeat: int
    doc: dict[str, Any]
    response: str


def read_saved(path: str | os.PathLike[str], benchmark: str) -> list[Saved]:
    """The responses in a file. A samples file holds every response once per filter; the first filter's lines are read.

    Raises ValueError naming file, line and field where a line is of neither form, or ``doc`` is no row of the data set.
    """
    saved, first_filter = [], None
    for line, row in enumerate(read_rows(path), 1):
        first_filter = first_filter or row.get("filter")
        if row.get("filter") == first_filter:
            place = f"{path}, line {line}"
            responses = _responses(row, place)
            if not isinstance(row.get("doc"), dict):
                raise ValueError(f"{place}: field 'doc' must be a row of the data set, not {row.get('doc')!r}")
            doc = document(benchmark, row["doc"], f"{place}: in 'doc'")
            saved += [Saved(line, repeat, doc, text) for repeat, text in enumerate(responses)]
    return saved


def _responses(row: dict[str, Any], place: str) -> list[str]:
    """``response``, or lm-eval's ``resps``: for its one request a list of all repeats."""
    responses = (
        [row["response"]] if "response" in row else [text for request in row.get("resps", []) for text in request]
    )
    if not responses or not all(isinstance(text, str) for text in responses):
        raise ValueError(f"{place}: needs a text in field 'response', or lists of texts in field 'resps'")
    return responses


def grade_saved(benchmark: str, saved: Iterable[Saved]) -> Iterator[dict[str, Any]]:
    """One JSON-ready line for each response: ``line``, ``repeat``, ``id``, ``answer``, ``verdict``, ``reason``.

    The verdict is ``correct``, ``wrong`` or ``no answer``; for programs what the sandbox found, of which ``passed``
    alone is correct. ``correct`` says so as a boolean.
    """
    form = BENCHMARKS[benchmark].form
    for each in saved:
        graded = _graded_program(each) if form == "code" else _judged(form, each)
        yield {"line": each.line, "repeat": each.repeat, "id": each.doc["id"], **graded}


def _judged(form: Any, each: Saved) -> dict[str, Any]:
    verdict = judge(form, each.doc, each.response)
    outcome = "no answer" if verdict.answer is None else "correct" if verdict.correct else "wrong"
    answer = verdict.answer and str(verdict.answer.value)
    return {"answer": answer, "verdict": outcome, "correct": verdict.correct, "reason": verdict.reason}


def _graded_program(each: Saved) -> dict[str, Any]:
    from lm_eval_latentmas.scoring.evalplus import grade_responses, shared_sandbox
    from lm_eval_latentmas.scoring.evalplus_problem import Problem

    (grade,) = grade_responses(Problem.from_doc(each.doc), [each.response], shared_sandbox())
    outcome = grade.verdict.replace("no_code", "no answer")
    return {"answer": grade.program or None, "verdict": outcome, "correct": grade.passed, "reason": grade.reason}
