"""Watches a program's process from outside its wall: collects what it writes, keeps its limits, and ends it."""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

_TICK = 0.05  # seconds between two looks at the clocks
_BLIND = 0.05  # where the system does not tell what a process does, this share of its time is taken for idle
_CROWDED = 1 << 14  # bytes in the pipe from which on the program may have waited for us to read them


def supervise(program: int, results: int, limits: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Read the pipe ``results`` until process ``program`` ends or passes a limit: how it ended, and what it wrote."""
    output, meter, stopped, status = bytearray(), _Meter(program), None, None
    while status is None and stopped is None:
        if select.select([results], [], [], _TICK)[0]:
            chunk = os.read(results, 1 << 16)
            output += chunk
            if not chunk:  # closed: the process is about to end, or pretends to
                time.sleep(_TICK / 10)
            if len(chunk) >= _CROWDED:
                meter.forgive()
        if len(output) > limits["output_bytes"]:
            stopped = "output_bytes"
        elif meter.read() > limits["idle_seconds"]:
            stopped = "idle_seconds"
        status = _ended(program)
    if status is None:
        os.kill(program, signal.SIGKILL)
        status = os.wait4(program, 0)[1:]
    os.set_blocking(results, False)
    output += _rest(results, limits["output_bytes"])
    code, usage = status
    return {
        "signal": os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0,
        "stopped": stopped,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "idle_seconds": meter.idle,
    }, bytes(output)


def end(program: int, holder: int | None) -> None:
    """Kill all that is left of a program: its namespaces or its group, and whatever came to be this process's child."""
    if holder is None:
        _kill(-program)
    else:
        _kill(holder)  # and with it every process inside
        os.waitpid(holder, 0)
    while orphans := _children():
        for orphan in orphans:
            _kill(orphan)
        os.waitpid(-1, 0)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _children() -> list[int]:
    """The children of this process, among them orphans that it inherited; only Linux hands those over."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc") if sys.platform == "linux" else ()):
        try:
            with open(f"/proc/{name}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile
            continue
        if parent == os.getpid():
            found.append(int(name))
    return found


def _ended(process: int) -> tuple[int, resource.struct_rusage] | None:
    found, code, usage = os.wait4(process, os.WNOHANG)
    return (code, usage) if found else None


def _rest(pipe: int, most: int) -> bytes:
    """What a pipe still holds; never waits, because a process that was left behind may keep it open."""
    rest = bytearray()
    while len(rest) <= most:
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            break
        if not chunk:
            break
        rest += chunk
    return bytes(rest)


def set_limits(limits: dict[str, Any], count_processes: bool) -> list[str]:
    """Apply limits to this process, each no higher than the system's own; returns those it does not support.

    count_processes: whether the kernel counts processes for this sandbox alone; where it counts all of the user's, a
        limit would make one program's result depend on what else is running.
    """
    seconds = math.ceil(limits["cpu_seconds"])
    wanted = {
        "RLIMIT_AS": limits["memory_bytes"],
        "RLIMIT_STACK": limits["memory_bytes"],
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": limits["file_bytes"],
        "RLIMIT_NPROC": limits["processes"] if count_processes else None,
        "RLIMIT_CORE": 0,
    }
    return [name for name, value in wanted.items() if value is not None and not _set_limit(name, value)]


def _set_limit(name: str, value: int) -> bool:
    kind = getattr(resource, name, None)
    if kind is None:
        return False
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # one more second for whoever wants to handle the first signal of the CPU limit
    upper = value + 1 if name == "RLIMIT_CPU" and value != hard else value
    try:
        resource.setrlimit(kind, (value, upper))
    except (ValueError, OSError):
        return False
    return True


class _Meter:
    """The idle time of a process: wall-clock time less what it ran, waited for a CPU, or waited for a disk."""

    def __init__(self, process: int) -> None:
        self.idle = 0.0
        self._paths = f"/proc/{process}/schedstat", f"/proc/{process}/stat"
        self._time, self._busy = time.monotonic(), 0.0

    def read(self) -> float:
        """Seconds of idle time until now."""
        now = time.monotonic()
        if (passed := now - self._time) >= _TICK / 2:
            try:
                busy, on_disk = self._look()
                idle = 0.0 if on_disk else passed - (busy - self._busy)
                self._busy = busy
            except (OSError, ValueError, IndexError):
                idle = _BLIND * passed
            # a longer time between two looks was this process's own, on a machine that is overloaded or was halted
            self.idle += min(max(idle, 0.0), 4 * _TICK)
            self._time = now
        return self.idle

    def forgive(self) -> None:
        """Count nothing since the last look as idle."""
        idle = self.idle
        self.read()
        self.idle = idle

    def _look(self) -> tuple[float, bool]:
        with open(self._paths[0]) as schedule, open(self._paths[1]) as stat:
            ran, waited = schedule.read().split()[:2]
            return (int(ran) + int(waited)) / 1e9, stat.read().rpartition(")")[2].split()[0] == "D"
