"""(d) Memory over the weights while the chain answers questions of skewed length, and whether their number matters.

Every case runs in a process of its own: ``python -m benchmarks.memory CASE SIZES`` prints one JSON line.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Table
from benchmarks.sizes import BY_NAME, Sizes

TITLE = "(d) Memory over the weights, MiB"
NOTE = (
    "Peak of the process's memory above what it was with loaded weights, and the most bytes that its caches and relays "
    "held at one time. `states` counts only slots with a state in them."
)
MIB = 2**20


def run(sizes: Sizes) -> Table:
    """Measure every case of ``sizes``, each in a fresh process."""
    table = Table(TITLE, NOTE)
    name = next(iter(sizes.models))
    for spec in ("h-obf", "full"):
        for rows in sizes.batches:
            table.add(_case(f"{name}:{spec}:{rows}", sizes))
    flat = _case("flat", sizes)
    table.add(flat)
    table.target("peak / caches, most", max(row["peak / caches"] for row in table.rows[:-1]), most=1.2)
    table.target(f"peak after {sizes.documents} documents / after a quarter of them", flat["late / early"], most=1.02)
    return table


def _case(case: str, sizes: Sizes) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", case, sizes.name]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Peak:
    """The most memory this process has taken: on a GPU as its allocator counts, else resident memory, read often."""

    def __init__(self, device: str) -> None:
        _give_back()
        self.on_gpu = device.startswith("cuda")
        self.most = self.start = self._now()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.most = max(self.most, self._now())

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.most = max(self.most, self._now())

    def _now(self) -> int:
        if self.on_gpu:
            return torch.cuda.max_memory_allocated()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> None:
    """Let the C library return what it holds free; where loading left much of it, caches would seem to cost nothing."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim is not None:
        trim(0)


class Held:
    """The bytes of all caches and relays that are alive, looked at after every forward pass and hand-off."""

    def __init__(self, adapter: Any) -> None:
        from lm_eval_latentmas.cache import Relay
        from lm_eval_latentmas.live import LiveCache

        self.caches: weakref.WeakSet = weakref.WeakSet()
        self.relays: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self.adapter, self.peak, self.states = adapter, 0, 0
        self._follow(LiveCache, self.caches.add)
        self._follow(Relay, self._add)
        forward = adapter.forward

        def watched(*arguments: Any) -> Any:
            out = forward(*arguments)
            self.look()
            return out

        adapter.forward = watched

    def _add(self, relay: Any) -> None:
        self.relays[id(relay)] = relay
        self.look()

    def look(self) -> None:
        """Add up what is held now; rows that are being read into lie in buffers of another cache."""
        relays = sum(relay.nbytes for relay in list(self.relays.values()))
        buffers = {id(b): b.nbytes for cache in self.caches for b in (*cache.keys, *cache.values) if b is not None}
        self.peak = max(self.peak, relays + sum(buffers.values()))
        states = sum(sum(cache.lengths) for cache in self.caches)
        self.states = max(self.states, relays + states * self.adapter.bytes_per_state)

    @staticmethod
    def _follow(kind: type, seen: Any) -> None:
        made = kind.__init__

        def followed(self: Any, *arguments: Any, **named: Any) -> None:
            made(self, *arguments, **named)
            seen(self)

        kind.__init__ = followed


def measure(case: str, sizes: Sizes) -> dict[str, Any]:
    """One case, in this process."""
    from benchmarks.chain import answers, chain, geometric, load, plans

    if case == "flat":
        return _flat(sizes)
    name, spec, rows = case.split(":")
    rows = int(rows)
    adapter = load(name, sizes.models[name], sizes)
    made = chain(adapter, spec, sizes)
    batches, mean, cap = sizes.skew
    asked = plans(made, geometric(batches * rows, mean, cap), sizes)
    answers(made, plans(made, [2], sizes), 1)  # what a first pass sets up stays
    adapter.bytes_per_state  # noqa: B018 - measured on a pass of its own
    held = Held(adapter)
    with Peak(sizes.device) as memory:
        answers(made, asked, rows)
    peak = memory.most - memory.start
    return {
        "model": f"{name}, {adapter.layers} layers",
        "compressor": spec,
        "batch": rows,
        "peak": peak / MIB,
        "caches": held.peak / MIB,
        "states": held.states / MIB,
        "peak / caches": peak / held.peak,
    }


def _flat(sizes: Sizes) -> dict[str, Any]:
    """The tiny model over many documents: peaks after a quarter of them and after all."""
    from benchmarks import models
    from benchmarks.chain import chain, geometric, plans

    made = chain(models.toy(), "h-obf", sizes)
    asked = plans(made, geometric(sizes.documents, 6, 30), sizes)
    early, started = 0, time.perf_counter()
    with Peak("cpu") as memory:
        for finished, _ in enumerate(made.answer(asked, 4), 1):
            if finished == sizes.documents // 4:
                early = memory.most
    return {
        "model": "toy",
        "compressor": "h-obf",
        "batch": 4,
        "documents": sizes.documents,
        "peak": (memory.most - memory.start) / MIB,
        "late / early": memory.most / early,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], BY_NAME[sys.argv[2]])))
