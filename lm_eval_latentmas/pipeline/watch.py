"""Signs of life between the processes of a pipeline, and the first failure of any of them, known to all.

Every process counts in a store that process 0 keeps. One at work counts when a forward pass has ended or while it
waits for others, so that a long computation is no silence and a stuck one is; one at rest counts by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

_INTERVAL = 0.5  # seconds between two looks at the store
_SETTLING = 2.0  # seconds that a process which failed waits for the others to hear of it
_FAILED = "failed"
_HEARD, _LEFT = "heard", "left"


class PipelineError(RuntimeError):
    """Another process of the pipeline failed, left or fell silent; the message names it and says why."""


class Watch:
    """One process's part in the watch.

    store: shared by all, process 0's own. names: what to call every process in an error.
    timeout: seconds without a sign of life after which a process counts as lost.
    """

    def __init__(self, store: Any, rank: int, names: Sequence[str], timeout: float) -> None:
        self.rank, self.names, self.timeout = rank, list(names), timeout
        self.failure = ""
        self._raised = False
        self._store, self._closed = store, threading.Event()
        self._resting, self._ticks, self._counted, self._beat = True, 0, 0, 0
        self._others = [other for other in range(len(names)) if other != rank]
        self._states = [""] * len(names)
        self._changed = [time.monotonic()] * len(names)
        self._looked, self._asked = time.monotonic(), float("inf")
        self._thread = threading.Thread(target=self._watch, name="pipeline-watch", daemon=True)

    def start(self) -> None:
        """Begin to count; returns when all processes have."""
        self._store.set(self._key(self.rank), "0")
        self._store.compare_set(_FAILED, "", "")
        self._store.wait([self._key(other) for other in range(len(self.names))])
        self._looked = time.monotonic()
        self._changed = [self._looked] * len(self.names)
        self._thread.start()

    # -- for the process at work --------------------------------------------------------------------

    def tick(self) -> None:
        """Something was done, or is waited for. Raises PipelineError once any process has failed."""
        self._ticks += 1
        if not self.failure and time.monotonic() - self._asked > self.timeout:
            self.failure = f"{self.names[0]} keeps the watch, and gave no answer for {self.timeout:g} seconds"
        if self.failure:
            self._raised = True
            raise PipelineError(f"pipeline: {self.failure}")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around work: what goes wrong in it is told to all processes, and they to this one."""
        self._resting = False
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._resting = True

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Around what is no work of the chain but may fail: all processes are told."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Tell the others why this process ends, unless they know a reason; waits a moment until they have heard."""
        self.declare(self._reason(error))
        self._raised = True
        self._say(_HEARD)
        until = time.monotonic() + _SETTLING
        while time.monotonic() < until and not self._closed.is_set() and not self._all_heard():
            time.sleep(0.05)

    def lost(self, name: str, cause: BaseException) -> None:
        """Note that the connection to a process is gone: unless it gives a reason in a moment, that is the reason."""
        self._closed.wait(3 * _INTERVAL)
        if not self._closed.is_set():
            # gloo begins with a place in its source and ends with advice
            said = _told(cause).rpartition(".cc:")[2].partition("] ")[2] or _told(cause)
            self.declare(
                f"the connection to {name} is lost; it ended, or its machine is gone ({said.partition('. ')[0]})"
            )

    def _reason(self, error: BaseException) -> str:
        """What the others are told of an error here: what this process was told itself, or who failed and how."""
        if isinstance(error, PipelineError):
            return str(error).removeprefix("pipeline: ")
        return f"{self.names[self.rank]} failed: {_told(error)}"

    def broken(self, error: BaseException) -> None:
        """Note what went wrong beside the work, so that it ends."""
        self.declare(self._reason(error))

    def declare(self, reason: str) -> None:
        """Make a reason that of the run, unless there is one."""
        with suppress(RuntimeError):  # the store is gone with process 0: the others notice that too
            reason = self._store.compare_set(_FAILED, "", reason).decode()
        self.failure = self.failure or reason

    def wait(self, keys: Sequence[str]) -> list[str]:
        """The values of keys of the store, once they are there."""
        while not self.has(keys):
            self.tick()
            time.sleep(0.05)
        return [self.told(key).decode() for key in keys]

    def has(self, keys: Sequence[str]) -> bool:
        """Whether all of some keys are in the store."""
        return self._store.check(list(keys))

    def told(self, key: str) -> bytes:
        """The value of a key that the store has."""
        return self._store.get(key)

    def tell(self, key: str, value: str | bytes) -> None:
        """Put a value into the store."""
        self._store.set(key, value)

    @property
    def closed(self) -> bool:
        """Whether this process has left."""
        return self._closed.is_set()

    def close(self) -> None:
        """Leave in order."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(timeout=2 * _INTERVAL)
            self._say(_LEFT)

    # -- the watch ----------------------------------------------------------------------------------

    @staticmethod
    def _key(rank: int) -> str:
        return f"life/{rank}"

    def _watch(self) -> None:
        while not self._closed.wait(min(_INTERVAL, self.timeout / 4)):
            self._asked = time.monotonic()
            try:
                self._count()
                self._look()
            except RuntimeError as error:  # the store is gone
                if not self._closed.is_set():
                    self.failure = self.failure or f"{self.names[0]} is gone, and with it the watch ({_told(error)})"
                return
            self._asked = float("inf")

    def _count(self) -> None:
        if self._raised:
            self._store.set(self._key(self.rank), _HEARD)
        elif self._resting or self._ticks != self._counted:
            self._counted, self._beat = self._ticks, self._beat + 1
            self._store.set(self._key(self.rank), str(self._beat))

    def _look(self) -> None:
        states = [value.decode() for value in self._store.multi_get([_FAILED, *map(self._key, range(len(self.names)))])]
        before, now = self._looked, time.monotonic()
        self._looked = now
        self.failure = self.failure or states[0]
        if now - before > self.timeout / 2:  # it was this process that slept
            self._changed = [now] * len(self.names)
        for other in self._others:
            if states[other + 1] != self._states[other]:
                self._states[other], self._changed[other] = states[other + 1], now
            elif self._states[other] not in (_HEARD, _LEFT) and now - self._changed[other] > self.timeout:
                self.declare(f"{self.names[other]} gave no sign of life for {self.timeout:g} seconds")

    def _say(self, state: str) -> None:
        with suppress(RuntimeError):  # the store is gone, and nobody is left to hear it
            self._store.set(self._key(self.rank), state)

    def _all_heard(self) -> bool:
        return not self._thread.is_alive() or all(self._states[other] in (_HEARD, _LEFT) for other in self._others)


def _told(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
