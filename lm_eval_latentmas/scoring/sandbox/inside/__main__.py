"""Starts one program behind a wall: a request on standard input, a report and the results on standard output.

Runs as a script, with the standard library only: ``python -S -s -B FOLDER``. The program's own process is a child of
this one and holds none of its open files, so that nothing it does can forge the report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

# all of them now: behind the wall their files are out of sight
import audit
import filters
import kernel
import landlock
import namespaces
import program
import supervision


def main() -> None:
    """One request: a line that says whether the wall stands, then a line on how the program ended and its results."""
    request = json.load(sys.stdin.buffer)
    try:
        holder = _build_wall(request)
        process, results, unsupported = _start(request, holder)
    except Exception as error:
        _report({"error": f"{type(error).__name__}: {error}"})
        return
    _report({"unsupported": unsupported})
    report, output = supervision.supervise(process, results, request["limits"])
    supervision.end(process, holder)
    _report(report)
    sys.stdout.buffer.write(output)


def _report(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


def _build_wall(request: dict[str, Any]) -> int | None:
    """Raise the outer part of the wall, around all of a program's processes; returns the process that holds it."""
    if sys.platform != "linux":
        return None
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, a program goes and not the evaluation
    holder = None
    if request["isolation"] == "namespaces":
        holder = namespaces.enter(request["folder"], request["paths"], request["limits"]["file_bytes"])
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process of the same user may look into this one
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return holder


def _start(request: dict[str, Any], holder: int | None) -> tuple[int, int, list[str]]:
    """Start the program's process: its id, the pipe of its results, the limits that the system does not support.

    Raises OSError where its wall cannot be raised.
    """
    results, results_end = os.pipe()
    readiness, readiness_end = os.pipe()
    process = os.fork()
    if process == 0:
        _become_program(request, results_end, readiness_end)
    os.close(results_end)
    os.close(readiness_end)
    with open(readiness, "rb") as pipe:
        answer = json.loads(pipe.read() or '{"error": "the process ended before the program began"}')
    if "error" in answer:
        supervision.end(process, holder)
        raise OSError(answer["error"])
    return process, results, answer["unsupported"]


def _become_program(request: dict[str, Any], results: int, readiness: int) -> NoReturn:
    """Raise the inner part of the wall around this process, tell so, and run the program."""
    try:
        os.setsid()
        _keep_open(results, readiness)
        unsupported = _confine(request)
        os.write(readiness, json.dumps({"unsupported": unsupported}).encode())
    except BaseException as error:
        os.write(readiness, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    os.close(readiness)  # before the program begins: it cannot tell anything there
    try:
        program.run(request, results)
    finally:
        os._exit(0)


def _keep_open(*kept: int) -> None:
    """Leave this process the pipes ``kept``, nothing to read and nowhere to print."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    edge = 3
    for pipe in sorted(kept):
        os.closerange(edge, pipe)
        edge = pipe + 1
    os.closerange(edge, 256)  # this process has opened a handful


def _confine(request: dict[str, Any]) -> list[str]:
    """Raise the wall between this process and all else; returns the limits that the system does not support."""
    isolation, paths, folder = request["isolation"], request["paths"], request["folder"]
    sys.path[:] = sys.path[1:] + request["import_paths"]
    refuse_calls = filters.prepare() if request["filter"] else None
    if isolation == "namespaces":
        namespaces.confine(folder)
        folder = namespaces.FOLDER
    elif isolation == "landlock":
        landlock.confine(paths, folder)
    unsupported = supervision.set_limits(request["limits"], count_processes=isolation == "namespaces")
    if sys.platform == "linux":
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if refuse_calls:
        refuse_calls()
    if isolation == "audit" or refuse_calls is None:
        audit.confine(paths, folder)
    return unsupported


if __name__ == "__main__":
    main()
