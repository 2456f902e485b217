"""(d) Memory over the weights while the chain answers questions of skewed length, and whether their number matters.

Every case runs in a process of its own: ``python -m benchmarks.memory CASE SIZES`` prints one JSON line.
"""

from __future__ import annotations

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

from benchmarks.measure import Table
from benchmarks.sizes import BY_NAME, Sizes

TITLE = "(d) Memory over the weights, MiB"
NOTE = (
    "Peak of the process's resident memory above what it was with loaded weights, and the most bytes that its caches "
    "and relays held at one time. `states` counts only slots with a state in them."
)
MIB = 2**20


def run(sizes: Sizes) -> Table:
    """Measure every case of ``sizes``, each in a fresh process."""
    table = Table(TITLE, NOTE)
    name = next(iter(sizes.models))
    for spec in ("h-obf", "full"):
        for rows in sizes.batches:
            table.rows.append(_case(f"{name}:{spec}:{rows}", sizes))
    flat = _case("flat", sizes)
    table.rows.append(flat)
    table.target("peak / caches, most", max(row["peak / caches"] for row in table.rows[:-1]), most=1.2)
    table.target(f"peak after {sizes.documents} documents / after a quarter of them", flat["late / early"], most=1.02)
    return table


def _case(case: str, sizes: Sizes) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", case, sizes.name]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Resident:
    """The peak of this process's resident memory, read every few milliseconds by a thread."""

    def __init__(self) -> None:
        self.peak = self.start = _resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.peak = max(self.peak, _resident())


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Held:
    """The bytes of all caches and relays that are alive, looked at after every forward pass and hand-off."""

    def __init__(self, adapter: Any) -> None:
        from lm_eval_latentmas.cache import Relay
        from lm_eval_latentmas.live import LiveCache

        self.caches: weakref.WeakSet = weakref.WeakSet()
        self.relays: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self.adapter, self.peak, self.states = adapter, 0, 0
        self._follow(LiveCache, lambda made: self.caches.add(made))
        self._follow(Relay, lambda made: self.relays.__setitem__(id(made), made))
        forward = adapter.forward

        def watched(*arguments: Any) -> Any:
            out = forward(*arguments)
            self.look()
            return out

        adapter.forward = watched

    def look(self) -> None:
        """Add up what is held now."""
        relays = sum(relay.nbytes for relay in list(self.relays.values()))
        self.peak = max(self.peak, relays + sum(cache.nbytes for cache in self.caches))
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
    adapter = load(name, sizes.models[name])
    made = chain(adapter, spec, sizes)
    batches, mean, cap = sizes.skew
    asked = plans(made, geometric(batches * rows, mean, cap), sizes)
    answers(made, plans(made, [2], sizes), 1)  # what a first pass sets up stays
    adapter.bytes_per_state  # noqa: B018 - measured on a pass of its own
    held = Held(adapter)
    gc.collect()
    with Resident() as resident:
        answers(made, asked, rows)
    peak = resident.peak - resident.start
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
    with Resident() as resident:
        for finished, _ in enumerate(made.answer(asked, 4), 1):
            if finished == sizes.documents // 4:
                early = resident.peak
    return {
        "model": "toy",
        "compressor": "h-obf",
        "batch": 4,
        "documents": sizes.documents,
        "peak": (resident.peak - resident.start) / MIB,
        "late / early": resident.peak / early,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], BY_NAME[sys.argv[2]])))
