"""The four-agent latent relay as a model of lm-evaluation-harness. Importing the package imports nothing heavy."""

from __future__ import annotations

import os
from importlib import import_module

__version__ = "0.1.0"

# public name -> module that defines it, imported when the name is first used
_PUBLIC = {
    "Compressor": "relay.compressor",
    "LatentMASLM": "model",
    "Record": "records",
    "Relay": "cache",
    "Response": "records",
    "Segment": "cache",
    "Selection": "relay.selectors",
}
__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> object:
    """A public name, taken from its module.

    Raises ImportError, with the cause chained, when the module cannot be imported: whoever asked, the harness's
    registry included, learns what is broken instead of "no such model".
    """
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_PUBLIC[name]}"
    try:
        value = getattr(import_module(module), name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise ImportError(f"{__name__}: {name} is not available, importing {module} failed: {cause}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


if not os.path.isdir(os.path.join(__path__[0], "task_configs")):
    import_module(f"{__name__}.checkout")
