"""The one question before model-written code runs: asked with all else that is missing, before anything loads."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from lm_eval_latentmas.benchmarks import BENCHMARKS, benchmarks_of


def check_consent(tasks: Iterable[str], confirmed: bool) -> None:
    """Raise ValueError, naming all that is missing, if ``tasks`` run code and cannot or may not.

    tasks: names of tasks or groups, or patterns, as given to lm-eval; those of others are passed over.
    confirmed: lm-eval's ``confirm_run_unsafe_code``.
    """
    running = [f"latentmas_{name}" for name in benchmarks_of(tasks) if BENCHMARKS[name].form == "code"]
    missing = missing_for_code(confirmed) if running else []
    if missing:
        raise ValueError(f"{', '.join(running)}: runs code that the model writes. Missing: {'; '.join(missing)}")


def missing_for_code(confirmed: bool) -> list[str]:
    """What keeps this process from grading code: consent, EvalPlus, the means to limit a process."""
    missing = []
    if not confirmed:
        missing.append("your consent, --confirm_run_unsafe_code (from Python: confirm_run_unsafe_code=True)")
    if find_spec("evalplus") is None:
        missing.append("EvalPlus, pip install 'lm-eval-latentmas[code]'")
    if find_spec("resource") is None:
        missing.append("a system that can limit processes, such as Linux or macOS")
    return missing
