"""The pipelines of one launch, one after the other: process 0 makes their models, and the others make the same."""

from __future__ import annotations

import gc
import pickle
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch.distributed as dist

from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.pipeline.watch import PipelineError

_LEAVING = 10.0  # seconds that process 0 waits at its end until the others know of it
_POLL = 0.05
_NEXT, _GONE = "next", "gone"


@cache
def launched() -> Launched:
    """Those of this process."""
    return Launched()


def check_no_pipeline() -> None:
    """Refuse a model without a pipeline where the other processes serve those of one, and would never join."""
    if launched().ring is not None:
        raise ValueError(
            "pipeline=False: the other processes of this launch serve the pipeline of an earlier model; give "
            "pipeline=true here too, or start another launch"
        )


class Launched:
    """What this process has joined so far. ring: that of the last model, None before the first."""

    def __init__(self) -> None:
        self.ring: Ring | None = None
        self._first: dict[str, Any] = {}

    def join(self, names: Sequence[str], timeout: float, arguments: Mapping[str, Any]) -> Ring:
        """The ring of one more model; all processes make one.

        arguments: the model's; what process 0 changed of those of the first model, the others take over, so that what
        each of them was given for itself (a device, a folder) stays its own.
        Raises ValueError in process 0 where the others cannot come.
        """
        last = self.ring
        if last is not None and last.rank == 0:
            self._check_free(last)
            last.watch.tell(_NEXT, pickle.dumps(_changes(self._first, arguments)))
        self.ring = Ring(names, timeout, last=last)
        if last is None:
            self._first = dict(arguments)
            if self.ring.rank == 0:
                # made after the finalizers of the groups and before those of models, so it runs between them
                weakref.finalize(dist, self._dismiss)
        return self.ring

    def next_arguments(self) -> dict[str, Any] | None:
        """In the others, when a model has ended: the arguments of the next one; None when there is none to come."""
        watch = self.ring.watch
        try:
            while not watch.has([_NEXT]):
                time.sleep(_POLL)
            if not (changes := watch.told(_NEXT)):
                watch.tell(f"{_GONE}/{self.ring.rank}", "")
                return None
        except RuntimeError as error:
            raise PipelineError(f"pipeline: {watch.names[0]} is gone, and made no other model") from error
        changed, without = pickle.loads(changes)
        return {name: value for name, value in self._first.items() if name not in without} | changed

    @staticmethod
    def _check_free(last: Ring) -> None:
        if not last.watch.failure and not last.watch.closed:
            gc.collect()  # the model may be gone but for a cycle
        if last.watch.failure:
            raise ValueError(
                f"pipeline: the other processes ended with an earlier model of this launch ({last.watch.failure}); "
                "start the launch again"
            )
        if not last.watch.closed:
            raise ValueError(
                "pipeline: the other processes still serve an earlier model of this launch; let go of it first (del), "
                "or start a launch for each"
            )

    def _dismiss(self) -> None:
        """At the end of process 0: no model comes any more."""
        watch, until = self.ring.watch, time.monotonic() + _LEAVING
        if watch.closed and not watch.failure:
            watch.tell(_NEXT, b"")
            gone = [f"{_GONE}/{rank}" for rank in range(1, self.ring.processes)]
            while not watch.has(gone) and time.monotonic() < until:
                time.sleep(_POLL)


def _changes(first: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """What is to be put over some arguments to make others, and the names that these lack."""
    changed = {name: value for name, value in other.items() if name not in first or first[name] != value}
    return changed, set(first) - set(other)
