"""What the YAMLs of the relay probe refer to; see ``functions.py``."""

from lm_eval_latentmas.probe_task import generated, ranked, splits

__all__ = ["generated", "ranked", "splits"]
