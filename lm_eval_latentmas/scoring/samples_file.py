"""A run's programs as EvalPlus's ``samples.jsonl``, so that ``evalplus.evaluate`` can grade them again."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval_latentmas.scoring.folders import cache_folder

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "LATENTMAS_SAMPLES_DIR"
_folder: Path | None = None


def keep_samples_in(folder: str | os.PathLike[str] | None) -> None:
    """Say where this process's runs leave their files: the model's ``run_dir``; None takes that back."""
    global _folder
    _folder = None if folder is None else Path(folder)


def write_samples(rows: Sequence[Sequence[dict[str, Any]]]) -> str:
    """Aggregation of ``samples``: writes the rows of all problems to one file and returns its path.

    The folder is ``LATENTMAS_SAMPLES_DIR``, else the run directory, else a new one in the cache folder.
    Raises OSError where it cannot be written.
    """
    lines = [row for several in rows for row in several]
    benchmarks = sorted({row["task_id"].partition("/")[0].lower() for row in lines})
    path = _destination() / f"{'_'.join(benchmarks)}_samples.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
        file.writelines(json.dumps(row) + "\n" for row in lines)
    os.replace(file.name, path)
    logger.info("%d programs for evalplus.evaluate: %s", len(lines), path)
    return str(path)


def _destination() -> Path:
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given).expanduser()
    return _folder or cache_folder() / "samples" / _run()


@cache
def _run() -> str:
    """A name of this process's own, so that no run without a folder overwrites another's file."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
