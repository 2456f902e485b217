"""Writes a report to a folder: the page, every table in every form, every picture as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .contents import pictures_of, tables_of
from .findings import Findings
from .page import page
from .pictures.canvas import save
from .tables import FORMATS, SUFFIXES


def write_report(findings: Findings, folder: Path, *, paper: bool = False, only: str | None = None) -> Iterator[Path]:
    """Write the report and yield each file's path; ``only`` one of ``html``, ``md``, ``latex``, ``csv``.

    Raises:
        OSError: the folder can't be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if only in (None, "html"):
        yield _written(folder / "report.html", page(findings, paper=paper))
    for kind in FORMATS if only is None else [only] if only in FORMATS else []:
        for table in tables_of(findings, paper=paper):
            yield _written(folder / "tables" / f"{table.name}{SUFFIXES[kind]}", FORMATS[kind](table))
    if only is None:
        (folder / "pictures").mkdir(exist_ok=True)
        for picture in pictures_of(findings):
            yield from save(picture, folder / "pictures")


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
