"""Linux calls that Python does not offer: `unshare`, `mount`, `prctl`, `capset`, and raw system calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def checked(name: str) -> Callable[..., int]:
    """The C library's function ``name``; it raises OSError where C returns -1, and so it does where there is none."""

    def call(*arguments: object) -> int:
        function = getattr(_libc, name, None)
        if function is None:
            raise OSError(f"{name}: not in this system's C library")
        ctypes.set_errno(0)
        result = function(*arguments)
        if result == -1:
            paths = ", ".join(argument.decode() for argument in arguments if isinstance(argument, bytes))
            raise OSError(ctypes.get_errno(), f"{name}({paths}): {os.strerror(ctypes.get_errno())}")
        return result

    return call


prctl, mount, unshare, syscall = map(checked, ("prctl", "mount", "unshare", "syscall"))


def drop_capabilities() -> None:
    """Give up every privilege of this process, for good."""
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    version_3, this_thread = 0x20080522, 0
    checked("capset")((ctypes.c_uint32 * 2)(version_3, this_thread), (ctypes.c_uint32 * 6)())
