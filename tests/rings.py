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

import torch
from chains import CHAIN, asked, make_chain
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.pipeline import watch
from lm_eval_latentmas.pipeline.chain import PipelineChain
from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.pipeline.shares import called, shares

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


def member(rank, count, work, prepare=None, spec="h-obf", timeout=20):
    """One process of a pipeline over the tiny model; process 0 returns what ``work`` makes of its chain.

    prepare: called before the work, ``(rank, chain, ring)``; what it returns is returned too.
    """
    torch.set_num_threads(1)
    watch._INTERVAL, watch._SETTLING = 0.1, 1.0  # so that a failure is told in no time
    parts = shares(True, CHAIN, count)
    ring = Ring(called(parts, CHAIN), timeout)
    adapter = ModelAdapter(tiny_model(), byte_tokenizer())
    chain = make_chain(adapter, spec=spec, kv_budget=8, kind=PipelineChain, ring=ring, shares=parts)
    told = prepare(rank, chain, ring) if prepare is not None else None
    if rank != 0:
        chain.serve()
        return told
    with chain.working():
        found = work(chain)
    ring.end()
    return found, told


def written(chain):
    """Per document what does not depend on the processes, and the seconds of every hop; one row at a time."""
    records = dict(chain.answer([chain.plan(question) for question in asked(temperature=0.9)], 1))
    return {plan.question.doc_id: (_lasting(record), record.relay_seconds) for plan, record in records.items()}


def _lasting(record):
    return record.text, record.relay_bytes, record.relay_states, record.kept_states, record.latent_passes
