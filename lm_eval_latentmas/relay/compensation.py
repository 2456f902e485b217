"""What the kept values owe to the dropped ones: orthogonal backfill and cache merging (method, section 3)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from lm_eval_latentmas.cache import on_device
from lm_eval_latentmas.relay.lowrank import gram_outside, leading, outside, row_space, wide
from lm_eval_latentmas.relay.selectors import Block, Selection
from lm_eval_latentmas.relay.settings import REFERENCE_BUDGET, RelaySettings

logger = logging.getLogger(__name__)

INJECTIONS = ("uniform", "attention", "per-token")

# the residual norm ||R||_F up to which nothing is injected
NOTHING = 1e-10


class Compensation(Protocol):
    """Works out what the kept values become; keys never change."""

    name: str

    def __call__(self, block: Block, selection: Selection) -> Tensor:
        """The kept values, (layers, rows, kv_heads, slots, head_dim), in the block's dtype or a wider one."""
        ...

    def reads(self, settings: RelaySettings) -> set[str]:
        """The names of the settings that it follows; an option of the composition goes before its setting."""
        ...


@dataclass(frozen=True)
class Residual:
    """What of the dropped values the kept ones cannot express, per layer, row and head; all in one dtype.

    kept: (..., slots, d), zero where a slot is empty. values: (..., tokens, d), all candidates, zero elsewhere; with
    projection counted from the mean of the kept ones, which lies in their span and so changes no residual.
    basis: (..., r, d), orthonormal or zero rows that span the kept values; None without projection.
    weights: (..., tokens), attention mass of the dropped, normalised. demand: (..., 1), alpha.
    """

    kept: Tensor
    values: Tensor
    basis: Tensor | None
    weights: Tensor
    demand: Tensor

    @classmethod
    def of(cls, block: Block, selection: Selection, *, project: bool, svd: str = "exact") -> Residual:
        """Steps 1, 4 (weights) and 5 of the method; ``fast`` in float32 where the span of the kept is exact."""
        exact = wide(block.values.device)
        dtype = exact if svd == "exact" else torch.promote_types(block.values.dtype, torch.float32)
        kept = selection.gather(block.values).to(dtype) * selection.filled[..., None]
        basis = row_space(kept.to(exact)).to(dtype) if project else None
        if project:
            centre = kept.sum(-2, keepdim=True) / selection.filled.sum(-1).clamp_min(1)[..., None, None]
            # widened first: a difference of two dtypes is worked out one by one
            states = block.values
            values = states - centre if states.dtype == dtype else states.to(dtype).sub_(centre)
            values = block.blank(values)
        else:
            values = block.values.to(dtype)
        there = selection.dropped.to(dtype)
        mass = selection.mass * there
        total = mass.sum(-1, keepdim=True)
        even = there / there.sum(-1, keepdim=True).clamp_min(1)
        weights = torch.where(total > 0, mass / total.clamp_min(torch.finfo(dtype).tiny), even)
        kept_mass = selection.gather_mass().to(dtype).sum(-1, keepdim=True)
        return cls(kept, values, basis, weights, total / (kept_mass + 1e-12))

    def drawn(self, share: Tensor) -> Tensor:
        """``share`` of the residuals (step 4): (..., n, tokens) to (..., n, d)."""
        # once more takes away what rounding left inside the span
        return self.outside(self.outside(share @ self.values))

    def outside(self, rows: Tensor) -> Tensor:
        """What of ``rows`` (..., n, d) the kept values cannot express (step 2)."""
        return rows if self.basis is None else outside(rows, self.basis)

    def gram(self) -> Tensor:
        """R^T R, (..., d, d), from the Gram matrix of all candidates: the kept ones have no residual."""
        gram = self.values.mT @ self.values
        return gram - self.kept.mT @ self.kept if self.basis is None else gram_outside(gram, self.basis)


