"""Messages from one process to the next over ``torch.distributed``, point to point; sent and received beside the work.

A message is bytes in the memory of the host, as the wire format writes them, so it goes over gloo, also where GPUs have
a group of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lm_eval_latentmas.pipeline.watch import Watch

CHUNK = 1 << 22
MAX_HEADER = 1 << 30

_MAGIC = b"latentms"
_PREFIX = len(_MAGIC) + 8 + hashlib.sha256().digest_size
_IN_FLIGHT = 4  # pieces whose arrival is not waited for
_POLL = 0.01
_EVER = timedelta(weeks=52)


@dataclass(frozen=True)
class Message:
    """header: plain JSON. bodies: what goes with it. seconds: from the first to the last byte, as the receiver saw."""

    header: dict[str, Any]
    bodies: Sequence[bytes] = ()
    seconds: float = 0.0


class BadMessage(ValueError):
    """A message that cannot be read."""


class Channel:
    """This process's two neighbours in the ring: it sends to one and receives from the other.

    group: of gloo. room: messages that may be on their way, 0 for any number; one more that came waits to be taken.
    pace: called with a number of bytes before they are sent.
    """

    def __init__(self, group: Any, watch: Watch, *, room: int = 1, pace: Callable[[int], object] | None = None) -> None:
        self._group, self._watch, self._pace = group, watch, pace
        processes = len(watch.names)
        self._next, self._before = (watch.rank + 1) % processes, (watch.rank - 1) % processes
        self._room = room
        self._out: queue.Queue[Sequence[bytes] | None] = queue.Queue()
        self._in: queue.Queue[Message | Exception] = queue.Queue()
        self._taken = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"pipeline-{run.__name__.strip('_')}", daemon=True)
            for run in (self._sending, self._receiving)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _leave, self._threads)

    @property
    def sender(self) -> str:
        """What the process that sends to this one is called."""
        return self._watch.names[self._before]

    @property
    def has_message(self) -> bool:
        """Whether a message waits to be taken."""
        return not self._in.empty()

    def send(self, header: dict[str, Any], bodies: Sequence[bytes] = ()) -> None:
        """Hand a message over to be sent; waits while there is no room."""
        while self._room and self._out.unfinished_tasks >= self._room:
            self._wait()
        text = json.dumps(header | {"bodies": list(map(len, bodies))}).encode()
        prefix = _MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest()
        self._out.put([prefix, text, *bodies])

    def receive(self) -> Message:
        """The next message. Raises PipelineError where it will never come, and BadMessage."""
        while self._in.empty():
            self._wait()
        found = self._in.get()
        self._taken.set()
        if isinstance(found, Exception):
            raise found
        return found

    def _wait(self) -> None:
        self._watch.tick()
        time.sleep(_POLL)

    def finish(self) -> None:
        """Send what waits, and end when the process before this one has; what still comes is dropped."""
        self._out.put(None)
        for thread in self._threads:
            while thread.is_alive():
                while not self._in.empty():
                    self._in.get()
                self._taken.set()
                thread.join(_POLL)
                self._watch.tick()

    # -- the two threads ----------------------------------------------------------------------------

    def _sending(self) -> None:
        flying: deque[tuple[dist.Work, Tensor]] = deque()
        try:
            while (parts := self._out.get()) is not None:
                for piece in _pieces(parts):
                    if self._pace is not None:
                        self._pace(piece.numel())
                    flying.append((dist.isend(piece, self._next, group=self._group), piece))
                    while len(flying) > _IN_FLIGHT:
                        flying.popleft()[0].wait(_EVER)  # as long as the receiver has no room
                while flying:
                    flying.popleft()[0].wait(_EVER)
                self._out.task_done()
        except RuntimeError as error:
            self._watch.lost(self._watch.names[self._next], error)
        except Exception as error:  # nothing may end this thread unheard: the work would wait for it
            self._watch.broken(error)

    def _receiving(self) -> None:
        try:
            while True:
                message = self._arrived()
                self._taken.clear()
                self._in.put(message)
                if message.header.get("kind") == "end":
                    return
                self._taken.wait()  # so that no more than one is held
        except BadMessage as error:
            self._in.put(error)
        except RuntimeError as error:
            self._watch.lost(self.sender, error)
        except Exception as error:  # as above
            self._watch.broken(error)

    def _arrived(self) -> Message:
        prefix = bytes(self._read(_PREFIX, _EVER))
        started = time.perf_counter()
        magic, size = prefix[: len(_MAGIC)], int.from_bytes(prefix[len(_MAGIC) : len(_MAGIC) + 8], "little")
        if magic != _MAGIC or size > MAX_HEADER:
            raise BadMessage(f"{self.sender} sent no message of a pipeline")
        text = bytes(self._read(size))
        if hashlib.sha256(text).digest() != prefix[len(_MAGIC) + 8 :]:
            raise BadMessage(f"{self.sender} sent a message whose header was altered")
        header = json.loads(text)
        bodies = [bytes(self._read(length)) for length in header.pop("bodies")]
        return Message(header, bodies, time.perf_counter() - started)

    def _read(self, size: int, patience: timedelta | None = None) -> memoryview:
        """The next ``size`` bytes, each piece within ``patience``, by default the watch's timeout."""
        patience = patience or timedelta(seconds=self._watch.timeout)
        try:
            whole = torch.empty(size, dtype=torch.uint8)
        except RuntimeError as error:  # like that of a lost connection, which this is not
            raise MemoryError(f"no room for {size} bytes from {self.sender}") from error
        pieces = whole.split(CHUNK) if size else ()
        for work in _ahead(dist.irecv(piece, self._before, group=self._group) for piece in pieces):
            work.wait(patience)
        return memoryview(whole.numpy())


def _ahead(works: Iterator[dist.Work]) -> Iterator[dist.Work]:
    """The works in order, a few of them begun ahead."""
    begun: deque[dist.Work] = deque()
    for work in works:
        begun.append(work)
        if len(begun) > _IN_FLIGHT:
            yield begun.popleft()
    yield from begun


def _pieces(parts: Sequence[bytes]) -> Iterator[Tensor]:
    """Prefix, header and bodies as tensors of at most `CHUNK` bytes; nothing of length 0."""
    for part in filter(None, parts):
        # a copy, because torch takes writable memory only
        yield from torch.frombuffer(bytearray(part), dtype=torch.uint8).split(CHUNK)


def _leave(threads: Sequence[threading.Thread]) -> None:
    """At exit: a thread that waits for a process which is stuck cannot be joined, and would abort the interpreter."""
    if any(thread.is_alive() for thread in threads):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
