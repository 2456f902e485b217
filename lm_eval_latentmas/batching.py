"""How many rows fit: ``batch_size=auto`` from free memory and what one sample can come to hold."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

logger = logging.getLogger(__name__)

_SHARE = 0.5  # of free memory; the rest is for activations, logits and copies at the hand-off


#: Where Linux says how much memory a container may take, and has taken: control groups of version 2 and 1.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes(device: torch.device) -> int:
    """Memory that could be taken on a device now; on a CPU without pushing anything out, within a container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    limits = [_read(limit) - _read(taken) for limit, taken in _CGROUPS if _read(limit) is not None]
    return max(0, min([psutil.virtual_memory().available, *limits]))


def _read(path: str) -> int | None:
    """The number in a file of the kernel's; None where there is no such file, or no limit in it."""
    try:
        return int(Path(path).read_text("ascii"))
    except (OSError, ValueError):
        return None


def affordable_rows(
    adapter: Any, plans: Sequence[Any], latent_steps: int, *, most: int, devices: Iterable[torch.device] = ()
) -> int:
    """Rows that memory holds, from 1 to ``most``: each may hold all agents' histories, and a waiting relay beside.

    devices: others that a batch comes to; the one with the least room decides.
    """
    longest = max(
        sum(map(len, plan.prompts)) + latent_steps * (len(plan.prompts) - 1) + plan.generation.max_gen_toks
        for plan in plans
    )
    per_row = 2 * longest * adapter.bytes_per_state
    free = min(map(free_bytes, {adapter.device, *devices}))
    rows = max(1, min(most, len(plans), int(_SHARE * free / per_row)))
    logger.info(
        "batch_size=auto: %d rows (%.2f GiB free, at most %d states and %.3f GiB a row)",
        rows,
        free / 2**30,
        longest,
        per_row / 2**30,
    )
    return rows


def affordable_windows(adapter: Any, longest: int, *, most: int) -> int:
    """Rows of ``longest`` tokens that the model can score alone, from 1 to ``most``: their logits are what counts."""
    per_row = longest * (adapter.bytes_per_state + 4 * 4 * adapter.head.weight.shape[0])  # logits, and three copies
    return max(1, min(most, int(_SHARE * free_bytes(adapter.device) / per_row)))
