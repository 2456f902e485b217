"""`latentmas-obf sweep`: one argument or several jointly over a list of values, and how the scores follow."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm_eval_latentmas.grid import options
from lm_eval_latentmas.grid.plan import Grid, arms_of, expand, swept
from lm_eval_latentmas.report.commands import choices
from lm_eval_latentmas.report.commands.compare import show_sweep

_EXAMPLES = """\
examples:
  latentmas-obf sweep kv_budget=8,16,32,64 --compressors headwise,h-obf --tasks latentmas_gsm8k --limit 60
  latentmas-obf sweep kv_budget=8,32 pca_rank=2,4 --compressors h-obf --tasks latentmas_demo    every combination
  latentmas-obf sweep latent_steps=0,20,40 --compressors full --tasks latentmas_demo --output report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``sweep``."""
    parser.description, parser.epilog = __doc__.partition(": ")[2], _EXAMPLES
    parser.add_argument("arguments", nargs="+", metavar="NAME=VALUE,VALUE", help="arguments of the model and values")
    choices.add_arguments(parser)
    options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run what is not finished, and show scores over the swept arguments."""
    given = options.settings(arguments)
    if "tasks" not in given:
        raise ValueError("a sweep needs --tasks")
    values = swept(arguments.arguments)
    bases = arms_of(arguments.compressors) if arguments.compressors else [{}]
    given["results"] = Path(given.get("results", Grid.results))
    grid = Grid(arms=expand([base | values for base in bases]), **given)
    return show_sweep(arguments, [grid.results], list(values)) if options.run(grid) else 0
