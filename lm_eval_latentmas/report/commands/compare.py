"""`latentmas-obf compare`: which arm is better than the reference, by how much, and how sure that is."""

from __future__ import annotations

import argparse
import sys

from ..answer import answer
from ..contents import tables_of
from . import choices

_TABLES = ("scores", "comparisons", "signs", "costs")
_EXAMPLES = """\
examples:
  latentmas-obf compare out                                  all runs in a folder, against full
  latentmas-obf compare a/results_1.json b/results_2.json --against headwise
  latentmas-obf compare out --output report                  also write report/report.html

Results come from `lm_eval ... --output_path out --log_samples`, of this or of any other model.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``compare``."""
    parser.description, parser.epilog = __doc__.partition(": ")[2], _EXAMPLES
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="results files of lm-eval, or folders with them")
    choices.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the results, say the answer on standard error, and show the tables that lead to it."""
    findings = choices.read(arguments, arguments.results)
    print(*answer(findings), *(f"note: {note}" for note in findings.notes), sep="\n", file=sys.stderr)
    tables = [table for table in tables_of(findings, paper=arguments.paper) if table.name in _TABLES]
    return choices.show(arguments, findings, tables)
