"""What is finished, kept durably: one SQLite file per run directory and machine, one row per answered sample.

A row is committed as soon as its text is finished, under a key of everything that changes the text; a run that is
killed and started again computes nothing twice, with any batch size and number of processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_latentmas.machine_name import machine_name
from lm_eval_latentmas.records import Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (launch TEXT NOT NULL, key TEXT NOT NULL, doc_id INTEGER NOT NULL,
    PRIMARY KEY (launch, key, doc_id));
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, task TEXT NOT NULL, record TEXT NOT NULL);
"""
_IS_WHOLE = "SELECT 1 FROM sqlite_master WHERE name = 'records'"
_TIMEOUT = 120.0  # seconds that a process waits for another one's commit
_COMMIT = 5.0  # the same where locks of another machine cannot be seen


class Journal:
    """The finished samples of one configuration in one folder, shared by any number of processes.

    Each machine writes a file of its own, and reads those of the others: locks between machines are not to be trusted.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        """Open or make the journal of ``folder``.

        Raises ValueError where the folder cannot be written, its file is damaged, or it holds a run with other settings
        (naming them). Every method raises it too, where a file turns out to be damaged or full later.
        """
        self.folder = Path(folder).expanduser()
        self._path = self.folder / _file_name()
        with self._clear(self._path):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._path, timeout=_TIMEOUT, isolation_level=None)
            self._db.executescript(_SCHEMA)
            # the header says little about the pages behind it
            if (state := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(" ".join(state.split()))
        self.claim("settings", settings)

    def claim(self, name: str, value: dict[str, Any]) -> None:
        """State a fact of this run; raises ValueError if the folder's earlier runs stated another."""
        text = json.dumps(value, sort_keys=True, default=str)
        self._agree(name, text)
        with self._clear(self._path):
            self._db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", (name, text))
        # another process may have stated it first
        self._agree(name, text)

    def get(self, keys: Iterable[str]) -> dict[str, Record]:
        """The finished records among ``keys``."""
        wanted, found = set(keys), {}

        def look(db: sqlite3.Connection) -> None:
            for key in wanted - found.keys():
                if row := db.execute("SELECT record FROM records WHERE key = ?", (key,)).fetchone():
                    found[key] = Record.from_json(row[0])

        self._in_each_file(look)
        return found

    def put(self, key: str, record: Record) -> None:
        """Commit one finished record."""
        text = record.to_json()
        with self._clear(self._path):
            self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (key, record.task, text))

    def ask(self, launch: str, samples: Iterable[tuple[str, int]]) -> None:
        """Note that a launch asks for these keys, each of a document id of its data set."""
        rows = [(launch, key, doc_id) for key, doc_id in samples]
        with self._clear(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")

    def asked(self, launch: str) -> list[Record]:
        """The finished records that any process of a launch asked for, by task, document and repeat."""
        wanted: set[tuple[str, int]] = set()
        self._in_each_file(
            lambda db: wanted.update(db.execute("SELECT key, doc_id FROM asked WHERE launch = ?", (launch,)))
        )
        records = self.get(key for key, _ in wanted)
        found = [replace(records[key], doc_id=doc_id) for key, doc_id in wanted if key in records]
        return sorted(found, key=lambda record: (record.task, record.doc_id, record.repeat))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _agree(self, name: str, text: str) -> None:
        def compare(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT value FROM run WHERE name = ?", (name,)).fetchone()
            if row and (differing := differences(json.loads(row[0]), json.loads(text))):
                shown = "; ".join(f"{key} was {old!r} and is {new!r}" for key, old, new in differing)
                raise ValueError(
                    f"run_dir={self.folder}: belongs to a run of another configuration ({shown}); give another folder"
                )

        self._in_each_file(compare)

    def _in_each_file(self, read: Callable[[sqlite3.Connection], None]) -> None:
        """Read in the journal of this machine, then in those of others."""
        with self._clear(self._path):
            read(self._db)
        for path in sorted(self.folder.glob("journal*.sqlite")):
            if path != self._path:
                with self._clear(path):
                    _read_elsewhere(path, read)

    @contextmanager
    def _clear(self, path: Path) -> Iterator[None]:
        """Around all that touches a file: what SQLite says of it as one line that says what to do."""
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(
                f"run_dir={self.folder}: {path.name} cannot be read or written ({error}); give a folder that can"
            ) from error
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            raise ValueError(
                f"run_dir={self.folder}: {path} is damaged ({error}); restore it, or give another folder"
            ) from error


def _read_elsewhere(path: Path, read: Callable[[sqlite3.Connection], None]) -> None:
    """Read another machine's file without writing to it.

    A commit under way there cannot be read, and is waited for; one that its writer never ended is rolled back.
    """
    until = time.monotonic() + _COMMIT
    while True:
        late = time.monotonic() > until
        address = f"{path.absolute().as_uri()}?mode={'rw' if late else 'ro'}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_TIMEOUT)) as other:
                if other.execute(_IS_WHOLE).fetchone():  # another machine may be making it just now
                    read(other)
            return
        except sqlite3.OperationalError:
            if late:
                raise
            time.sleep(_COMMIT / 20)


def key_of(*parts: object) -> str:
    """The key of a sample: SHA-256 over everything that changes its text, as JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _file_name() -> str:
    """One file per machine, also where a launcher's number is all that tells two of them apart."""
    return "-".join(filter(None, ("journal", machine_name(), os.environ.get("GROUP_RANK", "").lstrip("0")))) + ".sqlite"


def differences(held: Any, new: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """What differs between two values of plain JSON: per place its dotted name, what was held, and what is new."""
    if isinstance(held, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted({*held, *new})
            for difference in differences(held.get(key), new.get(key), f"{prefix}{key}.")
        ]
    return [] if held == new else [(prefix.rstrip("."), held, new)]
