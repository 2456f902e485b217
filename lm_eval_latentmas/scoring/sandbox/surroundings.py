"""What a program finds around it: a scrubbed environment, and the folders that the interpreter itself needs."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import PurePath

#: Settings without which some interpreters or NumPy builds do not start; paths and names of CPUs, no secrets.
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/nix/store", "/gnu/store")


def environment() -> dict[str, str]:
    """The environment variables of a program: nothing of the evaluation's own, and the same on every run."""
    fixed = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # the order of a set of strings is then the reference's order, too
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    return fixed | {name: os.environ[name] for name in _KEPT if name in os.environ}


def import_paths() -> list[str]:
    """The folders with installed packages that this interpreter uses; a program may import what they hold."""
    return [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]


def visible_paths() -> list[str]:
    """All that a program may read: interpreter, packages and system libraries; never the home folder as a whole."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    interpreter = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("stdlib"))
    wanted = {os.path.abspath(path) for path in (*_SYSTEM, *interpreter, *import_paths(), *libraries) if path}
    home = PurePath(os.path.expanduser("~"))
    private = {str(home), *map(str, home.parents)}
    return _outermost(path for path in wanted - private if os.path.exists(path))


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(paths):
        if not any(PurePath(path).is_relative_to(other) for other in kept):
            kept.append(path)
    return kept
