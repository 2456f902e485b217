"""Which tables and pictures a report has, in their order; what the results can't give is left out."""

from __future__ import annotations

from collections.abc import Iterable

from .analyses import borda_table, recovery_table, score_cost_table
from .costs import cost_table, has_costs, length_table
from .diagnostics import layer_table
from .fidelity import fidelity_table, summarise_fidelity
from .findings import Findings
from .paper import backbone_of, backbones, published_cost_table, published_rows, published_sign_table
from .pictures import costs, diagnostics, scores
from .pictures.canvas import Picture
from .probe import probe_tables
from .score_tables import comparison_table, health_table, main_table, seed_table, sign_table
from .sweeps import sweep_table, swept_arguments
from .tables import Table


def tables_of(findings: Findings, *, paper: bool = False) -> list[Table]:
    """All tables; with ``paper`` the published figures stand beside the measured ones."""
    arms, tasks, reference = findings.arms, findings.tasks, findings.reference
    extra = []
    if paper:
        backbone = backbone_of(arms)
        extra = [row for name in ((backbone,) if backbone else backbones()) for row in published_rows(name, tasks)]
    tables: list[Table | None] = [main_table(arms, tasks, extra)]
    if findings.comparisons:
        tables.append(comparison_table(findings.comparisons))
        tables.append(sign_table(findings.comparisons) if len(tasks) > 1 else None)
    if has_costs(arms):
        tables += [cost_table(arms, reference, tasks), length_table(arms, tasks), score_cost_table(arms, tasks)]
    tables += [published_cost_table(), published_sign_table()] if paper else []
    tables += probe_tables(arms, tasks)
    if findings.fidelity:
        differences = {c.arm: c.difference.estimate for c in findings.comparisons if c.difference is not None}
        tables.append(fidelity_table(summarise_fidelity(findings.fidelity), differences))
    tables += [sweep_table(arms, argument, tasks) for argument in swept_arguments(arms)]
    tables += [recovery_table(arms), borda_table(arms, tasks), layer_table(findings.diagnostics)]
    tables += [health_table(arms, tasks), seed_table(arms, tasks)]
    return _present(tables)


def pictures_of(findings: Findings) -> list[Picture]:
    """All pictures."""
    arms, tasks = findings.arms, findings.tasks
    return _present(
        [
            scores.differences(findings.comparisons, arms),
            costs.pareto(arms, tasks),
            costs.cost_stacks(arms, tasks),
            costs.score_against_tokens(arms, tasks),
            *(scores.sweeps(arms, argument, tasks) for argument in swept_arguments(arms)),
            scores.recovery(arms),
            diagnostics.by_layer(findings.diagnostics, arms),
            diagnostics.selection_maps(findings.diagnostics),
        ]
    )


def _present(parts: Iterable) -> list:
    return [part for part in parts if part is not None]
