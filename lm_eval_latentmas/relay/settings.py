"""Settings of the hand-off: the one place where a relay's budgets, ranks and their defaults stand."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

LAYERWISE_RANK = 4
HEADWISE_RANK = 2
REFERENCE_BUDGET = 32


@dataclass(frozen=True)
class RelaySettings:
    """How much of a segment travels and how the kept values are corrected; checked when made.

    kv_budget: prompt states kept per KV head, a count or a share of the candidates (0 < x < 1).
    sink_size: first real tokens of the first agent's prompt that always stay.
    pca_rank: directions that a backfill injects: a count, ``"auto"`` (grows with the kept budget), a share of the
        kept budget (0 < x < 1), or None for the published ones (4 with one set for all heads, 2 with a set per head).
    svd: ``"fast"`` or ``"exact"`` leading directions; both give the same correction.
    history_budget, latent_budget: the same selection for the inherited history and the latent states; None keeps all.
    allocation: ``"uniform"`` or ``"adaptive"`` (a layer's total spread over its heads by the mass they concentrate).
    evr_tau, evr_cap: explained variance to reach and most directions, for ``rank=evr``.
    chunk_bytes: most working memory of one batched product; layers are taken together until it is reached. None: as
        the device suggests.

    Raises ValueError with one line that names the argument, its value and what is allowed.
    """

    kv_budget: int | float = REFERENCE_BUDGET
    sink_size: int = 4
    pca_rank: int | float | str | None = None
    svd: str = "fast"
    history_budget: int | float | None = None
    latent_budget: int | float | None = None
    allocation: str = "uniform"
    evr_tau: float = 0.35
    evr_cap: int = 32
    chunk_bytes: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            # the command line hands numbers on as text
            object.__setattr__(self, field.name, number(getattr(self, field.name)))
        budget("kv_budget", self.kv_budget, hint="use compressor=gen to relay no prompt state")
        for name in ("history_budget", "latent_budget"):
            if getattr(self, name) is not None:
                budget(name, getattr(self, name), hint="leave it out to keep all")
        count("sink_size", self.sink_size, least=0)
        rank("pca_rank", self.pca_rank)
        choice("svd", self.svd, ("fast", "exact"))
        choice("allocation", self.allocation, ("uniform", "adaptive"))
        if type(self.evr_tau) not in (int, float) or not 0 < self.evr_tau <= 1:
            raise ValueError(f"evr_tau={self.evr_tau}: a share of the variance is above 0 and at most 1")
        count("evr_cap", self.evr_cap, least=1)
        if self.chunk_bytes is not None:
            count("chunk_bytes", self.chunk_bytes, least=1)


def number(value: Any) -> Any:
    """A number where the text is one, None for ``none``, booleans for ``true`` and ``false``, else the value itself."""
    if not isinstance(value, str):
        return value
    named = {"none": None, "true": True, "false": False}
    if value.strip().lower() in named:
        return named[value.strip().lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value.strip()


def choice(name: str, value: Any, allowed: tuple[str | bool, ...]) -> None:
    """Refuses a value outside of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name}={value}: allowed are {', '.join(str(one).lower() for one in allowed)}")


def count(name: str, value: Any, least: int) -> None:
    """Refuses anything but an integer of at least ``least``."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name}={value}: give a whole number, {least} or more")


def budget(name: str, value: Any, hint: str) -> None:
    """Refuses anything but a count (0 or more) or a share (0 < x < 1)."""
    counted = type(value) is int and value >= 0
    if not counted and not (isinstance(value, float) and 0 < value < 1):
        raise ValueError(f"{name}={value}: a budget is 0 or more, or a share between 0 and 1; {hint}")


def rank(name: str, value: Any, named: tuple[str, ...] = ("auto",)) -> None:
    """Refuses anything but None, a count of 0 or more, a share of the kept budget (0 < x < 1), or one of ``named``."""
    counted = type(value) is int and value >= 0
    if value not in (None, *named) and not counted and not (isinstance(value, float) and 0 < value < 1):
        words = named[0] if len(named) == 1 else f"one of {', '.join(named)}"
        raise ValueError(f"{name}={value}: a rank is 0 or more, a share between 0 and 1 of the kept budget, or {words}")
