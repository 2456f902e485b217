"""A table as data, with the best and the runner-up of a column marked, and its Markdown, LaTeX and CSV forms."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Cell = str | float | None
BEST, RUNNER_UP = 1, 2


@dataclass(frozen=True)
class Column:
    """A column's heading, the decimals of its numbers, and which end of the scale is good."""

    name: str
    digits: int = 2
    best: Literal["max", "min"] | None = None


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns; rows compete for best and runner-up within their group."""

    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``name`` serves as file name and anchor, ``note`` says what a reader must know to read it alone."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def places(self) -> list[list[int | None]]:
        """Per row and column: 1 for the best number of its group, 2 for the next different one, else None."""
        places: list[list[int | None]] = [[None] * len(self.columns) for _ in self.rows]
        for column, spec in enumerate(self.columns):
            for group in {row.group for row in self.rows} if spec.best else ():
                self._place(column, spec, group, places)
        return places

    def _place(self, column: int, spec: Column, group: str, places: list[list[int | None]]) -> None:
        shown = {
            index: round(row.cells[column], spec.digits)
            for index, row in enumerate(self.rows)
            if row.group == group and isinstance(row.cells[column], int | float)
        }
        if len(shown) < 2:
            return
        ranked = sorted(set(shown.values()), reverse=spec.best == "max")
        for index, number in shown.items():
            place = ranked.index(number) + 1
            places[index][column] = place if place in (BEST, RUNNER_UP) else None


def format_cell(cell: Cell, column: Column) -> str:
    """A cell as a reader sees it: a dash for what is not known, and no zero for what is merely small."""
    if not isinstance(cell, int | float):
        return "-" if cell is None else cell
    shown, least = f"{cell:,.{column.digits}f}", f"{10.0**-column.digits:.{column.digits}f}"
    if cell and not shown.strip("-0."):
        return f"<{least}" if cell > 0 else f">-{least}"
    return shown


def markdown(table: Table) -> str:
    """The table in Markdown: best in bold, runner-up in italics."""
    lines = [f"### {table.title}", "", _pipes(c.name for c in table.columns), _pipes("---" for _ in table.columns)]
    marks = {BEST: "**{}**", RUNNER_UP: "*{}*", None: "{}"}
    lines += [_pipes(cells) for cells in _formatted(table, marks, _escape_markdown)]
    return "\n".join([*lines, *(["", table.note] if table.note else [])]) + "\n"


def latex(table: Table) -> str:
    r"""The table for a LaTeX document (needs ``booktabs``): best in bold, runner-up underlined."""
    marks = {BEST: r"\textbf{{{}}}", RUNNER_UP: r"\underline{{{}}}", None: "{}"}
    body = [" & ".join(cells) + r" \\" for cells in _formatted(table, marks, _escape_latex)]
    heading = " & ".join(_escape_latex(c.name) for c in table.columns) + r" \\"
    caption = _escape_latex(f"{table.title}. {table.note}" if table.note else table.title)
    align = "l" + "r" * (len(table.columns) - 1)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}"]
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", heading, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}"]) + "\n"


def comma_separated(table: Table) -> str:
    """The table as CSV: full numbers, and a column ``NAME place`` (1 best, 2 runner-up) where places are given."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ranked = [index for index, column in enumerate(table.columns) if column.best]
    writer.writerow([c.name for c in table.columns] + [f"{table.columns[i].name} place" for i in ranked])
    for row, places in zip(table.rows, table.places(), strict=True):
        cells = ["" if cell is None else cell for cell in row.cells]
        writer.writerow(cells + ["" if places[i] is None else places[i] for i in ranked])
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "latex": latex, "csv": comma_separated}
SUFFIXES = {"md": ".md", "latex": ".tex", "csv": ".csv"}


def _formatted(table: Table, marks: dict[int | None, str], escape: Callable[[str], str]) -> list[list[str]]:
    return [
        [
            marks[place].format(escape(format_cell(cell, column)))
            for cell, column, place in zip(row.cells, table.columns, places, strict=True)
        ]
        for row, places in zip(table.rows, table.places(), strict=True)
    ]


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape_markdown(text: str) -> str:
    return re.sub(r"([|*_`<>\[\]\\])", r"\\\1", " ".join(text.split()))


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
