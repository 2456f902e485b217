"""What the harness was asked for, seen from the model's constructor: lm-eval builds the model before it loads tasks.

Consent to run code and access to gated data are wanted before weights load, and a model is told neither. The call
that makes the model stands on the stack, so it is read there; without such a call nothing is known and nothing said.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The tasks by name, whether model-written code may run, and the folder of local data, if one was named."""

    tasks: tuple[str, ...]
    confirmed: bool
    data_dir: str | None


def request() -> Request | None:
    """The ``simple_evaluate`` call that this code runs under, or None."""
    frame = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "simple_evaluate" and frame.f_globals.get("__name__") == "lm_eval.evaluator":
            tasks = frame.f_locals.get("tasks") or []
            names = tuple(task for task in tasks if isinstance(task, str))
            metadata = frame.f_locals.get("metadata") or {}
            return Request(names, bool(frame.f_locals.get("confirm_run_unsafe_code")), metadata.get("data_dir"))
        frame = frame.f_back
    return None