@dataclass(frozen=True)
class Backfill:
    """Orthogonal BackFill: adds the dropped values' leading directions outside the kept span to every kept value.

    rank: a count, ``"all"``, ``"evr"`` (smallest that explains ``tau`` of the variance, at most ``cap``), ``"auto"``
        (``base`` at a budget of 32, in proportion to it elsewhere) or a share of the kept budget.
    project: take the residual outside the kept span, else the dropped values themselves.
    scale: multiply by the demand alpha, else by 1.
    inject: ``uniform``, ``attention`` (by share of the kept mass) or ``per-token`` (by similarity to the dropped).
    """

    rank: int | float | str
    base: int
    project: bool = True
    scale: bool = True
    inject: str = INJECTIONS[0]
    svd: str = "fast"
    tau: float = 0.35
    cap: int = 32

    @property
    def name(self) -> str:
        """The stage as the composition grammar writes it."""
        options = [f"rank={self.rank}"]
        options += [] if self.project else ["projection=false"]
        options += [] if self.scale else ["scale=false"]
        options += [] if self.inject == INJECTIONS[0] else [f"inject={self.inject}"]
        options += [f"tau={self.tau}", f"cap={self.cap}"] if self.rank == "evr" else []
        return ":".join(["obf", *options])

    def reads(self, settings: RelaySettings) -> set[str]:
        """See `Compensation`."""
        followed = {"pca_rank": self.rank, "svd": self.svd}
        followed |= {"evr_tau": self.tau, "evr_cap": self.cap} if self.rank == "evr" else {}
        return {name for name, value in followed.items() if value == getattr(settings, name)}

    def __call__(self, block: Block, selection: Selection) -> Tensor:
        if not selection.index.shape[-1]:
            return selection.gather(block.values)
        found = Residual.of(block, selection, project=self.project, svd=self.svd)
        share = self._share(found, block, selection)
        if self.scale:
            share = share * found.demand[..., None]
        return found.kept + self._within(found, share, block.quotas)

    def explained(self, block: Block, selection: Selection) -> Tensor:
        """Share of ||R||_F^2 in the directions that are injected, (layers, rows, kv_heads); a diagnostic (REVR)."""
        found = Residual.of(block, selection, project=self.project)
        residual = found.outside(block.values.to(found.kept.dtype) * selection.dropped[..., None])
        energy = torch.linalg.svdvals(residual) ** 2
        total = energy.sum(-1, keepdim=True)
        used = self._used(energy, total, self.ranks(block.quotas, residual.shape[-1])) & (total > NOTHING**2)
        return (energy * used).sum(-1) / total[..., 0].clamp_min(NOTHING**2)

    def ranks(self, quotas: tuple[int, ...], head_dim: int) -> list[int]:
        """Directions per row, at most what it keeps and the head size; for ``evr`` the cap, for ``all`` the size."""
        if self.rank == "all":
            return [head_dim] * len(quotas)
        if self.rank == "evr":
            return [min(self.cap, head_dim)] * len(quotas)
        limits = [min(quota, head_dim) for quota in quotas]
        if isinstance(self.rank, int):
            if self.rank > max(limits):
                _say_once(f"pca_rank={self.rank}: clamped to {max(limits)}, the kept budget or the head size")
            return [min(self.rank, limit) for limit in limits]
        share = self.base / REFERENCE_BUDGET if self.rank == "auto" else self.rank
        return [min(max(1, round(share * quota)), limit) for quota, limit in zip(quotas, limits, strict=True)]

    def _share(self, found: Residual, block: Block, selection: Selection) -> Tensor:
        """How much of each dropped residual each kept value gets, (..., 1 or slots, tokens)."""
        weights = found.weights[..., None, :]
        if self.inject == "attention":
            mass = selection.gather_mass().to(weights.dtype)
            return (mass / (mass.sum(-1, keepdim=True) + 1e-12))[..., None] * weights
        if self.inject == "per-token":
            similar = found.kept @ block.values.to(found.kept.dtype).mT / found.kept.shape[-1] ** 0.5
            # the least finite number, not -inf: a head that keeps nothing must not turn into NaN
            similar = similar.masked_fill(~selection.filled[..., None], torch.finfo(similar.dtype).min)
            return similar.softmax(dim=-2) * weights
        return weights

    def _within(self, found: Residual, share: Tensor, quotas: tuple[int, ...]) -> Tensor:
        """``share`` of the residuals, restricted to the principal directions (steps 3, 4): (..., 1 or slots, d)."""
        drawn, gram = found.drawn(share), found.gram()
        total = gram.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
        if self.rank == "all":
            return drawn * (total > NOTHING**2)[..., None]
        ranks = self.ranks(quotas, drawn.shape[-1])
        if not max(ranks):
            return torch.zeros_like(drawn)
        directions, energy = leading(gram, max(ranks), self.svd)
        used = self._used(energy, total, ranks) & (total > NOTHING**2)
        return (drawn @ (directions * used[..., None]).mT) @ directions

    def _used(self, energy: Tensor, total: Tensor, ranks: list[int]) -> Tensor:
        """Which directions count, (..., directions) bool."""
        if self.rank == "evr":
            return energy.cumsum(-1) - energy < self.tau * total
        place = torch.arange(energy.shape[-1], device=energy.device)
        return place < on_device(ranks, energy.device).view(-1, 1, 1)


@dataclass(frozen=True)
class Merge:
    """Cache merging: every dropped value joins the kept one of the most similar key, averaged by attention mass."""

    name: str = "merge"

    def reads(self, settings: RelaySettings) -> set[str]:
        """See `Compensation`."""
        return set()

    def __call__(self, block: Block, selection: Selection) -> Tensor:
        if not selection.index.shape[-1]:
            return selection.gather(block.values)
        dtype = wide(block.values.device)
        values, keys = block.values.to(dtype), block.keys.to(dtype)
        kept_keys, kept = selection.gather(keys), selection.gather(values)
        nearest = self._nearest(keys, kept_keys, selection)
        dropped, filled = selection.dropped.expand(selection.mass.shape), selection.filled.expand(nearest.shape[:-1])
        mass = _or_ones(selection.mass.to(dtype) * dropped, dropped)
        own = _or_ones(selection.gather_mass().to(dtype), filled)
        weights = nearest * mass[..., None, :]
        total = own + weights.sum(-1)
        merged = (own[..., None] * kept + weights @ values) / total.clamp_min(torch.finfo(dtype).tiny)[..., None]
        return torch.where((weights.sum(-1) > 0)[..., None], merged, kept).to(block.values.dtype)

    def _nearest(self, keys: Tensor, kept_keys: Tensor, selection: Selection) -> Tensor:
        """One-hot over the kept slots for every token, (layers, rows, kv_heads, slots, tokens) bool."""
        # the token's own norm does not change which kept key is nearest
        cosine = torch.nn.functional.normalize(kept_keys, dim=-1) @ keys.mT
        cosine = cosine.masked_fill(~selection.filled[..., None], -torch.inf)
        slots = torch.arange(cosine.shape[-2], device=cosine.device)[:, None]
        return cosine.argmax(dim=-2, keepdim=True) == slots


def _or_ones(mass: Tensor, members: Tensor) -> Tensor:
    """The masses of one side, or ones for its members where all masses are zero."""
    return torch.where(mass.sum(-1, keepdim=True) > 0, mass, members.to(mass.dtype))


@lru_cache
def _say_once(message: str) -> None:
    logger.warning(message)
