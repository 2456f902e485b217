"""Turns what a program wrote, and how its process ended, into an `Execution`; nothing that was written is trusted."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from typing import Any

from lm_eval_latentmas.scoring.sandbox.inside.values import UNREADABLE, decode
from lm_eval_latentmas.scoring.sandbox.limits import Ending, Execution, Limits

_NEARLY = 0.9  # kernels count the time that they limit in ticks, and the time that they report exactly


def read_execution(report: dict[str, Any], written: bytes, expected: int, limits: Limits) -> Execution:
    """What came of a call with ``expected`` inputs.

    report: of the supervising process: signal, limit that it enforced, CPU and idle seconds.
    written: lines of the program's own process, or of the program itself.
    """
    lines = _read_lines(written)
    ending, detail = _stopped(report, limits) or lines.ending(expected)
    measured = report["cpu_seconds"], report["idle_seconds"], len(written)
    return Execution(ending, lines.outputs, lines.cpu, *measured, detail=detail)


@dataclass
class _Lines:
    outputs: list[Any] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def ending(self, expected: int) -> tuple[Ending, str]:
        if "error" in self.last:
            detail = ": ".join(str(self.last[key]) for key in ("error", "text") if self.last.get(key))
            return ("memory" if self.last.get("memory") else "exception"), detail
        if self.last.get("end") and len(self.outputs) == expected:
            return "finished", ""
        return "exception", f"ended by itself after {len(self.outputs)} of {expected} results"


def _read_lines(written: bytes) -> _Lines:
    lines = _Lines()
    for text in written.split(b"\n")[:-1]:
        try:
            line = json.loads(text)
            if "output" not in line:
                lines.last = dict(line)
                break
            lines.outputs.append(decode(line["output"]))
            lines.cpu.append(float(line["cpu"]))
        except UNREADABLE as error:
            lines.last = {"error": "unreadable result", "text": f"{type(error).__name__}"}
            break
    return lines


def _stopped(report: dict[str, Any], limits: Limits) -> tuple[Ending, str] | None:
    """The ending of a process that was killed; None for one that ended by itself."""
    if report["stopped"] == "output_bytes":
        return "memory", f"returned more than {limits.output_bytes:,} bytes"
    if report["stopped"] == "idle_seconds":
        return "timeout", f"did nothing for {limits.idle_seconds:g} seconds"
    killed = report["signal"]
    if killed == signal.SIGPROF:
        return "timeout", "one call, or the program's start, used more CPU time than it may"
    if killed == signal.SIGXCPU or (killed == signal.SIGKILL and report["cpu_seconds"] >= _NEARLY * limits.cpu_seconds):
        return "timeout", f"used more than {limits.cpu_seconds:g} seconds of CPU time"
    if killed == signal.SIGKILL:
        return "memory", "killed by the system, as happens when memory runs out"
    return ("exception", f"died of {_NAMES.get(killed, f'signal {killed}')}") if killed else None


_NAMES = {number.value: number.name for number in signal.Signals}
