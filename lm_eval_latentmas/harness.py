"""What the harness was asked for, seen from the model's constructor: lm-eval builds the model before it loads tasks.

Consent to run code, access to gated data and generation arguments are checked before weights load, and a model is told
none of them. The call that makes the model stands on the stack, so it is read there; without such a call nothing is
known and nothing said.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class Request:
    """The tasks by name, whether model-written code may run, the folder of local data, and ``gen_kwargs``."""

    tasks: tuple[str, ...]
    confirmed: bool
    data_dir: str | None
    generation: dict[str, Any] = field(default_factory=dict)


def request() -> Request | None:
    """The ``simple_evaluate`` call that this code runs under, or None."""
    frame = _call("simple_evaluate")
    if frame is None:
        return None
    tasks = frame.f_locals.get("tasks") or []
    names = tuple(task for task in tasks if isinstance(task, str))
    metadata = frame.f_locals.get("metadata") or {}
    confirmed = bool(frame.f_locals.get("confirm_run_unsafe_code"))
    generation = frame.f_locals.get("gen_kwargs")
    generation = generation if isinstance(generation, dict) else {}
    return Request(names, confirmed, metadata.get("data_dir"), generation)


def chosen() -> dict[str, list[int]]:
    """By task, the documents that ``--samples`` names.

    lm-eval counts its requests' documents among the chosen ones, and logs a sample under the id at that place here.
    """
    frame = _call("evaluate")
    return (frame.f_locals.get("samples") if frame is not None else None) or {}


def _call(name: str) -> FrameType | None:
    """The innermost call of one of lm-eval's functions that this code runs under."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == name and frame.f_globals.get("__name__") == "lm_eval.evaluator":
            return frame
        frame = frame.f_back
    return None
