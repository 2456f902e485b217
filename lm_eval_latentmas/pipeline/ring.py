"""The processes of a pipeline, joined in a ring: what they agree on, the watch, and the channel between neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from lm_eval_latentmas.journal import differences
from lm_eval_latentmas.launch import leave_at_exit, store_of_first
from lm_eval_latentmas.pipeline.channel import Channel
from lm_eval_latentmas.pipeline.watch import Watch


class Ring:
    """This process's place among the others.

    names: what each process is called in errors. timeout: seconds without a sign of life after which one is lost.
    last: the ring that this process left before, whose connections serve again.
    Joins when made: all processes of the launch must do so, after ``torch.distributed`` has been initialised.
    """

    def __init__(
        self,
        names: Sequence[str],
        timeout: float,
        *,
        pace: Callable[[int], object] | None = None,
        last: Ring | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "pipeline: the processes do not see each other; start them with torchrun or accelerate launch, and on "
                "CPUs set ACCELERATE_USE_CPU=true"
            )
        self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        waits = timedelta(seconds=max(timeout, 60))
        self._group = last._group if last is not None else _own_group(waits)
        self.watch = Watch(store_of_first(self._group, waits), self.rank, names, timeout)
        self.watch.start()
        # plans are small and all there from the beginning; a bound on them could close a ring of full queues
        self.channel = Channel(self._group, self.watch, room=0 if self.rank == 0 else 1, pace=pace)

    def agree(self, facts: dict[str, Any]) -> None:
        """Compare what texts depend on, and who has which agents.

        Raises ValueError, in every process, where one differs from process 0.
        """
        self.watch.tell(f"facts/{self.rank}", json.dumps({"agents": self.watch.names} | facts, default=str))
        told = [json.loads(text) for text in self.watch.wait([f"facts/{rank}" for rank in range(self.processes)])]
        for name, other in zip(self.watch.names, told, strict=True):
            if found := differences(told[0], other):
                shown = "; ".join(f"{key} is {new!r} and not {old!r}" for key, old, new in found)
                raise ValueError(f"pipeline: {name} differs from process 0: {shown}; start all of them alike")

    def end(self) -> None:
        """Process 0: let the others end, each when the one before has."""
        if not self.watch.failure:
            self.channel.send({"kind": "end"})
            self.channel.finish()
        self.watch.close()

    def leave(self) -> None:
        """Others: pass the end on, and end."""
        self.channel.send({"kind": "end"})
        self.channel.finish()
        self.watch.close()


def _own_group(waits: timedelta) -> dist.ProcessGroup:
    """Of gloo, because messages are host memory, and not the launch's, whatever that one uses."""
    group = dist.new_group(backend="gloo", timeout=waits)
    leave_at_exit()
    leave_at_exit(group)
    return group
