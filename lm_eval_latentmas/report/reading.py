"""Finds and parses lm-eval's results and samples files; what is not one of them, or is cut off, is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# what every results file of lm-eval has, whatever the model and the release
_RESULTS_KEYS = ("results", "configs", "versions", "n-samples", "config")
_SAMPLE_KEYS = ("doc_id", "target", "resps", "filter", "doc_hash")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d.\-]+$")


class UnreadableFile(ValueError):
    """A file that is not what lm-eval writes, or is truncated; the message names file, place and what to do."""


@dataclass(frozen=True)
class ResultsFile:
    """One results file of lm-eval and the samples files written beside it, by task."""

    path: Path
    data: dict[str, Any]
    samples: dict[str, Path]

    @property
    def stamp(self) -> str:
        """When the run was saved, as lm-eval writes it into the names of its files; it sorts by time."""
        return _stamp(self.path) or ""


def find_results(places: Iterable[str | Path]) -> tuple[list[ResultsFile], list[str]]:
    """Read the results files named, and those found in the folders named; also returns what was passed over, and why.

    Raises:
        UnreadableFile: a place that does not exist, an unreadable file that was named itself, or no results at all.
    """
    found: dict[Path, ResultsFile] = {}
    notes: list[str] = []
    for place in map(Path, places):
        if not place.exists():
            raise UnreadableFile(f"{place}: no such file or folder; give results files of lm-eval or folders with them")
        if place.is_file():
            found[place.resolve()] = read_results(place)
            continue
        for path in sorted(path for path in place.rglob("*.json") if _stamp(path)):
            try:
                found[path.resolve()] = read_results(path)
            except UnreadableFile as error:
                notes.append(f"passed over: {error}")
    if not found:
        looked = ", ".join(map(str, places))
        raise UnreadableFile("; ".join([f"no results of lm-eval in {looked}; run with --output_path", *notes]))
    return list(found.values()), notes


def read_results(path: Path) -> ResultsFile:
    """Parse one results file and find its samples files.

    Raises:
        UnreadableFile: truncated, or of another tool.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: not JSON, or cut off ({error}); run that evaluation again") from error
    missing = [key for key in _RESULTS_KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise UnreadableFile(f"{path}: no results file of lm-eval (without {', '.join(missing)})")
    return ResultsFile(path, data, _samples_beside(path, data["configs"]))


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one samples file.

    Raises:
        UnreadableFile: a line that is cut off or not a sample, with its number.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UnreadableFile(f"{path}, line {number}: cut off or not JSON ({error.msg})") from error
            missing = [key for key in _SAMPLE_KEYS if not isinstance(row, dict) or key not in row]
            if missing:
                raise UnreadableFile(f"{path}, line {number}: no sample of lm-eval (without {', '.join(missing)})")
            yield row


def _samples_beside(path: Path, tasks: Iterable[str]) -> dict[str, Path]:
    stamp = _stamp(path)
    named = {task: path.with_name(f"samples_{task}_{stamp}.jsonl") for task in tasks}
    return {task: sample for task, sample in named.items() if sample.is_file()}


def _stamp(path: Path) -> str | None:
    match = _STAMP.search(path.stem)
    return match and match.group()
