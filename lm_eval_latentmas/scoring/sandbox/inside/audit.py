"""Isolation by a Python audit hook, for systems that offer nothing better: it stops accidents, not native code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_REFUSED = """
os.fork os.forkpty os.exec os.posix_spawn os.spawn os.system os.kill os.killpg os.chmod os.chown
subprocess.Popen pty.spawn socket.__new__ socket.bind socket.connect socket.getaddrinfo socket.gethostbyname
ctypes.dlsym signal.pthread_kill resource.prlimit
"""
_READING = ("os.listdir", "os.scandir", "os.chdir")
_WRITING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.utime")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine(paths: Sequence[str], folder: str) -> None:
    """Let this interpreter, for good, read ``paths`` and do anything in ``folder``, start nothing and reach nobody."""
    os.chdir(folder)
    writable = (os.path.realpath(folder), os.devnull)
    readable = (*writable, *map(os.path.realpath, paths))
    refused = frozenset(_REFUSED.split())

    def within(path: object, allowed: Sequence[str]) -> bool:
        if path is None or isinstance(path, int):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return any(real == place or real.startswith(place.rstrip(os.sep) + os.sep) for place in allowed)

    def hook(event: str, arguments: tuple) -> None:
        if event in refused or (event == "ctypes.dlopen" and arguments[0] is not None):
            raise PermissionError(f"{event} is refused in the sandbox")
        if event == "open":
            allowed = writable if arguments[2] & _WRITE_FLAGS else readable
        elif event in _READING or event in _WRITING:
            allowed = writable if event in _WRITING else readable
        else:
            return
        places = arguments[:2] if event in ("os.rename", "os.link", "os.symlink") else arguments[:1]
        if not all(within(place, allowed) for place in places):
            raise PermissionError(f"{event} of {places} is refused in the sandbox")

    sys.addaudithook(hook)
