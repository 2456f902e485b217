"""What a sandboxed call is given, what it may use, and what is known when it is over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MIB = 1 << 20
Ending = Literal["finished", "exception", "timeout", "memory"]


class SandboxError(RuntimeError):
    """The machinery, not the program, is at fault: nothing may be scored."""


@dataclass(frozen=True)
class Limits:
    """What one call of a program may use.

    cpu_seconds: of the whole process.
    load_seconds: CPU seconds until the function is defined.
    idle_seconds: wall-clock time in which the process neither ran nor waited for a CPU or a disk, so that a loaded
        machine costs time only.
    memory_bytes: address space, 4 GiB as in EvalPlus.
    file_bytes: size of one file, and of all files where the working folder is a file system of its own.
    output_bytes: size of all returned values, as typed JSON; printed text is thrown away.
    processes: processes and threads together where the kernel counts them per sandbox; where system calls are
        filtered, a program may start no process at all.
    """

    cpu_seconds: float = 60.0
    load_seconds: float = 10.0
    idle_seconds: float = 10.0
    memory_bytes: int = 4096 * MIB
    file_bytes: int = 16 * MIB
    output_bytes: int = 64 * MIB
    processes: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name}={value}: a limit is a finite number above 0")


@dataclass(frozen=True)
class Call:
    """A program and the inputs to call one of its functions with.

    inputs: one sequence of positional arguments a call.
    cpu_seconds: the most that each call may use, one number per input; empty where only the limit for all holds.
    collect: what is returned of a result: its ``value``; the same, but the items of an iterator (``iterate``); or
        whether it is not None, except that a bool stays itself (``not_none``).
    """

    program: str
    function: str
    inputs: Sequence[Sequence[Any]]
    cpu_seconds: Sequence[float] = ()
    collect: Literal["value", "iterate", "not_none"] = "value"


@dataclass(frozen=True)
class Execution:
    """What came of a call.

    ending: ``finished`` when every input gave a value and the program ended; else what stopped it.
    outputs: the values of the inputs before that, in order.
    cpu: seconds of CPU per output, as the program's own process measured them.
    cpu_seconds, idle_seconds: of the whole process, measured from outside.
    output_bytes: size of everything it returned, as typed JSON.
    detail: the exception, or the limit that was passed.
    """

    ending: Ending
    outputs: list[Any] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    idle_seconds: float = 0.0
    output_bytes: int = 0
    detail: str = ""
