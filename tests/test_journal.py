"""The journal of a run directory: one file a machine, one configuration a folder, and damage told in one line."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from lm_eval_latentmas import machine_name
from lm_eval_latentmas.journal import Journal
from lm_eval_latentmas.records import Record

SETTINGS = {"kv_budget": 8}
KEYS = [f"key{number}" for number in range(200)]


def record(number: int) -> Record:
    return Record("demo", number, 0, f"text {number} " + "x" * 400)


def filled(folder: Path) -> Path:
    """The file of a journal that holds a record for every key."""
    journal = Journal(folder, SETTINGS)
    for number, key in enumerate(KEYS):
        journal.put(key, record(number))
    journal.ask("launch", [(key, number) for number, key in enumerate(KEYS)])
    journal.close()
    (path,) = folder.glob("journal*.sqlite")
    return path


def overwrite(path: Path, start: int, end: int) -> None:
    """Rubbish from one page to another."""
    with path.open("r+b") as file:
        file.seek(start * 4096)
        file.write(b"\xa7" * (end - start) * 4096)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 2), (6, 7), (8, 14)])
def test_damage_at_any_depth_is_one_clear_error_when_the_folder_is_opened(tmp_path: Path, start: int, end: int) -> None:
    path = filled(tmp_path)
    assert path.stat().st_size > 14 * 4096
    overwrite(path, start, end)
    with pytest.raises(ValueError, match=r"is damaged \(.*restore it, or give another folder") as error:
        Journal(tmp_path, SETTINGS)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_damage_that_comes_later_is_told_too(tmp_path: Path) -> None:
    path = filled(tmp_path)
    journal = Journal(tmp_path, SETTINGS)
    overwrite(path, 1, path.stat().st_size // 4096)
    with sqlite3.connect(path) as db:  # the pages that the journal holds in memory are out of date
        db.execute("PRAGMA user_version = 7")
    for use in (
        lambda: journal.get(KEYS),
        lambda: journal.asked("launch"),
        lambda: journal.put("another", record(0)),
        lambda: journal.ask("other", [("another", 0)]),
        lambda: journal.claim("model", {}),
    ):
        with pytest.raises(ValueError, match="is damaged"):
            use()


def test_a_record_that_is_no_json_is_damage(tmp_path: Path) -> None:
    with sqlite3.connect(filled(tmp_path)) as db:
        db.execute("UPDATE records SET record = substr(record, 1, 40) WHERE key = 'key3'")
    with pytest.raises(ValueError, match="is damaged"):
        Journal(tmp_path, SETTINGS).get(["key3"])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Pretend to be another machine, by its name, its kernel, its container, and the number that the launcher gave."""

    def pretend(name: str = "same", boot: str = "1", mounts: str = "2", number: str | None = None) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: name)
        monkeypatch.setattr(os, "readlink", lambda path: mounts)
        monkeypatch.setattr(machine_name, "_BOOT", SimpleNamespace(read_text=lambda: boot))
        monkeypatch.delenv("GROUP_RANK", raising=False)
        if number is not None:
            monkeypatch.setenv("GROUP_RANK", number)

    return pretend


@pytest.mark.parametrize(
    "others",
    [
        [{"name": "a"}, {"name": "b"}],
        [{"boot": "1"}, {"boot": "7"}],
        [{"mounts": "2"}, {"mounts": "3"}],
        [{"number": "0"}, {"number": "1"}],
    ],
)
def test_each_machine_writes_a_file_of_its_own_and_reads_all(tmp_path: Path, machine, others) -> None:
    journals = []
    for number, other in enumerate(others):
        machine(**other)
        journals.append(Journal(tmp_path, SETTINGS))
        journals[-1].put(KEYS[number], record(number))
        journals[-1].ask("launch", [(KEYS[number], number)])
    assert len(list(tmp_path.glob("journal*.sqlite"))) == 2
    for journal in journals:
        assert journal.get(KEYS) == {KEYS[0]: record(0), KEYS[1]: record(1)}
        assert journal.asked("launch") == [record(0), record(1)]
    # started again, as after a crash: in the same files or in a new one, with all that was finished
    for other in (others[0], {"boot": "of another start"}):
        machine(**other)
        assert Journal(tmp_path, SETTINGS).get(KEYS) == {KEYS[0]: record(0), KEYS[1]: record(1)}
    assert len(list(tmp_path.glob("journal*.sqlite"))) == 3


