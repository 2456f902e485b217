"""What the subcommands over finished results have in common: which results, against what, in which form, where to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..findings import Findings, read_findings
from ..tables import FORMATS, Table
from ..writing import write_report

PAGE_FORMAT = "html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every such subcommand."""
    parser.add_argument("--against", metavar="ARM", help="the arm to compare with (default: full, else single)")
    parser.add_argument("--metric", metavar="NAME[,FILTER]", help="a metric in place of each task's first")
    parser.add_argument(
        "--format",
        choices=[*FORMATS, PAGE_FORMAT],
        help="what to print (default: md); with --output, write this form alone in place of all",
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="write tables, pictures and report.html there")
    parser.add_argument("--paper", action="store_true", help="set the published figures beside the measured ones")


def read(arguments: argparse.Namespace, places: Sequence[str | Path]) -> Findings:
    """The findings of some results under the chosen options."""
    return read_findings(places, metric=arguments.metric, against=arguments.against)


def show(arguments: argparse.Namespace, findings: Findings, tables: Sequence[Table]) -> int:
    """Print the tables, or write the whole report where a folder was named.

    Raises:
        ValueError: a page was asked for without a folder to put it in.
    """
    if arguments.output is not None:
        for path in write_report(findings, arguments.output, paper=arguments.paper, only=arguments.format):
            print(path)
        return 0
    if arguments.format == PAGE_FORMAT:
        raise ValueError("--format html: a page is written to a folder; add --output DIR")
    print("\n".join(FORMATS[arguments.format or "md"](table) for table in tables), end="")
    return 0
