"""The self-contained HTML report: one file that opens from disk, asks no network and runs no text of a model."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ..answer import answer
from ..contents import pictures_of, tables_of
from ..extras import optional
from ..findings import Findings
from ..pictures.canvas import data_uri
from ..sample_data import sample_data
from ..tables import format_cell

_SCRIPTS = ("sorting.js", "samples.js")
_NAMED = 9  # more names than this, and a title gives their number


def page(findings: Findings, *, paper: bool = False) -> str:
    """The report as HTML.

    Its content policy allows the page's own style and script, by their hashes, and inlined pictures; nothing else loads
    or runs.
    """
    style, script = _read("report.css"), "\n".join(map(_read, _SCRIPTS))
    return _template().render(
        title=f"{_listed([arm.name for arm in findings.arms], 'arms')} on {_listed(findings.tasks, 'tasks')}",
        heading="Which compressor?" if any(arm.compressor for arm in findings.arms) else "Which is better?",
        answer=answer(findings),
        notes=findings.notes,
        tables=tables_of(findings, paper=paper),
        pictures=[(picture, data_uri(picture)) for picture in pictures_of(findings)],
        arms=findings.arms,
        samples=embedded_json(sample_data(findings)),
        cell=format_cell,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def embedded_json(data: Any) -> str:
    """JSON that can stand inside a ``script`` element: no character of it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _listed(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} {what}"


def _template() -> Any:
    jinja2 = optional("jinja2")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_read("report.html.jinja"))


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
