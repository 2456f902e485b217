"""`latentmas-obf report`: all tables and pictures of some results, and the page that holds them."""

from __future__ import annotations

import argparse

from ..contents import tables_of
from . import choices

_EXAMPLES = """\
examples:
  latentmas-obf report out                                   print every table as Markdown
  latentmas-obf report out --format csv --metric exact_match
  latentmas-obf report out --paper --output report           write report/report.html, tables and pictures

Results come from `lm_eval ... --output_path out --log_samples`, of this or of any other model.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``report``."""
    parser.description, parser.epilog = __doc__.partition(": ")[2], _EXAMPLES
    parser.add_argument("results", nargs="+", metavar="FOLDER", help="results files of lm-eval, or folders with them")
    choices.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the results and show everything."""
    findings = choices.read(arguments, arguments.results)
    return choices.show(arguments, findings, tables_of(findings, paper=arguments.paper))
