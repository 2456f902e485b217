"""Temporary folders that go with their process: as it ends, or, where it was killed, when the next one makes one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders of killed processes stay there
    fcntl = None

PREFIX = "lm-eval-latentmas-"
_LOCK = "lock"  # held as long as the process lives, whatever ends it


class TemporaryFolder:
    """A folder at ``path`` that goes with this object or its process; making one removes those that the dead left."""

    def __init__(self) -> None:
        _remove_leftovers()
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        # locked before it has its name, so that nobody ever sees it free
        self._lock = open(self.path / f"{_LOCK}.new", "w")  # noqa: SIM115 - stays open
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self._lock.name, self.path / _LOCK)

    def close(self) -> None:
        """Remove it now."""
        self._lock.close()
        self._folder.cleanup()


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if fcntl is not None and _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether a folder is ours, and no living process holds it."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return False
        with open(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
