"""Where scoring keeps what it need not work out again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "LATENTMAS_CACHE_DIR"


def cache_folder() -> Path:
    """``LATENTMAS_CACHE_DIR``, else this package's part of the user's cache folder."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "lm-eval-latentmas"
