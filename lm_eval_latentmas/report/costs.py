"""What an arm's answers cost: bytes handed on, tokens read and written, seconds; from this project's own records.

Other models' results have no such records, and their costs are unknown, not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .arms import Arm
from .runs import Run
from .tables import Column, Row, Table

# what a sample's seconds are spent on; a text chain writes messages, and given continuations are scored
PHASES = ("latent", "messages", "compression", "transport", "decoding", "scoring")


@dataclass(frozen=True)
class Cost:
    """Means per answered sample; None for what the records do not hold.

    prompt_tokens: L, fed to the agents before the judger (method, section 4). rho: prompt states kept over L.
    relay_bytes: the messages of all hops together. `PHASES` and total: seconds.
    truncated: share of answers cut off by the token budget; both it and decoded_tokens where answers were decoded.
    """

    prompt_tokens: float | None = None
    rho: float | None = None
    relay_bytes: float | None = None
    latent: float | None = None
    messages: float | None = None
    compression: float | None = None
    transport: float | None = None
    decoding: float | None = None
    scoring: float | None = None
    total: float | None = None
    decoded_tokens: float | None = None
    truncated: float | None = None


def task_cost(runs: Sequence[Run]) -> Cost:
    """Mean cost of a sample over an arm's runs of one task."""
    columns: dict[str, list] = {}
    for run in runs:
        for name, values in run.relay.items():
            columns.setdefault(name, []).extend(values)
    seconds = columns.get("seconds") or []
    decoded = columns.get("decoded_tokens") or []
    prompts, kept = columns.get("prompt_tokens") or [], columns.get("kept_states") or []
    return Cost(
        prompt_tokens=_mean(prompts),
        rho=_mean([k / p for k, p in zip(kept, prompts, strict=False) if p]),
        relay_bytes=_mean([sum(hops) for hops in columns.get("relay_bytes") or []]),
        **{phase: _mean([s.get(phase) for s in seconds]) for phase in PHASES},
        total=_mean([sum(s.values()) for s in seconds]),
        decoded_tokens=_mean(decoded) if any(decoded) else None,
        truncated=_mean(columns.get("truncated") or []) if any(decoded) else None,
    )


def arm_cost(arm: Arm, tasks: Sequence[str]) -> Cost:
    """Mean of the tasks' costs, every task weighing the same."""
    costs = [task_cost(arm.runs[task]) for task in tasks if task in arm.runs]
    return Cost(**{f.name: _mean([getattr(cost, f.name) for cost in costs]) for f in fields(Cost)})


def cost_table(arms: Sequence[Arm], reference: Arm, tasks: Sequence[str]) -> Table:
    """One row per arm in the published table's columns, ratios against the reference."""
    base = arm_cost(reference, tasks)
    costs = {arm.name: arm_cost(arm, tasks) for arm in arms}
    decoding = any(cost.decoded_tokens is not None for cost in costs.values())
    phases = [phase for phase in PHASES if any(getattr(cost, phase) is not None for cost in costs.values())]
    columns = (
        Column("arm"),
        Column("relay MB", 3, "min"),
        Column("relay ratio", 2, "max"),
        *(Column(f"{phase} s", 3, "min" if phase == "compression" else None) for phase in phases),
        Column("end to end s", 3, "min"),
        Column("end to end ratio", 2, "min"),
        *((Column("output tokens", 0, "min"), Column("truncated %", 1, "min")) if decoding else ()),
    )
    rows = []
    for name, cost in costs.items():
        cells = (
            name,
            _scaled(cost.relay_bytes, 1e-6),
            _ratio(base.relay_bytes, cost.relay_bytes),
            *(getattr(cost, phase) for phase in phases),
            cost.total,
            _ratio(cost.total, base.total),
            *((cost.decoded_tokens, _scaled(cost.truncated, 100)) if decoding else ()),
        )
        rows.append(Row(cells))
    note = (
        "Means per sample, tasks weighing the same. Relay MB: all hops together, 10^6 bytes. "
        f"Relay ratio: {reference.name} over arm. End-to-end ratio: arm over {reference.name}. "
        "Seconds are shares of a batch and depend on the machine."
    )
    return Table("costs", "What an answer costs", columns, tuple(rows), note)


def length_table(arms: Sequence[Arm], tasks: Sequence[str]) -> Table:
    """Per task: L, and the share rho of the prompt states that each arm still holds at the end, in percent."""
    rows = []
    for task in tasks:
        costs = [task_cost(arm.runs.get(task, ())) for arm in arms]
        length = next((cost.prompt_tokens for cost in costs if cost.prompt_tokens is not None), None)
        rows.append(Row((task, length, *(_scaled(cost.rho, 100) for cost in costs))))
    columns = (Column("task"), Column("L", 0), *(Column(f"rho % {arm.name}", 1) for arm in arms))
    note = "L: prompt tokens fed to the agents before the judger. rho: prompt states kept at the end over L."
    return Table("lengths", "Prompt length and share kept", columns, tuple(rows), note)


def has_costs(arms: Sequence[Arm]) -> bool:
    """Whether any run carries relay records."""
    return any(run.relay for arm in arms for runs in arm.runs.values() for run in runs)


def _mean(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None
