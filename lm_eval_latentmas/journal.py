"""What is finished, kept durably: one SQLite file per run directory, one row per answered sample.

A row is committed as soon as its text is finished, under a key of everything that changes the text; a run that is
killed and started again computes nothing twice, with any batch size and number of processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from lm_eval_latentmas.records import Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (launch TEXT NOT NULL, key TEXT NOT NULL, doc_id INTEGER NOT NULL,
    PRIMARY KEY (launch, key, doc_id));
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, task TEXT NOT NULL, record TEXT NOT NULL);
"""
_FILE = "journal.sqlite"
_TIMEOUT = 120.0  # seconds that a process waits for another one's commit


class Journal:
    """The finished samples of one configuration in one folder; safe for several processes of one machine."""

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        """Open or make the journal of ``folder``.

        Raises ValueError where the folder cannot be written, its file is damaged, or it holds a run with other settings
        (naming them).
        """
        self.folder = Path(folder).expanduser()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.folder / _file_name(), timeout=_TIMEOUT, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
            self.claim("settings", settings)
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"run_dir={folder}: cannot be written ({error}); give a folder that can") from error
        except sqlite3.DatabaseError as error:
            file = self.folder / _file_name()
            raise ValueError(
                f"run_dir={folder}: {file} is damaged ({error}); restore it, or give another folder"
            ) from error

    def claim(self, name: str, value: dict[str, Any]) -> None:
        """State a fact of this run; raises ValueError if the folder's earlier runs stated another."""
        text = json.dumps(value, sort_keys=True, default=str)
        self._db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", (name, text))
        held = json.loads(self._db.execute("SELECT value FROM run WHERE name = ?", (name,)).fetchone()[0])
        if differences := _differences(held, json.loads(text)):
            shown = "; ".join(f"{key} was {old!r} and is {new!r}" for key, old, new in differences)
            raise ValueError(
                f"run_dir={self.folder}: belongs to a run of another configuration ({shown}); give another folder"
            )

    def get(self, keys: Iterable[str]) -> dict[str, Record]:
        """The finished records among ``keys``."""
        found = {}
        for key in keys:
            for db in self._readers():
                if row := db.execute("SELECT record FROM records WHERE key = ?", (key,)).fetchone():
                    found[key] = _record(row[0])
                    break
        return found

    def put(self, key: str, record: Record) -> None:
        """Commit one finished record."""
        # ASCII JSON writes a lone surrogate as an escape, where SQLite would refuse it as text
        text = json.dumps(asdict(record))
        self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (key, record.task, text))

    def ask(self, launch: str, samples: Iterable[tuple[str, int]]) -> None:
        """Note that a launch asks for these keys, each of a document id of its data set."""
        rows = [(launch, key, doc_id) for key, doc_id in samples]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def asked(self, launch: str) -> list[Record]:
        """The finished records that any process of a launch asked for, by task, document and repeat."""
        wanted: set[tuple[str, int]] = set()
        texts: dict[str, str] = {}
        for db in self._readers():
            wanted.update(db.execute("SELECT key, doc_id FROM asked WHERE launch = ?", (launch,)))
            texts.update(db.execute("SELECT key, record FROM records"))
        found = [replace(_record(texts[key]), doc_id=doc_id) for key, doc_id in wanted if key in texts]
        return sorted(found, key=lambda record: (record.task, record.doc_id, record.repeat))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _readers(self) -> Iterable[sqlite3.Connection]:
        yield self._db
        for path in sorted(self.folder.glob("journal*.sqlite")):
            if path.name != _file_name():
                other = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_TIMEOUT)
                try:
                    yield other
                finally:
                    other.close()


def key_of(*parts: object) -> str:
    """The key of a sample: SHA-256 over everything that changes its text, as JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _file_name() -> str:
    """One file per machine: SQLite's write-ahead log needs memory that machines do not share."""
    node = os.environ.get("GROUP_RANK", "0")
    return _FILE if node == "0" else f"journal-{node}.sqlite"


def _record(text: str) -> Record:
    names = {field.name for field in fields(Record)}
    return Record(**{name: _frozen(value) for name, value in json.loads(text).items() if name in names})


def _frozen(value: Any) -> Any:
    """JSON's lists as tuples, as a record has them."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _differences(held: Any, new: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(held, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted({*held, *new})
            for difference in _differences(held.get(key), new.get(key), f"{prefix}{key}.")
        ]
    return [] if held == new else [(prefix.rstrip("."), held, new)]
