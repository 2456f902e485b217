"""Reads what a run wrote about its compression: per agent, layer and head, and which prompt tokens were kept.

A run directory holds ``diagnostics*.parquet`` with one row per document, agent, region, layer and head: task, doc_id,
agent, region, layer, head, the measures of method section 4 in lower case, and kept (positions). Where the prompts are
told, they are in ``prompts*.parquet``: task, doc_id, agent, start (position of the first token), tokens (texts). Only
the region ``prompt`` is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .arms import Arm
from .extras import optional
from .reading import UnreadableFile
from .tables import Column, Row, Table

MEASURES = {
    "pcr": "projected share of the dropped values' norm",
    "rcr": "residual share of the dropped values' norm",
    "pc": "cosine of the dropped mean and its projection",
    "revr": "residual variance in the injected directions",
    "dr": "demand: dropped over kept attention",
    "ivn": "norm of what is injected",
    "output_error": "error of what the next queries read",
    "output_error_evicted": "the same without compensation",
}
_REQUIRED = ("task", "doc_id", "agent", "layer", "head")
Prompt = tuple[str, int, str]


@dataclass(frozen=True)
class Diagnostics:
    """One arm's rows by column, and by (task, document, agent) a prompt's tokens and the position of the first."""

    arm: str
    columns: Mapping[str, Sequence[Any]]
    tokens: Mapping[Prompt, Sequence[str]] = field(default_factory=dict)
    starts: Mapping[Prompt, int] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[Prompt, list[int]]:
        """Row numbers of each prompt, in the order of the file."""
        found: dict[Prompt, list[int]] = {}
        names = zip(*(self.columns[name] for name in ("task", "doc_id", "agent")), strict=True)
        for index, name in enumerate(names):
            found.setdefault(name, []).append(index)
        return found

    @property
    def measures(self) -> list[str]:
        """Measures that the file holds."""
        return [name for name in MEASURES if name in self.columns]


def read_diagnostics(places: Iterable[str | Path], arms: Sequence[Arm]) -> list[Diagnostics]:
    """The diagnostics in the folders named and in the run directories of the arms; an arm is told by its run directory.

    Raises:
        UnreadableFile: a Parquet file that can't be read or lacks a column.
    """
    names = {Path(given).resolve(): arm.name for arm in arms for given in _run_dirs(arm)}
    folders = [Path(place) for place in places if Path(place).is_dir()] + [path for path in names if path.is_dir()]
    paths = {path.resolve() for folder in folders for path in folder.rglob("diagnostics*.parquet")}
    by_arm: dict[str, list[Path]] = {}
    order = {arm.name: place for place, arm in enumerate(arms)}
    for path in sorted(paths):
        by_arm.setdefault(names.get(path.parent, path.parent.name), []).append(path)
    return [
        Diagnostics(
            arm, _of_prompts([_columns(path, _REQUIRED) for path in found]), *_prompts({p.parent for p in found})
        )
        for arm, found in sorted(by_arm.items(), key=lambda held: order.get(held[0], len(order)))
    ]


def label(measure: str) -> str:
    """A measure's name as the method writes it."""
    return measure.replace("_", " ") if "_" in measure else measure.upper()


def layer_means(diagnostics: Diagnostics, measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Layers, and over their documents, agents and heads the mean and the quartiles of a measure (NaN left out)."""
    layers = np.asarray(diagnostics.columns["layer"])
    values = np.array([np.nan if v is None else v for v in diagnostics.columns[measure]], dtype=float)
    found = [(layer, held) for layer in np.unique(layers) if len(held := _finite(values[layers == layer]))]
    means = np.array([held.mean() for _, held in found])
    quartiles = np.array([np.percentile(held, (25, 75)) for _, held in found]).reshape(-1, 2)
    return np.array([layer for layer, _ in found]), means, quartiles[:, 0], quartiles[:, 1]


def kept_share(diagnostics: Diagnostics, prompt: Prompt, length: int) -> np.ndarray:
    """Which share of a layer's heads kept each token of one prompt: (layers, length)."""
    columns, rows = diagnostics.columns, diagnostics.rows.get(prompt, [])
    layers = sorted({columns["layer"][row] for row in rows})
    start = diagnostics.starts.get(prompt, 0)
    share, heads = np.zeros((len(layers), length)), np.zeros(len(layers))
    for row in rows:
        layer = layers.index(columns["layer"][row])
        heads[layer] += 1
        kept = np.asarray(columns["kept"][row] or [], dtype=int) - start
        share[layer, kept[(kept >= 0) & (kept < length)]] += 1
    return share / np.maximum(heads, 1)[:, None]


def prompts_with_selection(diagnostics: Diagnostics) -> list[Prompt]:
    """Prompts whose kept positions and tokens are both known, in the order of the file."""
    if "kept" not in diagnostics.columns:
        return []
    return [prompt for prompt in diagnostics.rows if prompt in diagnostics.tokens]


def layer_table(diagnostics: Sequence[Diagnostics]) -> Table | None:
    """Means per arm and layer."""
    measures = [m for m in MEASURES if any(m in d.measures for d in diagnostics)]
    rows = []
    for held in diagnostics:
        means = {m: dict(zip(*layer_means(held, m)[:2], strict=True)) for m in held.measures}
        for layer in sorted({layer for by_layer in means.values() for layer in by_layer}):
            rows.append(Row((held.arm, float(layer), *(_float(means.get(m, {}).get(layer)) for m in measures))))
    columns = (Column("arm"), Column("layer", 0), *(Column(label(measure), 4) for measure in measures))
    note = "Means over documents, agents and heads. " + "; ".join(f"{label(m)}: {MEASURES[m]}" for m in measures) + "."
    return Table("diagnostics", "Diagnostics by layer", columns, tuple(rows), note) if rows else None


def _run_dirs(arm: Arm) -> set[str]:
    return {str(run.given["run_dir"]) for runs in arm.runs.values() for run in runs if run.given.get("run_dir")}


def _columns(path: Path, required: Sequence[str]) -> dict[str, list]:
    parquet, errors = optional("pyarrow.parquet"), optional("pyarrow").ArrowException
    try:
        columns = parquet.read_table(path).to_pydict()
    except (errors, OSError) as error:
        raise UnreadableFile(f"{path}: no Parquet file, or cut off ({error})") from error
    if not any(columns.values()):
        return {name: [] for name in required}
    if missing := [name for name in required if name not in columns]:
        raise UnreadableFile(f"{path}: lacks the column {', '.join(missing)}")
    return columns


def _of_prompts(parts: list[dict[str, list]]) -> dict[str, list]:
    """The rows of several files that are about prompts, in the columns that all files have."""
    parts = [part for part in parts if part["task"]]
    shared = [name for name in (parts[0] if parts else ()) if all(name in part for part in parts)]
    joined = {name: [value for part in parts for value in part[name]] for name in shared}
    if "region" not in joined:
        return joined
    kept = [index for index, region in enumerate(joined["region"]) if region == "prompt"]
    return {name: [values[index] for index in kept] for name, values in joined.items()}


def _prompts(folders: Iterable[Path]) -> tuple[dict[Prompt, list[str]], dict[Prompt, int]]:
    tokens: dict[Prompt, list[str]] = {}
    starts: dict[Prompt, int] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("prompts*.parquet"))):
        columns = _columns(path, ("task", "doc_id", "agent", "start", "tokens"))
        names = list(zip(columns["task"], columns["doc_id"], columns["agent"], strict=True))
        tokens.update(zip(names, columns["tokens"], strict=True))
        starts.update(zip(names, columns["start"], strict=True))
    return tokens, starts


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