def test_the_processes_of_a_machine_call_it_the_same(monkeypatch) -> None:
    command = [sys.executable, "-c", "from lm_eval_latentmas.machine_name import machine_name; print(machine_name())"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == machine_name.machine_name()
    monkeypatch.setattr(machine_name, "_BOOT", Path("nowhere"))
    assert machine_name.machine_name() != told.stdout.strip()


def test_a_machine_of_another_configuration_is_refused_and_may_come_back_with_this_one(tmp_path: Path, machine) -> None:
    machine("a")
    Journal(tmp_path, SETTINGS)
    machine("b")
    with pytest.raises(ValueError, match=r"another configuration \(kv_budget was 8 and is 16"):
        Journal(tmp_path, {"kv_budget": 16})
    assert Journal(tmp_path, SETTINGS).get(KEYS) == {}


def test_a_file_that_another_machine_is_just_making_holds_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "journal-other.sqlite").touch()
    journal = Journal(tmp_path, SETTINGS)
    journal.put("a", record(0))
    assert journal.get(["a", "b"]) == {"a": record(0)}


def copied_amid_a_commit(folder: Path) -> Path:
    """Another machine's file as a reader finds it while a commit is half written, its rollback journal beside it."""
    (folder / "other").mkdir()
    source = filled(folder / "other")
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE records SET record = 'half written'")
        for name in (source, Path(f"{source}-journal")):
            shutil.copy(name, folder / name.name.replace(source.stem, "journal-other"))
        db.execute("ROLLBACK")
    return folder / "journal-other.sqlite"


def test_a_commit_that_another_machine_never_ended_is_rolled_back(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("lm_eval_latentmas.journal._COMMIT", 0.2)
    copied_amid_a_commit(tmp_path)
    assert Journal(tmp_path, SETTINGS).get(KEYS) == {key: record(number) for number, key in enumerate(KEYS)}


def test_a_commit_under_way_on_another_machine_is_waited_for_and_not_touched(tmp_path: Path) -> None:
    path = copied_amid_a_commit(tmp_path)
    journal, held = Path(f"{path}-journal"), path.read_bytes()
    whole = next((tmp_path / "other").glob("*.sqlite")).read_bytes()

    def end() -> None:
        assert path.read_bytes() == held  # nothing was rolled back meanwhile
        path.write_bytes(whole)
        journal.unlink()

    timer = threading.Timer(1.0, end)
    timer.start()
    assert len(Journal(tmp_path, SETTINGS).get(KEYS)) == len(KEYS)
    timer.join()
    assert not journal.exists()


def test_the_files_of_other_machines_need_not_be_writable(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "other").mkdir()
    shutil.move(filled(tmp_path / "other"), tmp_path / "journal-other.sqlite")
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **options: opened.append(str(path)) or connect(path, **options)
    )
    assert len(Journal(tmp_path, SETTINGS).get(KEYS)) == len(KEYS)
    elsewhere = [path for path in opened if "journal-other" in path]
    assert elsewhere
    assert all(path.endswith("?mode=ro") for path in elsewhere)


def _write(folder: Path, first: int) -> None:
    journal = Journal(folder, SETTINGS)
    for number in range(first, first + 20):
        journal.put(KEYS[number], record(number))
        journal.get(KEYS)


def test_processes_of_one_machine_share_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(tmp_path, first)) for first in (0, 20, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(Journal(tmp_path, SETTINGS).get(KEYS)) == 60
