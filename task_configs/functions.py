"""What the YAMLs here refer to: lm-eval 0.4.11 looks for a ``!function`` in files beside the YAML, and nowhere else.

Only names: the functions are the installed package's own, whichever way this file is loaded.
"""

from lm_eval_latentmas.datasets import splits
from lm_eval_latentmas.scoring.process import choice, number

__all__ = ["choice", "number", "splits"]
