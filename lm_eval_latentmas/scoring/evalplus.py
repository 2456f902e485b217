"""What the code tasks' YAML files name: `process_results` for one problem, and the aggregations of its metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from math import comb
from typing import Any

from lm_eval_latentmas.scoring.answers import extract_code, why_none
from lm_eval_latentmas.scoring.consent import missing_for_code
from lm_eval_latentmas.scoring.evalplus_grade import Grade, grade
from lm_eval_latentmas.scoring.evalplus_problem import Problem
from lm_eval_latentmas.scoring.prelude import complete
from lm_eval_latentmas.scoring.process import responses_of, share, truncated
from lm_eval_latentmas.scoring.samples_file import write_samples
from lm_eval_latentmas.scoring.sandbox import Sandbox

__all__ = ["data_version", "grade_responses", "process_results", "sandbox_level", "shared_sandbox", "write_samples"]


def process_results(doc: dict[str, Any], results: list[Any]) -> dict[str, Any]:
    """The metrics of one problem, for one response or, with ``repeats``, several.

    ``pass@1``, which is ``acc``, is EvalPlus's score, ``pass@1_base`` counts the base tests only; with n responses
    there are unbiased ``pass@10``, ``pass@100`` and ``pass@n``, too, as far as n allows. ``no_answer`` and
    ``truncated`` are shares of the responses. ``samples``, ``sandbox`` and ``data`` are not numbers: the task's YAML
    aggregates them by `write_samples`, `sandbox_level` and `data_version`.
    Raises ImportError without EvalPlus, and SandboxError when the machinery fails: no answer is scored for that.
    """
    if missing := missing_for_code(confirmed=True):
        raise ImportError(f"answers to code tasks cannot be graded. Missing: {'; '.join(missing)}")
    responses = responses_of(results)
    problem = Problem.from_doc(doc)
    sandbox = shared_sandbox()
    grades = grade_responses(problem, responses, sandbox)
    return {
        "acc": share(each.passed for each in grades),
        **pass_at([each.passed for each in grades]),
        "pass@1_base": share(each.base == "passed" for each in grades),
        "no_answer": share(each.verdict == "no_code" for each in grades),
        **truncated(responses),
        "samples": [_row(problem, each) for each in grades],
        "sandbox": sandbox.level,
        "data": f"{problem.release} {problem.digest}",
    }


def grade_responses(problem: Problem, responses: Sequence[str], sandbox: Sandbox) -> list[Grade]:
    """The grades of a model's texts, in which a program has yet to be found."""
    found = [extract_code(text, problem.entry_point) for text in responses]
    programs = [answer and complete(str(answer.value), problem.prompt, problem.entry_point) for answer in found]
    return [
        each if answer else Grade("no_code", "no_code", "", why_none(text))
        for each, answer, text in zip(grade(problem, programs, sandbox), found, responses, strict=True)
    ]


def pass_at(passed: Sequence[bool]) -> dict[str, float]:
    """Unbiased estimates of pass@k (Chen et al. 2021, equation 1) for k = 1, 10, 100 and n, none above n."""
    n, wrong = len(passed), len(passed) - sum(passed)
    return {f"pass@{k}": 1 - comb(wrong, k) / comb(n, k) for k in sorted({1, 10, 100, n}) if k <= n}


@cache
def shared_sandbox() -> Sandbox:
    """The sandbox that all tasks of a run share."""
    return Sandbox()


def sandbox_level(levels: Sequence[str]) -> str:
    """Aggregation of ``sandbox``: the isolation that was in force."""
    return ", ".join(sorted(set(levels)))


def data_version(problems: Sequence[str]) -> str:
    """Aggregation of ``data``: the release, how many problems, and a hash of all that their verdicts depend on."""
    releases = sorted({problem.rpartition(" ")[0] for problem in problems})
    together = hashlib.sha256("\n".join(sorted(problems)).encode()).hexdigest()
    return f"{', '.join(releases)}, {len(problems)} problems, sha256 {together[:16]}"


def _row(problem: Problem, each: Grade) -> dict[str, Any]:
    """A line of EvalPlus's samples.jsonl, with verdicts that EvalPlus does not read."""
    return {
        "task_id": problem.task_id,
        "solution": each.program,
        "base": each.base,
        "plus": each.plus,
        "reason": each.reason,
    }
