"""The evaluating process's side of the sandbox: starts programs behind a wall and reads what comes back."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval_latentmas.scoring.sandbox import inside
from lm_eval_latentmas.scoring.sandbox.inside.values import encode
from lm_eval_latentmas.scoring.sandbox.limits import Call, Execution, Limits, SandboxError
from lm_eval_latentmas.scoring.sandbox.reading import read_execution
from lm_eval_latentmas.scoring.sandbox.surroundings import environment, import_paths, visible_paths
from lm_eval_latentmas.temporary import TemporaryFolder

logger = logging.getLogger(__name__)

#: From the strongest to the weakest; each is tried with and without a filter of system calls.
ISOLATION = ("namespaces", "landlock", "audit")
_RETRIES = (1.0, 5.0)  # seconds to wait when the machine, for want of processes or memory, cannot start a program


@dataclass(frozen=True)
class _Wall:
    """A way of isolation that was tried and stands, and the limits that the system does not support."""

    isolation: str
    filter: bool
    unsupported: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.isolation + ("+seccomp" if self.filter else "")
        return name + (f" without {', '.join(self.unsupported)}" if self.unsupported else "")


class _NotStarted(Exception):
    """The wall could not be raised, or the program's process not be started."""


class Sandbox:
    """Runs calls of untrusted programs, each in a process of its own; safe to use from several threads.

    workers: programs at a time; the CPUs of this process if not given.
    isolation: ``auto`` takes the strongest of `ISOLATION` that works here.
    """

    def __init__(self, workers: int | None = None, isolation: str = "auto") -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}: at least one program must be able to run")
        if isolation not in ("auto", *ISOLATION):
            raise ValueError(f"isolation={isolation!r}: give auto, {', '.join(ISOLATION)}")
        self.workers = workers or _cpus()
        self._candidates = ISOLATION if isolation == "auto" else (isolation,)
        self._lock = threading.Lock()
        self._wall: _Wall | None = None

    @property
    def level(self) -> str:
        """The isolation in force, such as ``namespaces+seccomp``; raises SandboxError where none works."""
        return str(self._standing_wall())

    def run(self, call: Call, limits: Limits | None = None) -> Execution:
        """One call of a program. Raises SandboxError when the machinery fails; what the program does is a result."""
        wall = self._standing_wall()
        for pause in (*_RETRIES, None):
            try:
                return _attempt(call, limits or Limits(), wall)[0]
            except _NotStarted as error:
                if pause is None:
                    raise SandboxError(f"a program could not be started behind {wall}: {error}") from error
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def run_all(self, jobs: Iterable[tuple[Call, Limits]]) -> list[Execution]:
        """Several calls at a time, as many as there are workers; results in the order of ``jobs``."""
        with ThreadPoolExecutor(self.workers) as threads:
            running = [threads.submit(self.run, call, limits) for call, limits in jobs]
            try:
                return [future.result() for future in running]
            finally:
                threads.shutdown(cancel_futures=True)

    def _standing_wall(self) -> _Wall:
        with self._lock:
            if self._wall is None:
                self._wall = _strongest(self._candidates)
            return self._wall


def _strongest(candidates: Iterable[str]) -> _Wall:
    """The first wall behind which a harmless program gives its result."""
    harmless = Call("def same(value):\n    return value\n", "same", [[1]])
    reasons = []
    for isolation in candidates:
        for filter_calls in (True, False):
            wall = _Wall(isolation, filter_calls)
            try:
                execution, unsupported = _attempt(harmless, Limits(), wall)
            except _NotStarted as error:
                reasons.append(f"{wall}: {error}")
                continue
            if execution.outputs == [1]:
                if reasons:
                    logger.warning("model-written code runs behind %s only (%s)", wall, "; ".join(reasons))
                return _Wall(isolation, filter_calls, tuple(unsupported))
            reasons.append(f"{wall}: a harmless program did not run ({execution.ending}: {execution.detail})")
    raise SandboxError(f"no sandbox works on this system, so no code can be graded ({'; '.join(reasons)})")


def _attempt(call: Call, limits: Limits, wall: _Wall) -> tuple[Execution, list[str]]:
    """Run a call behind a wall; also returns the limits that the system does not support."""
    home = _home(os.getpid()).path
    with tempfile.TemporaryDirectory(prefix="sandbox-", dir=home, ignore_cleanup_errors=True) as folder:
        request = {
            "isolation": wall.isolation,
            "filter": wall.filter,
            "folder": os.path.realpath(folder),
            "paths": visible_paths(),
            "import_paths": import_paths(),
            "limits": asdict(limits),
            "program": call.program,
            "function": call.function,
            "inputs": encode([list(arguments) for arguments in call.inputs]),
            "cpu_seconds": list(call.cpu_seconds),
            "collect": call.collect,
        }
        ready, report, written, errors = _converse(json.dumps(request).encode())
    if "error" in ready:
        raise _NotStarted(ready["error"])
    if report is None:
        if wall.isolation == "audit":  # the one level that leaves a program the means
            return Execution("exception", detail="ended the process that supervised it"), []
        raise SandboxError(f"the process that supervised a program ended before it, behind {wall}: {errors}")
    return read_execution(report, written, len(call.inputs), limits), ready["unsupported"]


@cache
def _home(process: int) -> TemporaryFolder:
    """Where this process's programs get their folders; a forked one keeps that of its parent, which would go too."""
    return TemporaryFolder()


def _converse(request: bytes) -> tuple[dict[str, Any], dict[str, Any] | None, bytes, str]:
    """Send a request to a supervising process: its first line, its report if it lives to give one, results, errors."""
    command = [sys.executable, "-S", "-s", "-B", str(Path(inside.__file__).parent)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(command, **streams, env=environment(), cwd="/", start_new_session=True)
    except OSError as error:
        raise _NotStarted(f"{command[0]}: {error}") from error
    with process:
        try:
            answer, complaint = process.communicate(request)
        finally:
            process.kill()  # after it has answered there is nobody to kill
    errors = f"status {process.returncode}, {complaint.decode(errors='replace')[-500:]}"
    first, _, rest = answer.partition(b"\n")
    if not first:
        raise _NotStarted(f"{command[0]}: {errors}")
    second, _, written = rest.partition(b"\n")
    return json.loads(first), json.loads(second) if second else None, written, errors


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
