"""Runs model-written code in processes of its own, under limits and as isolated as the system allows.

Results come back as plain values over a pipe; what they are worth is decided outside. Where the system offers only
the lower levels (see `Sandbox.level`), this contains accidents, not determined attacks.
"""

from __future__ import annotations

from lm_eval_latentmas.scoring.sandbox.limits import Call, Execution, Limits, SandboxError
from lm_eval_latentmas.scoring.sandbox.pool import Sandbox

__all__ = ["Call", "Execution", "Limits", "Sandbox", "SandboxError"]
