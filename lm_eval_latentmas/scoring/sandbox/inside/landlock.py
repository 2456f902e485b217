"""Isolation by Linux Landlock, which needs no privilege: no file outside given folders can be read or written."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from kernel import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 0b11
_SIGNALS_AND_SOCKETS = 0b11
#: Kinds of file access by version of the interface: 13 at first, then refer, truncate, and device control.
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


def version() -> int:
    """The kernel's version of the interface; raises OSError where there is none or it is switched off."""
    return syscall(_CREATE_RULESET, None, 0, 1)


def confine(paths: Sequence[str], folder: str) -> None:
    """Let this process, for good, read ``paths`` and do anything in ``folder``, and nothing elsewhere.

    Newer kernels also keep it from TCP connections and from signalling processes outside.
    """
    known = version()
    files = _FILES[min(known, max(_FILES))]
    handled = (ctypes.c_uint64 * 3)(files, _TCP if known >= 4 else 0, _SIGNALS_AND_SOCKETS if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = syscall(_CREATE_RULESET, handled, size, 0)
    for path in paths:
        _allow(ruleset, path, _READ if os.path.isdir(path) else _EXECUTE | _READ_FILE)
    _allow(ruleset, "/dev/null", _READ_FILE | _WRITE_FILE)
    _allow(ruleset, "/dev/urandom", _READ_FILE)
    _allow(ruleset, folder, files)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    os.chdir(folder)


def _allow(ruleset: int, path: str, access: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, folder), 0)
    finally:
        os.close(folder)
