"""Grades answers to MBPP+ and HumanEval+ with EvalPlus's inputs, reference solutions, tolerances and special cases.

The tested program runs in the sandbox and sends back what it returns; EvalPlus's rule is applied to that here, where
the program has no reach. A program passes when it passes the base tests and the plus tests.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lm_eval_latentmas.scoring.evalplus_expected import Expected, expected
from lm_eval_latentmas.scoring.evalplus_problem import Problem, Suite, first_wrong
from lm_eval_latentmas.scoring.sandbox import Call, Execution, Sandbox

Verdict = Literal["passed", "wrong", "exception", "timeout", "memory", "no_code"]
SUITES: tuple[Suite, Suite] = ("base", "plus")


@dataclass(frozen=True)
class Grade:
    """What one program is worth: a verdict per suite, the program as it was tested, and the reason if it failed."""

    base: Verdict
    plus: Verdict
    program: str
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether it passes the base and the plus tests, which is EvalPlus's score."""
        return self.base == self.plus == "passed"

    @property
    def verdict(self) -> Verdict:
        """The first verdict that is not ``passed``, else that."""
        return self.plus if self.base == "passed" else self.base


def grade(problem: Problem, programs: Sequence[str | None], sandbox: Sandbox) -> list[Grade]:
    """The grades of complete programs (None: there is no code), tested side by side.

    Raises SandboxError when the machinery fails, first of all when the reference solution does not run.
    """
    reference = expected(problem, sandbox)
    jobs = [
        (_call(problem, program, suite, reference[suite]), reference[suite].limits())
        for program in programs
        if program is not None
        for suite in SUITES
    ]
    runs = iter(sandbox.run_all(jobs))
    grades = []
    for program in programs:
        if program is None:
            grades.append(Grade("no_code", "no_code", ""))
            continue
        judged = {suite: _judge(problem, suite, next(runs), reference[suite]) for suite in SUITES}
        reason = next((f"{suite}: {why}" for suite, (_, why) in judged.items() if why), "")
        grades.append(Grade(judged["base"][0], judged["plus"][0], program, reason))
    return grades


def _call(problem: Problem, program: str, suite: Suite, reference: Expected) -> Call:
    inputs, allowed = problem.inputs(suite), reference.call_limits()
    return Call(program, problem.entry_point, inputs, allowed, problem.collect)


def _judge(problem: Problem, suite: Suite, run: Execution, reference: Expected) -> tuple[Verdict, str]:
    """A verdict and the reason if it is not ``passed``; the first input that goes wrong decides."""
    wrong = first_wrong(problem, suite, run.outputs, reference.outputs)
    if wrong is not None:
        values = problem.inputs(suite)[wrong], run.outputs[wrong], reference.outputs[wrong]
        return "wrong", "input {} {} gives {}, the reference {}".format(wrong, *map(_shown, values))
    if run.ending != "finished":
        return run.ending, f"input {len(run.outputs)}: {run.detail}"
    return "passed", ""


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of more digits than the interpreter converts
        return f"a long {type(value).__name__}"
