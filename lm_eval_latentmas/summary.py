"""Totals of a run for the results file: what travelled, what it cost, what was cut off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from lm_eval_latentmas.records import Record

_COLUMNS = (
    *("doc_id", "repeat", "prompt_tokens", "judger_tokens", "latent_passes", "decoded_tokens", "kept_states", "rho"),
    *("relay_bytes", "relay_states", "relay_seconds", "message_tokens", "messages_truncated", "seconds"),
    *("stop", "truncated", "clamped"),
)


def summarise(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Per task: samples, L, rho, mean bytes per hop, seconds per phase, tokens, truncated and clamped counts."""
    return {task: _totals(group) for task, group in _by_task(records).items()}


def columns(records: Sequence[Record]) -> dict[str, dict[str, list[Any]]]:
    """Per task, the records as columns; ``doc_id`` joins them to the harness's samples file."""
    return {
        task: {name: [record.as_dict()[name] for record in group] for name in _COLUMNS}
        for task, group in _by_task(records).items()
    }


def _by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.task].append(record)
    return dict(groups)


def _totals(records: Sequence[Record]) -> dict[str, Any]:
    prompt = sum(record.prompt_tokens for record in records)
    hops = zip(*(record.relay_bytes for record in records), strict=True)
    # a journal may hold samples of a run without a figure
    ways = zip(*(record.relay_seconds for record in records if record.relay_seconds), strict=True)
    phases = dict.fromkeys(phase for record in records for phase in record.seconds)
    seconds = {phase: sum(record.seconds.get(phase, 0.0) for record in records) for phase in phases}
    return {
        "samples": len(records),
        "L": prompt / len(records),
        "rho": sum(record.kept_states for record in records) / prompt if prompt else None,
        "relay_bytes_per_hop": [fmean(hop) for hop in hops],
        "relay_seconds_per_hop": [fmean(way) for way in ways],
        "relay_bytes": fmean(sum(record.relay_bytes) for record in records),
        "seconds": seconds | {"end_to_end": sum(seconds.values())},
        "prompt_tokens": prompt,
        "judger_tokens": sum(record.judger_tokens for record in records),
        "latent_passes": sum(record.latent_passes for record in records),
        "message_tokens": sum(sum(record.message_tokens) for record in records),
        "messages_truncated": sum(record.messages_truncated for record in records),
        "decoded_tokens": sum(record.decoded_tokens for record in records),
        "continuations": sum(len(record.scores) for record in records),
        "truncated": sum(record.truncated for record in records),
        "clamped": sum(record.clamped for record in records),
    }
