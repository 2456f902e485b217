"""The benchmarks' rows, from the Hugging Face Hub, a local folder or this package, made into documents.

Rows stay plain Python, never Arrow: EvalPlus's inputs mix types and hold integers beyond 64 bits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from lm_eval_latentmas.benchmarks import BENCHMARKS, Benchmark, benchmarks_of
from lm_eval_latentmas.documents import Row
from lm_eval_latentmas.naming import nearest

FOLDER_VARIABLE = "LATENTMAS_DATA_DIR"


class Documents(list):
    """Documents as lm-eval wants a split: a sequence that knows its fields."""

    @property
    def features(self) -> dict[str, None]:
        """The names of the fields."""
        return dict.fromkeys(self[0]) if self else {}


def splits(benchmark: str, data_dir: str | None = None, **metadata: Any) -> dict[str, Documents]:
    """What the task YAMLs name as ``custom_dataset``; lm-eval hands over its metadata, of which ``data_dir`` counts."""
    return {"test": load(benchmark, data_dir)}


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Documents:
    """The documents of a benchmark: ``id``, ``question``, ``gold``; for choices ``choices`` and ``letters``, too.

    The rows come from NAME.jsonl in ``data_dir``, else in the folder that LATENTMAS_DATA_DIR names, else from the Hub
    or EvalPlus's release, which the ``datasets`` library keeps for work without network.
    Raises ValueError, in one line: an unknown name; the file, line and field that are wrong; what gives access.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {nearest(name, BENCHMARKS)}")
    source = source_of(name, data_dir)
    rows = read_rows(source) if isinstance(source, Path) else _fetch(name, BENCHMARKS[name])
    return Documents(document(name, row, f"{source}, line {line}") for line, row in enumerate(rows, 1))


def source_of(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path | str:
    """Where `load` reads a benchmark: a local file, else the data set on the Hub with its commit, or an address."""
    benchmark = BENCHMARKS[name]
    if benchmark.packaged:
        return Path(str(files("lm_eval_latentmas") / "data" / f"{name}.jsonl"))
    if folder := data_dir or os.environ.get(FOLDER_VARIABLE):
        return Path(folder).expanduser() / f"{name}.jsonl"
    return benchmark.url or f"{benchmark.hub}@{benchmark.revision}"


def provenance(tasks: Iterable[str], data_dir: str | os.PathLike[str] | None = None) -> dict[str, dict[str, Any]]:
    """For the results of ``tasks``: each benchmark's source, number of documents, and SHA-256 over all of them."""
    found = {}
    for name in benchmarks_of(tasks):
        loaded = load(name, data_dir)
        content = json.dumps(loaded, sort_keys=True).encode()
        source = str(source_of(name, data_dir))
        found[name] = {"source": source, "documents": len(loaded), "sha256": hashlib.sha256(content).hexdigest()}
    return found


def document(name: str, row: Row, place: str) -> Row:
    """The document of one row of a benchmark; a row that is a document already is returned as it is.

    Raises ValueError that begins with ``place`` and names the field that is wrong.
    """
    if {"id", "question", "gold"} <= row.keys():
        for field in ("question", "gold"):
            if not isinstance(row[field], str) or not row[field].strip():
                raise ValueError(f"{place}: field '{field}' must be a text that is not empty, not {row[field]!r}")
        return row
    try:
        return BENCHMARKS[name].document(row)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def check_access(tasks: Iterable[str], data_dir: str | os.PathLike[str] | None = None) -> None:
    """Read the data of all of this package's ``tasks``, so that what is missing is told before a model loads.

    tasks: names of tasks or groups, or patterns, as given to lm-eval; others are passed over.
    Raises ValueError as `load` does.
    """
    for name in benchmarks_of(tasks):
        load(name, data_dir)


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a file of JSON lines, gzipped or not; NaN, Infinity and integers of any size are read as they are.

    Raises ValueError naming file and line where the file is missing, empty or cut off, or a line is no JSON object.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file; a data folder holds one NAME.jsonl for each benchmark")
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    rows = []
    try:
        with (gzip.open if compressed else open)(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                rows.append(_row(line, f"{path}, line {number}"))
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}, line {len(rows) + 1}: damaged or cut off ({error})") from error
    if not rows:
        raise ValueError(f"{path}: the file is empty")
    return rows


def _row(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        cut_off = "" if line.endswith("\n") else "; the file seems to be cut off"
        raise ValueError(f"{place}: not JSON ({error.msg} at column {error.colno}){cut_off}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: a row must be a JSON object, not {type(row).__name__}")
    return row


def _fetch(name: str, benchmark: Benchmark) -> list[Row]:
    import datasets

    try:
        if benchmark.hub:
            rows = datasets.load_dataset(
                benchmark.hub, benchmark.config, split=benchmark.split, revision=benchmark.revision
            )
            return [dict(row) for row in rows]
        # without the ETag a file that is already here needs no network
        manager = datasets.DownloadManager(download_config=datasets.DownloadConfig(use_etag=False))
        return read_rows(manager.download(benchmark.url))
    except OSError as error:
        raise ValueError(_how_to_get(name, benchmark, error)) from error


def _how_to_get(name: str, benchmark: Benchmark, error: OSError) -> str:
    cause = " ".join(str(error).split())[:200]
    local = f"or put {name}.jsonl into a folder and name that in {FOLDER_VARIABLE}"
    if benchmark.gated:
        terms = f"https://huggingface.co/datasets/{benchmark.hub}"
        steps = f"1. Accept its terms at {terms}. 2. Log in with 'hf auth login', or set HF_TOKEN"
        return f"{name}: the data set {benchmark.hub} is gated. {steps}; {local}. ({cause})"
    return (
        f"{name}: {benchmark.hub or benchmark.url} cannot be read ({cause}). Connect once, so that it is kept; {local}"
    )
