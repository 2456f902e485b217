"""Isolation by Linux namespaces: no network, no other processes, and a file system that holds the interpreter only."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence

from kernel import PR_SET_PDEATHSIG, mount, prctl, syscall, unshare

_NEW = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_DEVICES = ("/dev/null", "/dev/urandom")
# the one place inside that can be written to; by a name that no interpreter or package lies under
FOLDER = "/program"


def enter(root: str, paths: Sequence[str], file_bytes: int) -> int:
    """Move this process's children into namespaces of their own, with a file system laid out at ``root``.

    Returns the id of the process that holds them: when it ends, the kernel kills every process inside.
    Raises OSError where the system allows any of this not.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(sum(_NEW.values()))
    for name, line in (("setgroups", "deny"), ("uid_map", f"1000 {user} 1"), ("gid_map", f"1000 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    mount(None, b"/", None, _REC | _PRIVATE, None)
    _lay_out(root, paths, file_bytes)
    return _hold()


def confine(root: str) -> None:
    """Leave this process only what lies under ``root``; no open file may lead out of it."""
    os.chroot(root)
    os.chdir(FOLDER)


def _lay_out(root: str, paths: Sequence[str], file_bytes: int) -> None:
    _mount_memory(root, 1 << 20)
    os.makedirs(root + FOLDER)
    _mount_memory(root + FOLDER, file_bytes)
    for path in (*paths, *_DEVICES):
        inside = root + path
        if os.path.isdir(path):
            os.makedirs(inside, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            open(inside, "w").close()
        mount(path.encode(), inside.encode(), None, _BIND | _REC, None)
        if path not in _DEVICES:
            _make_read_only(inside)
    mount(None, root.encode(), None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV, None)


def _mount_memory(path: str, size: int) -> None:
    mount(b"tmpfs", path.encode(), b"tmpfs", _NOSUID | _NODEV, f"size={size},nr_inodes=1k,mode=755".encode())


def _make_read_only(path: str) -> None:
    attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)
    try:
        syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
    except OSError:  # before Linux 5.12; flags that the mount has must be named again
        kept = os.statvfs(path).f_flag & (_NOSUID | _NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
        mount(None, path.encode(), None, _REMOUNT | _BIND | _RDONLY | kept, None)


def _hold() -> int:
    """Process 1 of the new namespace: waits, and dies with this process."""
    holder = os.fork()
    if holder:
        return holder
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # lets the kernel bury what the program leaves
        os.closerange(0, 256)
        while True:
            signal.pause()
    finally:
        os._exit(1)
