"""The options that `compare` and `sweep` share for running a grid."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from lm_eval_latentmas.grid.plan import Grid
from lm_eval_latentmas.relay.settings import number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of a grid, with lm-eval's names where lm-eval has them."""
    grid = parser.add_argument_group("running")
    grid.add_argument("--compressors", metavar="NAME,NAME", help="compressors to run, or none, shuffled, single, text")
    grid.add_argument("--tasks", metavar="NAME,NAME", help="tasks of lm-eval")
    grid.add_argument("--seeds", metavar="N,N", help="seeds; every setting runs once with each (default: 0)")
    grid.add_argument("--model_args", metavar="NAME=VALUE,...", help="further arguments of the model")
    grid.add_argument("--results", metavar="DIR", help="where the results go; finished ones are not run again")
    grid.add_argument("--limit", metavar="N", help="only the first so many documents of each task, or such a share")
    grid.add_argument("--batch_size", help="documents side by side, or auto")
    grid.add_argument("--max_batch_size", type=int, help="most documents side by side with auto")
    grid.add_argument("--device", help="where the model runs, such as cuda:0")
    grid.add_argument("--gen_kwargs", metavar="NAME=VALUE,...", help="generation arguments over the tasks' own")
    grid.add_argument("--apply_chat_template", action="store_true", default=None)
    grid.add_argument("--include_path", metavar="DIR", help="a folder with further task files")
    grid.add_argument("--data_dir", metavar="DIR", help="a folder with local data, one NAME.jsonl a benchmark")
    grid.add_argument("--confirm_run_unsafe_code", action="store_true", default=None)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given, as fields of `Grid`; what was not is left out."""
    given = {name: getattr(arguments, name) for name in _PLAIN}
    given["limit"] = number(arguments.limit)
    given["batch_size"] = number(arguments.batch_size) if arguments.batch_size else None
    for name in ("model_args", "gen_kwargs"):
        given[name] = pairs(getattr(arguments, name)) if getattr(arguments, name) else None
    given["tasks"] = tuple(arguments.tasks.split(",")) if arguments.tasks else None
    given["seeds"] = tuple(number(seed) for seed in arguments.seeds.split(",")) if arguments.seeds else None
    return {name: value for name, value in given.items() if value is not None}


def pairs(text: str) -> dict[str, Any]:
    """``NAME=VALUE,NAME=VALUE`` as a dict, numbers as numbers.

    Raises:
        ValueError: a part without ``=``.
    """
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"'{part}' is no NAME=VALUE")
        found[name.strip()] = number(value)
    return found


def run(grid: Grid) -> bool:
    """Run a grid and say so on standard error; whether this process is the one that reports."""
    # loads torch, transformers and lm_eval, which reading results never needs
    from lm_eval_latentmas.grid.runner import is_first_process, run_grid

    first = is_first_process()
    run_grid(grid, say=lambda line: print(line, file=sys.stderr, flush=True) if first else None)
    return first


_PLAIN = (
    *("results", "max_batch_size", "device", "apply_chat_template", "include_path", "data_dir"),
    "confirm_run_unsafe_code",
)
