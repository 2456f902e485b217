"""`latentmas-obf fidelity`: how far each compressor moves the judger's next-token distributions from full's."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lm_eval_latentmas.grid import options
from lm_eval_latentmas.grid.plan import Grid, arms_of
from lm_eval_latentmas.report.commands import choices
from lm_eval_latentmas.report.commands.compare import show_fidelity

_EXAMPLES = """\
examples:
  latentmas-obf fidelity --compressors gen,headwise,h-obf,l-obf --tasks latentmas_gsm8k --limit 20
  latentmas-obf fidelity --compressors gen,h-obf --tasks latentmas_demo --results results --output report

Needs few documents and no labels: only the full relay answers, and every compressor is measured along its answers.
Scores that lie in the same results folder are set beside it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fidelity``."""
    parser.description, parser.epilog = __doc__.partition(": ")[2], _EXAMPLES
    choices.add_arguments(parser)
    options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and show what was found."""
    given = options.settings(arguments)
    if "tasks" not in given or not arguments.compressors:
        raise ValueError("fidelity needs --compressors and --tasks")
    given["results"] = Path(given.get("results", Grid.results))
    grid = Grid(arms=tuple(arms_of(arguments.compressors)), **given)
    # loads torch, transformers and lm_eval, which reading results never needs
    from lm_eval_latentmas.grid.fidelity import measure_fidelity

    measure_fidelity(grid, say=lambda line: print(line, file=sys.stderr, flush=True))
    return show_fidelity(arguments, [grid.results])
