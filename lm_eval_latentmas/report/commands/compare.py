"""What `compare`, `sweep` and `fidelity` show of finished results: the answer, and the tables that lead to it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..answer import answer
from ..contents import tables_of
from ..findings import Findings
from ..sweeps import sweep_table
from . import choices

_TABLES = ("scores", "comparisons", "signs", "costs")


def show_comparison(arguments: argparse.Namespace, places: Sequence[str | Path]) -> int:
    """Say the answer on standard error, and show scores, differences and costs."""
    findings = choices.read(arguments, places)
    _say(answer(findings), findings)
    tables = [table for table in tables_of(findings, paper=arguments.paper) if table.name in _TABLES]
    return choices.show(arguments, findings, tables)


def show_sweep(arguments: argparse.Namespace, places: Sequence[str | Path], swept: Sequence[str]) -> int:
    """Show the scores over each swept argument."""
    findings = choices.read(arguments, places)
    _say([], findings)
    tables = [sweep_table(findings.arms, argument, findings.tasks) for argument in swept]
    return choices.show(arguments, findings, [table for table in tables if table is not None])


def show_fidelity(arguments: argparse.Namespace, places: Sequence[str | Path]) -> int:
    """Show relay fidelity, beside the score differences that the same folder holds."""
    findings = choices.read(arguments, places)
    _say([], findings)
    return choices.show(arguments, findings, [table for table in tables_of(findings) if table.name == "fidelity"])


def _say(sentences: Sequence[str], findings: Findings) -> None:
    print(*sentences, *(f"note: {note}" for note in findings.notes), sep="\n", file=sys.stderr)
