"""The one place that imports the report's optional packages and names the extra where one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(module: str) -> ModuleType:
    """Import ``module`` when it is first needed.

    Raises:
        ImportError: it can't be imported; the message names the extra to install and keeps the cause.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{package} can't be imported ({error}); reports need it: pip install 'lm-eval-latentmas[report]'"
        ) from error
