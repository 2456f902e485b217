"""Goes into a ``.pth`` file of every install: loads the plugin once something imports lm-eval, and nothing before."""

import os
import sys


class LatentMASAutoload:
    """A meta-path finder that finds nothing; importing ``lm_eval`` sets the plugin's own hooks."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        if fullname != "lm_eval" or os.environ.get("LM_EVAL_LATENTMAS_AUTOLOAD") == "0":
            return
        try:
            from lm_eval_latentmas import autoload

            autoload.install()
        except Exception:  # the plugin may be half removed, lm-eval must work all the same
            import logging

            logging.getLogger("lm_eval_latentmas").warning("lm-eval goes on without this plugin", exc_info=True)


sys.meta_path.insert(0, LatentMASAutoload)
