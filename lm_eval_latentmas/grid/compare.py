"""`latentmas-obf compare`: which compressor is better, by how much, and how sure that is.

Of finished results, or of a grid that is run first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lm_eval_latentmas.grid import options
from lm_eval_latentmas.grid.plan import Grid, arms_of, read_grid
from lm_eval_latentmas.report.commands import choices
from lm_eval_latentmas.report.commands.compare import show_comparison

_EXAMPLES = """\
examples:
  latentmas-obf compare out                                    finished results, against full
  latentmas-obf compare a.json b.json --against headwise
  latentmas-obf compare --compressors full,gen,h-obf --tasks latentmas_gsm8k --seeds 4,44 --limit 60
  latentmas-obf compare --grid grid.yaml --output report       run what is not finished, write report/report.html
  accelerate launch -m lm_eval_latentmas.cli compare --grid grid.yaml

A grid file has the options' names as fields, and 'arms', whose lists multiply:
  tasks: [latentmas_gsm8k]
  seeds: [4, 44, 444]
  arms:
    - compressor: [full, gen]
    - {compressor: [h-obf, l-obf], kv_budget: [8, 32]}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``compare``."""
    parser.description, parser.epilog = " ".join(__doc__.partition(": ")[2].split()), _EXAMPLES
    parser.add_argument("finished", nargs="*", metavar="RESULTS", help="results files of lm-eval, or folders with them")
    choices.add_arguments(parser)
    options.add_arguments(parser)
    parser.add_argument("--grid", metavar="FILE", help="a YAML file with the grid; options take precedence")


def run(arguments: argparse.Namespace) -> int:
    """Run the grid, if one was named, and compare its results and those that were named."""
    places: list[str | Path] = list(arguments.finished)
    grid = _grid(arguments)
    if grid is None and not places:
        raise ValueError("nothing to compare: name finished results, or --grid FILE, or --compressors and --tasks")
    if grid is not None:
        if not options.run(grid):
            return 0
        places.append(grid.results)
    return show_comparison(arguments, places)


def _grid(arguments: argparse.Namespace) -> Grid | None:
    given = options.settings(arguments)
    arms = arms_of(arguments.compressors) if arguments.compressors else None
    if arguments.grid:
        return read_grid(arguments.grid, arms=arms, **given)
    if arms is None:
        return None
    if "tasks" not in given:
        raise ValueError("--compressors: name what to run them on, --tasks")
    if "results" in given:
        given["results"] = Path(given["results"])
    return Grid(arms=tuple(arms), **given)
