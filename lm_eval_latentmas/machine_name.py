"""What this machine is called, so that no other is: files and locks of one are shared by its processes alone."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # one a running kernel
_MOUNTS = Path("/proc/self/ns/mnt")  # one a container


def machine_name() -> str:
    """The host's name and a few digits that tell machines and containers of one name apart.

    Containers of one host count as machines of their own: they may see other files under the same path. After a restart
    the digits are others.
    """
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    return f"{host}-{hashlib.sha256(_distinction().encode()).hexdigest()[:8]}"


def _distinction() -> str:
    try:
        return f"{_BOOT.read_text()} {os.readlink(_MOUNTS)}"
    except OSError:  # no Linux; the address of a network card is left
        return str(uuid.getnode())
