"""A system-call filter by libseccomp: no new process, no socket, no signal to others, no way to more privilege."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _EQUAL, _MASKED_EQUAL = 1, 4, 7
_CLONE_THREAD = 0x00010000
_PR_SET_PDEATHSIG = 1

_REFUSED = """
fork vfork execve execveat setsid setpgid
socket connect bind listen
rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal
ptrace process_vm_readv process_vm_writev kcmp
unshare setns mount umount2 move_mount open_tree fsopen fsconfig fsmount mount_setattr pivot_root chroot
bpf perf_event_open userfaultfd io_uring_setup keyctl add_key request_key
shmget msgget semget mq_open
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr
"""


def prepare() -> Callable[[], None]:
    """A function that refuses these system calls to its process and threads, for good; they fail with EPERM.

    Here OSError is raised where there is no libseccomp, and there where the kernel takes no filter.
    """
    library = _library()

    def confine() -> None:
        context = library.seccomp_init(_ALLOW)
        for name, error, when in _rules():
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == -1:  # newer than the library
                continue
            condition = None if when is None else struct.pack("=IiQQ", 0, *when)
            _check(library.seccomp_rule_add_array(context, _ERRNO | error, number, condition is not None, condition))
        _check(library.seccomp_load(context))

    return confine


def _rules() -> Iterator[tuple[str, int, tuple[int, int, int] | None]]:
    """Call, error, and the condition on its first argument: operator and two operands."""
    yield from ((name, errno.EPERM, None) for name in _REFUSED.split())
    yield "clone", errno.EPERM, (_MASKED_EQUAL, _CLONE_THREAD, 0)
    yield "clone3", errno.ENOSYS, None  # its flags cannot be seen; C libraries then take clone
    yield from ((name, errno.EPERM, (_NOT_EQUAL, os.getpid(), 0)) for name in ("kill", "tkill", "tgkill"))
    yield "prlimit64", errno.EPERM, (_NOT_EQUAL, 0, 0)
    yield "prctl", errno.EPERM, (_EQUAL, _PR_SET_PDEATHSIG, 0)


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.seccomp_rule_add_array.argtypes = [pointer, ctypes.c_uint32, number, ctypes.c_uint, ctypes.c_char_p]
    library.seccomp_load.argtypes = [pointer]
    return library


def _check(status: int) -> None:
    if status < 0:
        raise OSError(-status, f"seccomp: {os.strerror(-status)}")
