"""Temporary folders: gone with their process, whatever ends it, and with no other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lm_eval_latentmas.scoring.sandbox import Call, Sandbox, pool
from lm_eval_latentmas.temporary import TemporaryFolder

PROGRAM = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from lm_eval_latentmas.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "sandbox-x").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def other(tmp_path: Path):
    """Another process, and its folder."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], **streams) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_what_a_killed_process_left_goes_when_the_next_one_starts(other) -> None:
    process, left = other
    living = TemporaryFolder()
    assert left.is_dir()
    process.kill()
    process.wait()
    assert left.is_dir()
    TemporaryFolder()
    assert not left.exists()
    assert living.path.is_dir()


def test_a_process_that_ends_takes_its_folder_along(other) -> None:
    process, folder = other
    process.communicate("", timeout=60)
    assert process.returncode == 0
    assert not folder.exists()


def test_a_folder_can_be_closed_and_folders_of_others_stay(tmp_path: Path) -> None:
    stranger = tmp_path / "lm-eval-latentmas-notes"
    stranger.mkdir()
    folder = TemporaryFolder()
    folder.close()
    assert [path.name for path in tmp_path.iterdir()] == [stranger.name]


def test_a_process_of_another_number_does_not_take_the_folder_of_the_one_it_comes_from() -> None:
    pool._home.cache_clear()
    path = pool._home(1).path
    assert pool._home(2).path != path
    assert path.is_dir()
    pool._home.cache_clear()


def test_programs_get_folders_inside_it(tmp_path: Path) -> None:
    pool._home.cache_clear()
    assert Sandbox().run(Call("def f():\n    return 1\n", "f", [[]])).outputs == [1]
    (home,) = tmp_path.iterdir()
    assert [path.name for path in home.iterdir()] == ["lock"]
    pool._home.cache_clear()
