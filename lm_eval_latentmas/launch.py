"""What the processes of one launch share: a name, and a folder for what they finish."""

from __future__ import annotations

import os
import sys
import uuid
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from lm_eval_latentmas.machine_name import machine_name
from lm_eval_latentmas.temporary import TemporaryFolder


def processes() -> int:
    """Processes of the launch, known before they meet."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_together(relay: str, count: int) -> None:
    """Refuse, in several processes that share out the documents, a control that needs all of them."""
    if relay == "shuffled" and count > 1:
        raise ValueError(
            f"relay=shuffled: gives a document another one's relay, and each of {count} processes knows its own "
            "documents alone; start one process, or share the agents out with pipeline=true"
        )


def leave_at_exit(group: dist.ProcessGroup | None = None) -> None:
    """Let a gloo group, by default that of all processes, end before the interpreter does.

    A thread of gloo may still hold the tensors of the last exchange; freeing them without an interpreter, it aborts the
    process, although the work is done. Nccl's groups are left alone: destroying them can wait for ever.
    """
    if dist.get_backend(group) == "gloo":
        # finalizers run in reverse order: those made later, of what uses the group, before this one
        weakref.finalize(dist, _leave, group)


def _leave(group: dist.ProcessGroup | None) -> None:
    # after an error an exchange may never end, and the exit status is that of the error anyway
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        with suppress(ValueError):  # ended by whoever made it
            dist.destroy_process_group(group)


def store_of_first(group: dist.ProcessGroup | None = None, timeout: timedelta = timedelta(minutes=5)) -> dist.TCPStore:
    """A store that a group's first process keeps, on a free port; all processes of the group must call this."""
    host, first = os.environ.get("MASTER_ADDR", "localhost"), dist.get_rank(group) == 0
    mine = dist.TCPStore(host, 0, is_master=True, timeout=timeout, wait_for_workers=False) if first else None
    ports = [mine.port if mine else None]
    dist.broadcast_object_list(ports, src=0, group=group)
    return mine or dist.TCPStore(host, ports[0], is_master=False, timeout=timeout)


class Launch:
    """One start of the program, over one or several processes.

    id: the same in all of them, new every time. machines: by process, the name of the machine that it runs on.
    """

    def __init__(self, world_size: int) -> None:
        self._shared = world_size > 1 and dist.is_available() and dist.is_initialized()
        if self._shared:
            leave_at_exit()
        self.id = self.gathered(uuid.uuid4().hex)[0]
        self.machines = self.gathered(machine_name())
        self._temporary: TemporaryFolder | None = None
        self._store = store_of_first() if self.spread else None
        self._heard = dict.fromkeys(range(len(self.machines)), 0)

    @property
    def spread(self) -> bool:
        """Whether processes run on several machines, whose folders may be their own."""
        return len(set(self.machines)) > 1

    def folder(self, run_dir: str | None) -> str:
        """The run directory, or a temporary one per machine that goes when the machine's first process ends."""
        if run_dir is not None:
            return run_dir
        rank = dist.get_rank() if self._shared else 0
        first = self.machines.index(self.machines[rank])
        if rank == first:
            self._temporary = TemporaryFolder()
        return self.gathered(str(self._temporary.path) if self._temporary else None)[first]

    def tell_first(self, texts: Iterable[str]) -> None:
        """Leave texts for the first process, which need not wait for them; nothing where all share one machine."""
        if self._store is not None and (rank := dist.get_rank()):
            for text in texts:
                self._store.set(f"{rank}/{self._store.add(f'{rank}', 1)}", text)

    def told(self) -> Iterator[str]:
        """In the first process, the texts that others have left since it last looked."""
        if self._store is not None and dist.get_rank() == 0:
            for rank in range(1, dist.get_world_size()):
                left = self._store.add(f"{rank}", 0)
                yield from (self._store.get(f"{rank}/{n}").decode() for n in range(self._heard[rank] + 1, left + 1))
                self._heard[rank] = left

    def gathered(self, value: Any) -> list[Any]:
        """The values of all processes, in every process; each of them must call it."""
        if not self._shared:
            return [value]
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values
