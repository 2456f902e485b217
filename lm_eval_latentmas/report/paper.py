"""The published figures (arXiv 2604.13349), shipped as ``published.json``, set beside measured ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from .arms import Arm
from .scores import with_mean
from .statistics import sign_test
from .tables import Column, Row, Table

PAPER_ARMS = ("full", "layerwise", "l-obf", "headwise", "h-obf", "gen")
_PREFIX = "latentmas_"
_OTHER_NAMES = {"gpqa_diamond": "gpqa"}
# what the paper reports for h-obf over headwise on nine benchmarks, Qwen3-4B
PAPER_P_VALUE = 0.008


@cache
def published() -> dict[str, Any]:
    """The published figures as they are in the package."""
    return json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))


def backbones() -> tuple[str, ...]:
    """Backbones with published scores."""
    return tuple(name for name, figures in published().items() if isinstance(figures, dict) and "benchmarks" in figures)


def backbone_of(arms: Sequence[Arm]) -> str | None:
    """The published backbone that all arms ran, by the name of the model, or None."""
    names = {str(arm.arguments.get("pretrained", "")).lower() for arm in arms}
    return next((b for b in backbones() if names and all(name.rstrip("/").endswith(b) for name in names)), None)


def published_scores(backbone: str) -> dict[str, dict[str, float]]:
    """Arm -> benchmark -> accuracy in percent, a mean over three seeds."""
    figures = published()[backbone]
    return {arm: dict(zip(figures["benchmarks"], figures[arm], strict=True)) for arm in PAPER_ARMS}


def benchmark(task: str) -> str:
    """The paper's name of a task of this project: ``latentmas_gpqa_diamond`` -> ``gpqa``."""
    name = task.removeprefix(_PREFIX)
    return _OTHER_NAMES.get(name, name)


def published_rows(backbone: str, tasks: Sequence[str]) -> list[Row]:
    """Published scores as rows below those of a main table over ``tasks``."""
    rows = []
    known = [task for task in tasks if benchmark(task) in published()[backbone]["benchmarks"]]
    for arm, scores in published_scores(backbone).items() if known else ():
        cells = [scores.get(benchmark(task)) for task in tasks]
        rows.append(Row((f"{arm} (published, {backbone})", *with_mean(cells)), f"published {backbone}"))
    return rows


def published_sign_test(backbone: str, arm: str, other: str) -> dict[str, float | int | None]:
    """Exact sign test of one published arm over another: benchmarks won and lost, p two-sided and one-sided."""
    scores = published_scores(backbone)
    differences = [scores[arm][name] - scores[other][name] for name in scores[arm]]
    return {
        "won": sum(d > 0 for d in differences),
        "lost": sum(d < 0 for d in differences),
        "two_sided": sign_test(differences),
        "one_sided": sign_test(differences, alternative="greater"),
    }


def published_sign_table() -> Table:
    """The paper's sign test computed again from its own figures, for every backbone and both methods."""
    rows = []
    for backbone in backbones():
        for arm, other in (("h-obf", "headwise"), ("l-obf", "layerwise"), ("h-obf", "full"), ("l-obf", "full")):
            test = published_sign_test(backbone, arm, other)
            cells = (backbone, f"{arm} over {other}", float(test["won"]), float(test["lost"]))
            rows.append(Row((*cells, test["two_sided"], test["one_sided"])))
    columns = (Column("backbone"), Column("pair"), Column("won", 0), Column("lost", 0))
    note = (
        f"The paper gives p = {PAPER_P_VALUE} for h-obf over headwise on Qwen3-4B, which wins all nine benchmarks. "
        "The exact test over nine wins gives 0.0039 two-sided and 0.0020 one-sided; "
        "0.0078 is the two-sided value of eight wins in eight."
    )
    columns += (Column("p, two-sided", 4), Column("p, one-sided", 4))
    return Table("published-signs", "Sign test over the published benchmarks", columns, tuple(rows), note)


def published_cost_table() -> Table:
    """The published cost table (Qwen3-4B, one A100)."""
    figures = published()["cost_qwen3-4b_a100"]
    goals = {"relay_mb": "min", "relay_ratio": "max", "compression_s": "min", "end_to_end_s": "min", "gpu_gb": "min"}
    columns = [Column("arm"), *(Column(name.replace("_", " "), 2, goals.get(name)) for name in figures["columns"])]
    rows = [Row((arm, *numbers)) for arm, numbers in figures.items() if arm != "columns"]
    return Table("published-costs", "Published costs, Qwen3-4B, A100", tuple(columns), tuple(rows))
