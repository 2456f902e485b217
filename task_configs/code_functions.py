"""What the YAMLs of the code tasks refer to, apart from the other tasks, which need no sandbox."""

from lm_eval_latentmas.scoring.evalplus import data_version, process_results, sandbox_level, write_samples

__all__ = ["data_version", "process_results", "sandbox_level", "write_samples"]
