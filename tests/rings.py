"""Pipelines of forked processes over the tiny model: what each process of one returned, or raised."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)


def processes(count: int, run: Callable[..., Any], folder: Path, *arguments: Any, patience: float = 60) -> list[Any]:
    """Run ``run(rank, *arguments)`` in ``count`` processes joined by torch.distributed.

    Per process ``("returned", value)``, ``("raised", type and message)``, or ``("died", exit code)``. They are forked
    off a server that has imported everything, so that a process costs no imports.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rings_preload"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (HERE, before)))  # read when the server starts
    told = context.Queue()
    meeting = folder / f"meeting-{run.__name__}-{count}"
    started = [
        context.Process(target=_member, args=(rank, count, str(meeting), told, run, arguments)) for rank in range(count)
    ]
    try:
        for process in started:
            process.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    for process in started:
        process.join(patience)
    hung = [rank for rank, process in enumerate(started) if process.is_alive()]
    for rank in hung:
        started[rank].kill()
        started[rank].join()
    assert not hung, f"processes {hung} did not end"
    outcomes: list[Any] = [("died", process.exitcode) for process in started]
    with contextlib.suppress(queue.Empty):  # one that died told nothing
        for _ in started:
            rank, outcome = told.get(timeout=0.2)
            outcomes[rank] = outcome
    return outcomes


def _member(rank: int, count: int, meeting: str, told: Any, run: Callable[..., Any], arguments: tuple) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
    try:
        outcome = ("returned", run(rank, *arguments))
    except Exception as error:
        traceback.print_exc()
        outcome = ("raised", f"{type(error).__name__}: {error}")
    told.put((rank, outcome))
    told.close()
    told.join_thread()
