"""Differences with their intervals, sweeps, and damage against recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..analyses import fit_recovery, recovery_cells
from ..arms import Arm
from ..comparison import Comparison
from ..scores import mean_score, score_unit
from ..sweeps import Point, sweep
from .canvas import Picture, Style, sheet, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def differences(comparisons: Sequence[Comparison], arms: Sequence[Arm]) -> Picture | None:
    """Each arm's difference to the reference with its interval, a panel per task; filled where distinguishable."""
    drawn = [c for c in comparisons if c.difference is not None]
    tasks = list(dict.fromkeys(c.task for c in drawn))
    if not drawn:
        return None
    names = list(dict.fromkeys(c.arm for c in drawn))
    look = styles([arm.name for arm in arms])
    figure, panels = sheet(len(tasks), size=(5.6, 1.1 + 0.34 * len(names)))
    for panel, task in zip(panels, tasks, strict=True):
        for comparison in (c for c in drawn if c.task == task):
            style, difference, place = look[comparison.arm], comparison.difference, names.index(comparison.arm)
            unit = comparison.unit
            fill = style.colour if comparison.distinguishable else "white"
            if difference.low is not None:
                panel.hlines(place, unit * difference.low, unit * difference.high, color=style.colour)
            panel.plot(unit * difference.estimate, place, style.marker, color=style.colour, mfc=fill)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_title(task or "mean of tasks", fontsize="medium")
        panel.set_xlabel(f"difference to {drawn[0].reference}" + ", points" * (unit == 100))
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(len(names) - 0.5, -0.5)
    found = [
        f"{c.arm} on {c.task or 'the mean'}: {c.unit * c.difference.estimate:+.1f}" for c in drawn if c.distinguishable
    ]
    text = "Distinguishable (filled): " + ("; ".join(found) if found else "none") + "."
    return Picture("differences", "Differences with 95% intervals", text, figure)


def sweeps(arms: Sequence[Arm], argument: str, tasks: Sequence[str]) -> Picture | None:
    """Scores over a swept argument, a panel per task, with the score of ``full`` as a line."""
    lines = {task: found for task in tasks if (found := sweep(arms, argument, task))}
    if not lines:
        return None
    look = styles(list(dict.fromkeys(name for found in lines.values() for name in found)))
    figure, panels = sheet(len(lines))
    for panel, (task, found) in zip(panels, lines.items(), strict=True):
        for name, points in found.items():
            _line(panel, name, points, look[name])
        full = next((arm for arm in arms if arm.name == "full"), None)
        if full and (score := mean_score(full, task)) is not None:
            panel.axhline(score * score_unit(arms, task), color="black", linewidth=0.8, linestyle=":", label="full")
        values = sorted({point.value for points in found.values() for point in points})
        if values[0] > 0 and values[-1] / values[0] >= 4:
            panel.set_xscale("log", base=2)
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.minorticks_off()
        panel.set_title(task, fontsize="medium")
        panel.set_xlabel(argument)
        panel.set_ylabel("score")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
    return Picture(
        f"sweep-{argument}", f"Sweep of {argument}", f"Scores over {argument} for {', '.join(look)}.", figure
    )


def recovery(arms: Sequence[Arm]) -> Picture | None:
    """Recovery over damage for both families, each with its fitted line."""
    families = {family: cells for family in ("headwise", "layerwise") if (cells := recovery_cells(arms, family))}
    if not families:
        return None
    figure, (panel,) = sheet(size=(6, 4.2))
    said = []
    for (family, cells), style in zip(families.items(), styles(list(families)).values(), strict=True):
        damage = np.array([cell.damage for cell in cells])
        fit = fit_recovery(cells)
        label = f"{family}, {len(cells)} cells"
        if fit.slope is not None:
            label += f": slope {fit.slope:.2f}, r {fit.r:.2f}"
            ends = np.array([damage.min(), damage.max()])
            panel.plot(ends, fit.intercept + fit.slope * ends, color=style.colour, linestyle=style.line)
        panel.plot(damage, [c.recovery for c in cells], style.marker, color=style.colour, label=label)
        said.append(label)
    panel.axhline(0, color="black", linewidth=0.6)
    panel.axvline(0, color="black", linewidth=0.6)
    panel.set_xlabel("damage: full minus eviction, points")
    panel.set_ylabel("recovery: backfill minus eviction, points")
    panel.legend(frameon=False)
    return Picture("recovery", "Damage and recovery", "; ".join(said) + ".", figure)


def _line(panel: Axes, name: str, points: Sequence[Point], style: Style) -> None:
    values, means = [p.value for p in points], np.array([p.score.estimate for p in points])
    panel.plot(values, means, marker=style.marker, linestyle=style.line, color=style.colour, label=name)
    known = [p for p in points if p.score.low is not None]
    panel.vlines(
        [p.value for p in known],
        [p.score.low for p in known],
        [p.score.high for p in known],
        color=style.colour,
        alpha=0.6,
    )
