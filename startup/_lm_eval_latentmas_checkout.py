"""Editable installs only: finds the package and its two outer folders in the checkout, and nothing else in it.

Runs at every interpreter start, so it imports only what the interpreter has loaded by then.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# the two folders lie beside the package in the checkout and inside it once installed
_NAMES = {"lm_eval_latentmas", "lm_eval_latentmas.model_adapters", "lm_eval_latentmas.task_configs"}


class CheckoutFinder:
    """A meta-path finder for the names above; the checkout itself never gets onto ``sys.path``."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of one of our names, None for any other."""
        return PathFinder.find_spec(fullname, [_CHECKOUT]) if fullname in _NAMES else None


sys.meta_path.insert(0, CheckoutFinder)
