"""The chain of one process of a pipeline: it runs its own agents, and sends what they hand on to the next process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.pipeline.channel import Message
from lm_eval_latentmas.pipeline.letters import Departure, letter, opened
from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.planning import Plan
from lm_eval_latentmas.underway import Handed, Underway

_AHEAD = 4  # batches that one process and its way to the next can hold


class PipelineChain(Chain):
    """A chain whose thinking agents sit in several processes: process 0 asks and answers, the others `serve`.

    shares: per process, the places of its agents.
    """

    def __init__(self, *arguments: Any, ring: Ring, shares: Sequence[range], **named: Any) -> None:
        self._ring, self._share, self._number = ring, shares[ring.rank], 0
        super().__init__(*arguments, **named)
        for share in shares[1:]:
            self.links[share[-1]] = Departure(self.fingerprint)

    def working(self) -> AbstractContextManager[None]:
        """See `Watch.working`."""
        return self._ring.watch.working()

    def serve(self) -> None:
        """Let this process's agents have their turn in every batch that comes, until the end."""
        with self.working():
            while (message := self._ring.channel.receive()).header.get("kind") != "end":
                number, batch = self._opened(message)
                self.advance(batch, self._share.stop)
                if self.diagnostics is not None:  # apart, because the way of a batch is timed
                    noted = self.diagnostics.taken([plan.key for plan in batch.plans])
                    self._ring.channel.send({"kind": "notes", "rows": noted})
                self._ring.channel.send(*letter(number, batch))
            self._ring.leave()

    def thoughts(self, plans: Sequence[Plan], batch_size: int) -> Iterator[list[Handed]]:
        """Ask for batches ahead, and take each as it comes; the processes work on several at a time."""
        batches = [plans[start : start + batch_size] for start in range(0, len(plans), batch_size)]
        first, ahead = self._number, _AHEAD * self._ring.processes
        self._number += len(batches)
        for place, asked in enumerate(batches):
            # all that may be underway at the first; later one for every batch that is taken
            for later in range(place + ahead - 1 if place else 0, min(place + ahead, len(batches))):
                self._ring.channel.send(*letter(first + later, self.underway(batches[later])))
            yield self._finished(first + place, asked)

    @property
    def has_thought(self) -> bool:
        """Whether a batch has come."""
        return self._ring.channel.has_message

    def _finished(self, number: int, plans: Sequence[Plan]) -> list[Handed]:
        """What the thinking agents leave of a batch, which is not held any longer than that."""
        batch = self._taken(number)
        batch.plans = plans  # the same, and known to the caller as these objects
        self.advance(batch, len(self.prompts.thinkers))
        return self.handed(batch)

    def _taken(self, wanted: int) -> Underway:
        """The batch of a number; those before it are left of an evaluation that nobody finished."""
        while True:
            number, batch = self._opened(self._ring.channel.receive())
            if number == wanted:
                return batch

    def _opened(self, message: Message) -> tuple[int, Underway]:
        devices = self.seats[self._share.start].adapter.layer_devices
        if self.diagnostics is not None and message.header.get("kind") == "notes":
            self.diagnostics.take_in(message.header["rows"])
            message = self._ring.channel.receive()
        return opened(message, self._ring.channel.sender, self.fingerprint, devices)

    def _runner(self, adapter: ModelAdapter) -> ModelAdapter:
        """The adapter, every pass of which is a sign of life."""
        other = copy.copy(super()._runner(adapter))
        other.forward = _noted(other.forward, self._ring.watch.tick)
        return other


def _noted(forward: Callable[..., Any], tick: Callable[[], None]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        states = forward(*arguments)
        tick()
        return states

    return run
