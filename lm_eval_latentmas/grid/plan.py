"""A grid as data: from a YAML file or the command line to the list of runs it stands for."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.relay.settings import number
from lm_eval_latentmas.report.arms import NAMED, relay_name

_MOST_OF_A_NAME = 60


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the arguments of one arm, and a seed."""

    arguments: dict[str, Any]
    seed: int

    @property
    def arm(self) -> str:
        """``h-obf kv_budget=8``."""
        return _named(self.arguments)

    @property
    def name(self) -> str:
        """``h-obf kv_budget=8, seed 4``."""
        return f"{self.arm}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """A folder name for the run, equal for equal runs and for no others."""
        text = self.arm
        readable = re.sub(r"[^\w.+=-]+", "_", text)[:_MOST_OF_A_NAME]
        digest = "" if readable == text.replace(" ", "_") else "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{readable}{digest}/seed{self.seed}"


@dataclass(frozen=True)
class Grid:
    """Arms times seeds, over the same tasks; every other setting is shared.

    arms: arguments of the model, each over ``model_args``. results: the folder where they go. data_dir: local data.
    Everything else means what it means in lm-eval.
    """

    arms: tuple[dict[str, Any], ...]
    tasks: tuple[str, ...]
    results: Path = Path("results")
    seeds: tuple[int, ...] = (0,)
    model_args: dict[str, Any] = field(default_factory=dict)
    limit: float | None = None
    batch_size: int | str = 1
    max_batch_size: int | None = None
    device: str | None = None
    gen_kwargs: dict[str, Any] | None = None
    apply_chat_template: bool = False
    include_path: str | None = None
    data_dir: str | None = None
    confirm_run_unsafe_code: bool = False

    def __post_init__(self) -> None:
        for name in ("arms", "tasks", "seeds"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"a grid needs {name}")
            if repeated := [v for i, v in enumerate(values) if v in values[:i]]:
                raise ValueError(f"a grid holds {repeated[0]!r} twice among its {name}; leave one out")
        if wrong := [seed for seed in self.seeds if not isinstance(seed, int)]:
            raise ValueError(f"seeds: {wrong[0]!r} is no whole number")
        if self.limit is not None and not _limits(self.limit):
            raise ValueError(f"limit={self.limit}: give a number of documents, 1 or more, or a share between 0 and 1")

    @property
    def cells(self) -> list[Cell]:
        """Every run, an arm's seeds after each other."""
        return [Cell(arm, seed) for arm in self.arms for seed in self.seeds]

    def folder(self, cell: Cell) -> Path:
        """Where a cell's results go."""
        return self.results / cell.folder

    def arguments(self, cell: Cell) -> dict[str, Any]:
        """All arguments of the model in a cell; each cell keeps its finished samples in a folder of its own."""
        return self.model_args | cell.arguments | {"seed": cell.seed, "run_dir": str(self.folder(cell) / "run")}


def expand(entries: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Arms from entries whose lists multiply: ``{compressor: [a, b], kv_budget: [8, 16]}`` stands for four arms."""
    arms = []
    for entry in entries:
        choices = [value if isinstance(value, list) else [value] for value in entry.values()]
        arms += [dict(zip(entry, chosen, strict=True)) for chosen in itertools.product(*choices)]
    return tuple(arms)


def read_grid(path: str | Path, **overrides: Any) -> Grid:
    """A grid from a YAML file with the fields of `Grid`; ``overrides`` that are not None take their place.

    Raises:
        ValueError: naming file and field, where it is no YAML, or a field is missing, unknown or of the wrong kind.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: can't be read ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a grid is a mapping with the fields {', '.join(_FIELDS)}")
    given = data | {name: value for name, value in overrides.items() if value is not None}
    for name in given:
        if name not in _FIELDS:
            raise ValueError(f"{path}: unknown field {nearest(name, _FIELDS)}")
    arms = given.get("arms")
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms):
        raise ValueError(f"{path}: 'arms' is a list of mappings, such as [{{compressor: [full, h-obf]}}]")
    if "tasks" not in given:
        raise ValueError(f"{path}: lacks 'tasks'")
    lists = {name: _listed(given[name]) for name in ("tasks", "seeds") if name in given}
    return Grid(**(given | lists | {"arms": expand(arms), "results": Path(given.get("results", Grid.results))}))


def arms_of(compressors: str) -> list[dict[str, Any]]:
    """Arms from names between commas: compressors, the controls ``none`` and ``shuffled``, ``single`` and ``text``."""
    return [dict(_BASELINES.get(name, {"compressor": name})) for name in compressors.split(",")]


def swept(arguments: Sequence[str]) -> dict[str, list[Any]]:
    """``["kv_budget=8,16", "pca_rank=2,4"]`` as lists by argument.

    Raises:
        ValueError: one that is not ``NAME=VALUE,VALUE``.
    """
    found: dict[str, list[Any]] = {}
    for argument in arguments:
        name, equals, values = argument.partition("=")
        if not equals or not values:
            raise ValueError(f"'{argument}' names no values; write it as kv_budget=8,16,32")
        found[name.strip()] = [number(value) for value in values.split(",")]
    return found


_BASELINES: dict[str, dict[str, Any]] = {
    **{name: {"compressor": "full", "relay": name} for name in ("none", "shuffled")},
    **{name: {"mode": name} for name in ("single", "text")},
}
_FIELDS = [f.name for f in fields(Grid)]


def _limits(value: Any) -> bool:
    """Whether a limit leaves documents: a count of 1 or more, or a share."""
    number = type(value) in (int, float)
    return number and (0 < value < 1 or (value >= 1 and value % 1 == 0))


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _named(arguments: Mapping[str, Any]) -> str:
    head = relay_name(arguments)
    rest = [f"{name}={value}" for name, value in arguments.items() if name not in NAMED]
    return " ".join(([str(head)] if head else []) + rest) or "default"
