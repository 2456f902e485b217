"""What a problem's reference solution returns and how long it takes: run once in the sandbox, then kept on disk."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_latentmas.scoring.evalplus_problem import Problem, Suite
from lm_eval_latentmas.scoring.folders import CACHE_VARIABLE, cache_folder
from lm_eval_latentmas.scoring.sandbox import Call, Execution, Limits, Sandbox, SandboxError
from lm_eval_latentmas.scoring.sandbox.inside.values import UNREADABLE, Opaque, decode, encode

logger = logging.getLogger(__name__)

_FORMAT = 1  # raised when files of an older version may not be read any more
#: For a reference solution, whose own time is not known yet. The slowest takes about 40 seconds.
_REFERENCE_LIMITS = Limits(cpu_seconds=900.0, idle_seconds=120.0, output_bytes=256 << 20)

# EvalPlus: a call may take 4 times what the reference takes, and at least a second; all calls together a minute.
_FACTOR, _LEAST, _ALL = 4.0, 1.0, 60.0
_START = 2.0  # seconds for what comes before and after the calls
_SLACK = 8  # how much larger than the reference's all results may be before a program is stopped


@dataclass(frozen=True)
class Expected:
    """The reference solution's results for one suite of tests.

    outputs: one per input. cpu: seconds of CPU per input. cpu_seconds, idle_seconds: of the whole process.
    output_bytes: size of the outputs as typed JSON.
    """

    outputs: list[Any]
    cpu: list[float]
    cpu_seconds: float
    idle_seconds: float
    output_bytes: int

    def call_limits(self) -> list[float]:
        """Seconds of CPU that each call of a tested program may use."""
        return [max(_LEAST, _FACTOR * seconds) for seconds in self.cpu]

    def limits(self) -> Limits:
        """What a tested program may use for all inputs of the suite."""
        together = min(_ALL, sum(self.call_limits()))
        return Limits(
            # EvalPlus's minute is too short on a host where the reference alone takes about as long
            cpu_seconds=max(together, 2 * self.cpu_seconds) + _START,
            idle_seconds=Limits.idle_seconds + _FACTOR * self.idle_seconds,
            output_bytes=max(1 << 20, _SLACK * self.output_bytes),
        )


def expected(problem: Problem, sandbox: Sandbox) -> dict[Suite, Expected]:
    """The reference's results for both suites, from the cache or from the sandbox.

    Raises SandboxError where the reference does not run, so that nothing can be scored against it.
    """
    path = _cache_file(problem)
    if (kept := _read(path, problem)) is not None:
        return kept
    suites: tuple[Suite, Suite] = ("base", "plus")
    program = problem.prompt + problem.canonical_solution
    collect = "not_none" if problem.collect == "not_none" else "value"
    calls = [Call(program, problem.entry_point, problem.inputs(suite), collect=collect) for suite in suites]
    executions = sandbox.run_all((call, _REFERENCE_LIMITS) for call in calls)
    found = {suite: _checked(problem, suite, run, sandbox) for suite, run in zip(suites, executions, strict=True)}
    _write(path, found)
    return found


def _checked(problem: Problem, suite: Suite, run: Execution, sandbox: Sandbox) -> Expected:
    trouble = f"{run.ending}, {run.detail}" if run.ending != "finished" else ""
    opaque = [output for output in run.outputs if isinstance(output, Opaque)]
    if opaque:
        trouble = f"it returns {opaque[0]}, which cannot be sent out of the sandbox"
    if trouble:
        raise SandboxError(
            f"{problem.task_id}: the reference solution does not run on the {suite} inputs in the sandbox "
            f"({sandbox.level}): {trouble}. Nothing was scored; check the data file, memory and system limits"
        )
    return Expected(run.outputs, run.cpu, run.cpu_seconds, run.idle_seconds, run.output_bytes)


# -- cache ------------------------------------------------------------------------------------------------------------


def _cache_file(problem: Problem) -> Path:
    """A file per problem, Python version and kind of host: other data, other results; another host, other times."""
    python = f"{sys.implementation.name}-{platform.python_version()}"
    return cache_folder() / "expected" / f"{python}-{_processor()}" / f"{problem.digest}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor()
    return "-".join([platform.machine(), *"".join(c if c.isalnum() else " " for c in name).split()])


def _read(path: Path, problem: Problem) -> dict[Suite, Expected] | None:
    try:
        data = json.loads(path.read_text())
        if data["format"] != _FORMAT:
            return None
        found = {
            suite: Expected(**data[suite] | {"outputs": decode(data[suite]["outputs"])}) for suite in ("base", "plus")
        }
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        logger.warning(
            "%s: the kept results of %s cannot be read and are made again (%s)", path, problem.task_id, error
        )
        return None
    return found


def _write(path: Path, found: dict[Suite, Expected]) -> None:
    data = {suite: vars(results) | {"outputs": encode(results.outputs)} for suite, results in found.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump({"format": _FORMAT} | data, file)
        os.replace(file.name, path)  # whole, even when several processes make the same one
    except OSError as error:
        logger.warning(
            "results of reference solutions are not kept: %s; set %s to another folder", error, CACHE_VARIABLE
        )
