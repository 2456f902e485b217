"""Used in a checkout only: finds the two folders that lie beside the package there and inside it once installed."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OUTER = {"lm_eval_latentmas.model_adapters", "lm_eval_latentmas.task_configs"}


class OuterFolders:
    """A meta-path finder for those two names; a longer ``__path__`` would turn ``tests`` into a part of the package."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of one of the two, None for any other name."""
        return PathFinder.find_spec(fullname, [_CHECKOUT]) if fullname in _OUTER else None


sys.meta_path.append(OuterFolders)
