"""Score against relay bytes and against output tokens, and where the seconds go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arms import Arm
from ..costs import PHASES, Cost, arm_cost
from ..extras import optional
from ..pairing import scored
from ..scores import score_unit, shown_scores, with_mean
from ..statistics import Interval, mean_interval
from .canvas import Picture, sheet, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class _Spot:
    arm: str
    cost: float
    score: Interval


def pareto(arms: Sequence[Arm], tasks: Sequence[str]) -> Picture | None:
    """Mean score over relay bytes, with the front of arms that no other beats in both; None without relay records."""
    spots = _spots(arms, tasks, lambda cost: cost.relay_bytes)
    if not spots:
        return None
    figure, (panel,) = sheet(size=(7, 4.4))
    front = pareto_front([(spot.cost, spot.score.estimate) for spot in spots])
    steps = sorted(((spots[i].cost, spots[i].score.estimate) for i in front), key=lambda spot: spot[0])
    panel.step(*zip(*steps, strict=True), where="post", color="#888888", linewidth=1.2, zorder=1)
    _scatter(panel, spots, arms)
    panel.set_xscale("log")
    ticker = optional("matplotlib.ticker")
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(ticker.EngFormatter(unit="B"))
    panel.xaxis.set_minor_formatter(ticker.NullFormatter())
    panel.set_xlabel("relay per sample, all hops (logarithmic)")
    panel.set_ylabel("mean score")
    best = ", ".join(spots[i].arm for i in front)
    return Picture("pareto", "Score against relay size", f"On the front: {best}.", figure)


def score_against_tokens(arms: Sequence[Arm], tasks: Sequence[str]) -> Picture | None:
    """Mean score over output tokens per sample."""
    spots = _spots(arms, tasks, lambda cost: cost.decoded_tokens)
    if not spots:
        return None
    figure, (panel,) = sheet(size=(7, 4.4))
    _scatter(panel, spots, arms)
    panel.set_xlabel("output tokens per sample")
    panel.set_ylabel("mean score")
    listed = "; ".join(f"{s.arm}: {s.score.estimate:.1f} at {s.cost:.0f} tokens" for s in spots)
    return Picture("score-tokens", "Score against generation cost", listed, figure)


def cost_stacks(arms: Sequence[Arm], tasks: Sequence[str]) -> Picture | None:
    """Seconds per sample by phase, one bar per arm."""
    costs = {arm.name: arm_cost(arm, tasks) for arm in arms}
    costs = {name: cost for name, cost in costs.items() if cost.total is not None}
    if not costs:
        return None
    figure, (panel,) = sheet(size=(7, 1.2 + 0.42 * len(costs)))
    left = np.zeros(len(costs))
    for phase, style in styles(PHASES).items():
        seconds = np.array([getattr(cost, phase) or 0.0 for cost in costs.values()])
        if not seconds.any():
            continue
        panel.barh(
            list(costs), seconds, left=left, color=style.colour, hatch=style.hatch, edgecolor="white", label=phase
        )
        left += seconds
    panel.invert_yaxis()
    panel.set_xlabel("seconds per sample")
    panel.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    listed = "; ".join(f"{name}: {cost.total:.3g} s" for name, cost in costs.items())
    return Picture("cost-stacks", "Where the seconds go", listed, figure)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (cost, score) points that no other point beats in one and matches in the other."""
    return [
        index
        for index, (cost, score) in enumerate(points)
        if not any(c <= cost and s >= score and (c, s) != (cost, score) for c, s in points)
    ]


def _spots(arms: Sequence[Arm], tasks: Sequence[str], read: Callable[[Cost], float | None]) -> list[_Spot]:
    """Arms whose cost is known and which ran every task."""
    found = []
    for arm in arms:
        cost = read(arm_cost(arm, tasks))
        score = _mean_score(arm, arms, tasks)
        if cost and score is not None:
            found.append(_Spot(arm.name, cost, score))
    return found


def _mean_score(arm: Arm, arms: Sequence[Arm], tasks: Sequence[str]) -> Interval | None:
    mean = with_mean(shown_scores(arm, arms, tasks))[-1]
    if mean is None:
        return None
    documents = [scored(arm.runs[task]) * score_unit(arms, task) for task in tasks]
    return mean_interval(*documents) if all(len(d) for d in documents) else Interval(mean, None, None)


def _scatter(panel: Axes, spots: list[_Spot], arms: Sequence[Arm]) -> None:
    look = styles([arm.name for arm in arms])
    for spot in spots:
        style, score = look[spot.arm], spot.score
        if score.low is not None:
            panel.vlines(spot.cost, score.low, score.high, color=style.colour, linewidth=1.2, zorder=2)
        panel.plot(spot.cost, score.estimate, style.marker, color=style.colour, markersize=8, zorder=3, label=spot.arm)
    panel.margins(x=0.1)
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
