"""Goes into a ``.pth`` file of editable installs: finds the package in the checkout, and nothing else of it."""

import sys

CHECKOUT = globals()["CHECKOUT"]  # the folder, put in by the build hook


class LatentMASCheckout:
    """A meta-path finder for the package alone, so that ``tests`` and the like never become top-level packages."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> object:
        if fullname != "lm_eval_latentmas":
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(fullname, [CHECKOUT])


sys.meta_path.insert(0, LatentMASCheckout)
