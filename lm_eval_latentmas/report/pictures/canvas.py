"""What all pictures share: the sheet, the styles that differ without colour, and PNG and SVG files."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# neighbours differ in brightness; lists of unequal length, so that no two of many series have all four in common
_COLOURS = (
    "#1b3a5c",
    "#e08a1e",
    "#6b6f76",
    "#7fb7d6",
    "#8c1c33",
    "#b9b04a",
    "#3f7d58",
    "#c9a0c8",
    "#000000",
    "#9fd39a",
)
_MARKERS = "osD^vPX*<"
_LINES = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1)),
    (0, (1, 1)),
    (0, (3, 1, 1, 1)),
    (0, (7, 2)),
    (0, (2, 2)),
    (0, (4, 1, 1, 1)),
)
_HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")
_PANEL = (5.0, 3.4)  # inches of one panel


@dataclass(frozen=True)
class Style:
    """How one series looks, the same in every picture of a report."""

    colour: str
    marker: str
    line: str | tuple
    hatch: str


@dataclass(frozen=True)
class Picture:
    """A drawn sheet; ``text`` says in words what it shows, for readers who can't see it."""

    name: str
    title: str
    text: str
    figure: Figure


def styles(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name, in order."""
    return {
        name: Style(*(kind[index % len(kind)] for kind in (_COLOURS, _MARKERS, _LINES, _HATCHES)))
        for index, name in enumerate(names)
    }


def sheet(panels: int = 1, *, columns: int = 2, size: tuple[float, float] = _PANEL) -> tuple[Figure, list[Axes]]:
    """An empty figure with so many panels, at most ``columns`` side by side; sizes in inches."""
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = optional("matplotlib.figure").Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[panels:]:
        spare.set_axis_off()
    for panel in axes[:panels]:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(visible=True, color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
    return figure, axes[:panels]


def save(picture: Picture, folder: Path) -> list[Path]:
    """Write ``NAME.png`` and ``NAME.svg``."""
    paths = [folder / f"{picture.name}{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        path.write_bytes(_rendered(picture.figure, path.suffix[1:]))
    return paths


def data_uri(picture: Picture) -> str:
    """The picture as an SVG that stands in a page itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(_rendered(picture.figure, "svg")).decode()


def _rendered(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}  # equal pictures, equal files
    figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()
