"""The script inside ``lm_eval_latentmas.pth``, run at every interpreter start: kept short, and no import is new."""

import os
import sys


class LatentMASStartup:
    """A meta-path finder: loads the plugin once something imports lm-eval, and finds a checkout's package."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname == "lm_eval" and os.environ.get("LM_EVAL_LATENTMAS_AUTOLOAD") != "0":
            try:
                from lm_eval_latentmas import autoload
            except ImportError as error:
                print(f"lm_eval_latentmas is installed but not loaded: {error}", file=sys.stderr)
            else:
                autoload.install()
        elif fullname == "lm_eval_latentmas" and CHECKOUT:  # noqa: F821 - the build hook's; the checkout is on no path
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(fullname, [CHECKOUT])  # noqa: F821
        return None


sys.meta_path.insert(0, LatentMASStartup)
