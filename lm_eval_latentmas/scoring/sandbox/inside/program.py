"""The process of the untrusted program: calls its function for every input and writes down what comes back."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from values import decode, encode


def run(request: dict[str, Any], results: int) -> None:
    """Write one line of JSON per result to the pipe ``results``, then one that says how it ended.

    Whoever reads them trusts no line: a program can write anything here, which is worth as much as a guess.
    """
    inputs = decode(request["inputs"])
    cpu_seconds = request["cpu_seconds"] or [0.0] * len(inputs)
    collect = _COLLECT[request["collect"]]
    send = _Sender(results)
    try:
        # the default action of the timer's SIGPROF ends the process even inside one long C call
        _set_timer(signal.ITIMER_PROF, request["limits"]["load_seconds"])
        function = _load(request["program"], request["function"])
        for arguments, allowed in zip(inputs, cpu_seconds, strict=True):
            begun = time.process_time()
            _set_timer(signal.ITIMER_PROF, allowed)
            output = collect(function(*arguments))
            _set_timer(signal.ITIMER_PROF, 0.0)
            send({"output": output, "cpu": time.process_time() - begun})
        _wait_for_threads()
        send({"end": True})
    except BaseException as error:
        _set_timer(signal.ITIMER_PROF, 0.0)
        send(_described(error))


def _load(source: str, name: str) -> Callable[..., Any]:
    """The function ``name`` of the program. As with EvalPlus, its main guard does not hold."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = module  # dataclasses look their module up
    exec(compile(source, "<answer>", "exec", dont_inherit=True), module.__dict__)
    if name not in module.__dict__:
        raise NameError(f"the program defines no {name!r}")
    return module.__dict__[name]


def _wait_for_threads() -> None:
    """A program that leaves threads behind is over when they are."""
    threading = sys.modules.get("threading")
    for thread in threading.enumerate() if threading else ():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


class _Sender:
    """Writes lines to a pipe with functions taken before the program could replace them."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._write, self._dumps = pipe, os.write, json.dumps

    def __call__(self, line: dict[str, Any]) -> None:
        left = memoryview(self._dumps(line).encode() + b"\n")
        while left:
            left = left[self._write(self._pipe, left) :]


def _described(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:300]
    except BaseException:  # the program's own exception class may do anything here
        text = ""
    return {"error": type(error).__name__, "text": text, "memory": isinstance(error, MemoryError)}


_set_timer = signal.setitimer
_COLLECT: dict[str, Callable[[Any], Any]] = {
    "value": encode,
    "iterate": lambda value: encode(value, iterate=True),
    "not_none": lambda value: value if isinstance(value, bool) else value is not None,
}
