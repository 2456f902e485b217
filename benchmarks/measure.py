"""Interleaved timing, and the table that a benchmark prints and writes as JSON."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Spread:
    """A median with the least and the largest of its rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one value a round."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        digits = 2 if self.median < 100 else 0
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


@dataclass
class Table:
    """Rows of one benchmark, a note on what is compared, and which targets were reached."""

    title: str
    note: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row, and show it at once: a run that is stopped has then not been for nothing."""
        self.rows.append(row)
        print(", ".join(f"{column} {_text(value)}" for column, value in row.items()), file=sys.stderr, flush=True)

    def target(self, what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        """Hold a measured value against a bound."""
        bound = f"at least {least}" if least is not None else f"at most {most}"
        reached = value >= least if least is not None else value <= most
        self.targets.append({"what": what, "measured": round(value, 4), "bound": bound, "reached": reached})

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"## {self.title}", "", self.note, "", *_grid(self.rows), ""]
        return "\n".join([*lines, *(_grid(self.targets) if self.targets else [])])


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Wall-clock seconds of every case, one a round; the order turns, and a first round is not counted."""
    names, seconds = list(cases), {name: [] for name in cases}
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            gc.collect()
            started = time.perf_counter()
            cases[name]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number >= 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """The spread of a quotient that is taken within each round."""
    return Spread.of([a / b for a, b in zip(over, under, strict=True)])


def _grid(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A Markdown table, padded so that it reads as plain text too."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_text(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
