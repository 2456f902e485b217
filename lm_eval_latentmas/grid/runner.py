"""Runs a grid's cells one after the other over one loaded model; what is finished is not run again."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_latentmas.datasets import check_access
from lm_eval_latentmas.grid.plan import Cell, Grid
from lm_eval_latentmas.grid.weights import Weights, check_arguments
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.report.reading import UnreadableFile, find_results, read_samples
from lm_eval_latentmas.scoring.consent import check_consent

logger = logging.getLogger(__name__)
_MODEL = "latentmas-obf"


class ResultsNotWritten(RuntimeError):
    """lm-eval evaluated a cell, but its files are not there or not whole."""


def run_grid(grid: Grid, say: Callable[[str], None] = logger.info, weights: Weights | None = None) -> None:
    """Run every cell that has no results yet; each is resumable at sample level through a run directory of its own.

    say: is told each run that starts, and about how long the rest will take. weights: loaded ones to use.

    Raises:
        ValueError: a wrong setting, missing data or missing consent, before any model loads.
        ResultsNotWritten: a cell's files could not be written.
    """
    check_arguments(grid)
    check_consent(grid.tasks, grid.confirm_run_unsafe_code)
    check_access(grid.tasks, grid.data_dir)
    cells = grid.cells
    todo = [cell for cell in cells if not is_finished(grid, cell)]
    if len(todo) < len(cells):
        say(f"{len(cells) - len(todo)} of {len(cells)} runs are finished already")
    tasks = TaskManager(include_path=grid.include_path, metadata=_metadata(grid))
    weights = weights or Weights(grid)
    started = time.monotonic()
    for index, cell in enumerate(todo):
        say(f"run {len(cells) - len(todo) + index + 1} of {len(cells)}: {cell.name}{_left(started, index, len(todo))}")
        _evaluate(grid, cell, weights.under(cell), tasks)


def is_finished(grid: Grid, cell: Cell) -> bool:
    """Whether the cell's folder holds whole results of the same arguments, tasks and limit."""
    folder = grid.folder(cell)
    try:
        files, _ = find_results([folder])
    except UnreadableFile:
        return False
    return any(_is_result_of(file.data, grid, cell) for file in files)


def _is_result_of(data: dict[str, Any], grid: Grid, cell: Cell) -> bool:
    held, wanted = data["config"], {"limit": grid.limit, "gen_kwargs": grid.gen_kwargs or {}}
    same = all((held.get(name) or {}) == (value or {}) for name, value in wanted.items())
    arguments = json.loads(json.dumps(grid.arguments(cell), default=str))
    return (
        same and held.get("model_args") == arguments and set(grid.tasks) <= {*data["results"], *data.get("groups", {})}
    )


def _evaluate(grid: Grid, cell: Cell, lm: LatentMASLM, tasks: TaskManager) -> None:
    folder = grid.folder(cell)
    tracker = EvaluationTracker(output_path=str(folder / "results.json"))
    results = simple_evaluate(
        model=lm,
        model_args=grid.arguments(cell),
        tasks=list(grid.tasks),
        batch_size=grid.batch_size,
        device=grid.device,
        limit=grid.limit,
        gen_kwargs=grid.gen_kwargs,
        apply_chat_template=grid.apply_chat_template,
        confirm_run_unsafe_code=grid.confirm_run_unsafe_code,
        evaluation_tracker=tracker,
        task_manager=tasks,
        metadata=_metadata(grid),
        bootstrap_iters=0,
    )
    if results is not None:  # None on all processes but the first
        results["config"]["model"] = tracker.general_config_tracker.model_source = _MODEL
        _write(tracker, results, folder)


def _metadata(grid: Grid) -> dict[str, Any]:
    """What lm-eval hands on to tasks, and what the model reads to learn where documents come from."""
    return {"data_dir": grid.data_dir} if grid.data_dir else {}


def _write(tracker: EvaluationTracker, results: dict[str, Any], folder: Path) -> None:
    """Write lm-eval's files, and look at them: its tracker takes a failed write for a warning."""
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task, rows in samples.items():
        tracker.save_results_samples(task_name=task, samples=rows)
    files, _ = find_results([folder])
    newest = max(files, key=lambda file: file.stamp)
    for task, rows in samples.items():
        path = newest.samples.get(task)
        if path is None or sum(1 for _ in read_samples(path)) != len(rows):
            raise ResultsNotWritten(f"{folder}: the samples of {task} are not all there; is the disk full?")


def _left(started: float, done: int, runs: int) -> str:
    if done == 0:
        return ""
    minutes = (time.monotonic() - started) / done * (runs - done) / 60
    return f" (about {minutes:.0f} min left)" if minutes >= 1 else " (less than a minute left)"


def is_first_process() -> bool:
    """Whether this process speaks for all of a launch."""
    return int(os.environ.get("RANK", "0")) == 0
