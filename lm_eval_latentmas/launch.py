"""What the processes of one launch share: a name, and a folder for what they finish."""

from __future__ import annotations

import os
import tempfile
import uuid
from typing import Any

import torch.distributed as dist


def processes() -> int:
    """Processes of the launch, known before they meet."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Launch:
    """One start of the program, over one or several processes.

    id: the same in all of them, new every time.
    """

    def __init__(self, world_size: int) -> None:
        self._shared = world_size > 1 and dist.is_available() and dist.is_initialized()
        self.id = self._agreed(uuid.uuid4().hex)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def folder(self, run_dir: str | None) -> str:
        """The run directory, or a temporary one that goes when the first process ends."""
        if run_dir is not None:
            return run_dir
        name = None
        if not self._shared or dist.get_rank() == 0:
            self._temporary = tempfile.TemporaryDirectory(prefix="lm-eval-latentmas-", ignore_cleanup_errors=True)
            name = self._temporary.name
        return self._agreed(name)

    def _agreed(self, value: Any) -> Any:
        """The first process's value, in every process."""
        if not self._shared:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]
