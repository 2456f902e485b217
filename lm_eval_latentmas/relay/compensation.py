"""What the kept values owe to the dropped ones: orthogonal backfill and cache merging (method, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lm_eval_latentmas.relay.lowrank import leading, outside, row_space, wide
from lm_eval_latentmas.relay.selectors import Block, Selection
from lm_eval_latentmas.relay.settings import REFERENCE_BUDGET


class Compensation(Protocol):
    """Works out what the kept values become; keys never change."""

    name: str

    def __call__(self, block: Block, selection: Selection) -> Tensor:
        """The kept values, (layers, rows, kv_heads, slots, head_dim), in the block's dtype or a wider one."""
        ...


@dataclass(frozen=True)
class Residual:
    """What of the dropped values the kept ones cannot express, per layer, row and head; all in the wide dtype.

    kept: (..., slots, d), zero where a slot is empty. dropped: (..., tokens, d), zero where a token is not dropped.
    residual: as ``dropped``, outside the kept span (equal to it without projection).
    weights: (..., tokens), attention mass of the dropped, normalised. demand: (..., 1), alpha.
    """

    kept: Tensor
    dropped: Tensor
    residual: Tensor
    weights: Tensor
    demand: Tensor

    @classmethod
    def of(cls, block: Block, selection: Selection, *, project: bool) -> Residual:
        """Steps 1, 2, 4 (weights) and 5 of the method."""
        dtype = wide(block.values.device)
        values = block.values.to(dtype)
        kept = selection.gather(values) * selection.filled[..., None]
        dropped = values * selection.dropped[..., None]
        residual = outside(dropped, row_space(kept)) if project and kept.shape[-2] else dropped
        mass = selection.mass.to(dtype) * selection.dropped
        total = mass.sum(-1, keepdim=True)
        even = selection.dropped.to(dtype) / selection.dropped.sum(-1, keepdim=True).clamp_min(1)
        weights = torch.where(total > 0, mass / total.clamp_min(torch.finfo(dtype).tiny), even)
        kept_mass = selection.gather_mass().to(dtype).sum(-1, keepdim=True)
        return cls(kept, dropped, residual, weights, total / (kept_mass + 1e-12))

    @property
    def present(self) -> Tensor:
        """Whether there is anything to inject, (..., 1) bool: ||R||_F above 1e-10."""
        scale = self.dropped.flatten(-2).norm(dim=-1, keepdim=True).clamp_min(1)
        return self.residual.flatten(-2).norm(dim=-1, keepdim=True) > 1e-10 * scale


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
    inject: str = "uniform"
    svd: str = "fast"
    tau: float = 0.35
    cap: int = 32

    @property
    def name(self) -> str:
        """The stage as the composition grammar writes it."""
        options = [f"rank={self.rank}"]
        options += [] if self.project else ["projection=false"]
        options += [] if self.scale else ["scale=false"]
        options += [] if self.inject == "uniform" else [f"inject={self.inject}"]
        options += [f"tau={self.tau}", f"cap={self.cap}"] if self.rank == "evr" else []
        return ":".join(["obf", *options])

    def __call__(self, block: Block, selection: Selection) -> Tensor:
        if not selection.index.shape[-1]:
            return selection.gather(block.values)
        found = Residual.of(block, selection, project=self.project)
        share = self._share(found, selection) * found.present[..., None]
        if self.scale:
            share = share * found.demand[..., None]
        return (found.kept + self._within(found, share, block.quotas)).to(block.values.dtype)

    def ranks(self, quotas: tuple[int, ...]) -> list[int]:
        """Directions per row for the states it keeps; a rank that depends on the spectrum counts as its cap."""
        if self.rank == "evr":
            return [self.cap] * len(quotas)
        if self.rank == "auto":
            return [-(-self.base * quota // REFERENCE_BUDGET) for quota in quotas]
        if isinstance(self.rank, float):
            return [max(1, round(self.rank * quota)) if quota else 0 for quota in quotas]
        return [int(self.rank)] * len(quotas)

    def _share(self, found: Residual, selection: Selection) -> Tensor:
        """How much of each dropped residual each kept value gets, (..., 1 or slots, tokens)."""
        weights = found.weights[..., None, :]
        if self.inject == "attention":
            mass = selection.gather_mass().to(weights.dtype)
            return (mass / (mass.sum(-1, keepdim=True) + 1e-12))[..., None] * weights
        if self.inject == "per-token":
            similar = found.kept @ found.dropped.mT / found.kept.shape[-1] ** 0.5
            # the least finite number, not -inf: a head that keeps nothing must not turn into NaN
            similar = similar.masked_fill(~selection.filled[..., None], torch.finfo(similar.dtype).min)
            return similar.softmax(dim=-2) * weights
        return weights

    def _within(self, found: Residual, share: Tensor, quotas: tuple[int, ...]) -> Tensor:
        """``share`` of the residuals, restricted to the principal directions: (..., 1 or slots, d)."""
        drawn = share @ found.residual
        if self.rank == "all":
            return drawn
        ranks = self.ranks(quotas)
        if not max(ranks):
            return torch.zeros_like(drawn)
        directions, energy = leading(found.residual, max(ranks), self.svd)
        return (drawn @ (directions * self._used(found, energy, ranks)[..., None]).mT) @ directions

    def _used(self, found: Residual, energy: Tensor, ranks: list[int]) -> Tensor:
        """Which directions count, (..., directions), 0 or 1."""
        if self.rank == "evr":
            total = found.residual.square().sum((-2, -1))[..., None]
            return (energy.cumsum(-1) - energy < self.tau * total).to(energy.dtype)
        place = torch.arange(energy.shape[-1], device=energy.device)
        limit = torch.tensor(ranks, device=energy.device).view(-1, 1, 1)
        return (place < limit).to(energy.dtype)


@dataclass(frozen=True)
class Merge:
    """Cache merging: every dropped value joins the kept one of the most similar key, averaged by attention mass."""

    name: str = "merge"

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
