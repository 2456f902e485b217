"""Which states of a region travel: a score per candidate, a budget, one set for all heads or a set per head."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lm_eval_latentmas.cache import on_device


@dataclass(frozen=True)
class Block:
    """One region of a segment (history, prompt or latent) in some of its layers: what selectors and compensations see.

    values: (layers, rows, kv_heads, tokens, head_dim) in the model's dtype. load_keys: gives the keys, of that shape.
    mass: (layers, rows, kv_heads, tokens) float32, zeros if nobody asked for it.
    candidates: (layers or 1, rows, kv_heads or 1, tokens) bool: states that may be kept or dropped; sinks, pads and
        holes are none.
    positions: (layers, rows, kv_heads or 1, tokens) int32. layers: their numbers in the model. seeds: one per row.
    quotas: states to keep per row; widest: the most that any head of a row may hold.
    extents: per row the first candidate and the end of them, where nothing but candidates lies between; else None.
    """

    load_keys: Callable[[], Tensor]
    values: Tensor
    mass: Tensor
    candidates: Tensor
    positions: Tensor
    layers: tuple[int, ...]
    seeds: tuple[int, ...]
    quotas: tuple[int, ...]
    widest: tuple[int, ...]
    extents: tuple[tuple[int, int], ...] | None = None

    @property
    def keys(self) -> Tensor:
        """The keys, as ``values``; stacked when asked for, as most methods never look at them."""
        return self.load_keys()

    def blank(self, states: Tensor) -> Tensor:
        """``states``, (layers, rows, kv_heads, tokens, ...), set to zero in place where there is no candidate."""
        return blank(states, self.extents, self.candidates)


@dataclass(frozen=True)
class Selection:
    """What stays of a block and what goes; ``heads`` is 1 where all heads share a set.

    index: (layers, rows, heads, slots) int64, tokens kept, ascending; 0 where ``filled`` (same shape, bool) is False.
    kept, dropped: (layers, rows, heads, tokens) bool. mass: as in the block.
    """

    index: Tensor
    filled: Tensor
    kept: Tensor
    dropped: Tensor
    mass: Tensor

    @classmethod
    def of(cls, kept: Tensor, block: Block) -> Selection:
        """The selection that keeps the tokens marked in ``kept``, (layers, rows, heads, tokens) bool."""
        tokens = kept.shape[-1]
        slots = max(block.widest, default=0)
        order = torch.arange(tokens, device=kept.device).expand(kept.shape).masked_fill(~kept, tokens)
        index = order.topk(min(slots, tokens), dim=-1, largest=False).values
        filled = index < tokens
        return cls(index.masked_fill(~filled, 0), filled, kept, block.candidates & ~kept, block.mass)

    def gather(self, states: Tensor) -> Tensor:
        """The kept states of (layers, rows, kv_heads, tokens, width): (layers, rows, kv_heads, slots, width)."""
        heads = states.shape[2]
        index = self.index.expand(-1, -1, heads, -1)[..., None].expand(-1, -1, -1, -1, states.shape[-1])
        return states.gather(-2, index)

    def gather_mass(self) -> Tensor:
        """The kept states' mass, (layers, rows, kv_heads, slots), 0 where a slot is not filled."""
        index = self.index.expand(-1, -1, self.mass.shape[2], -1)
        return self.mass.gather(-1, index) * self.filled


def blank(states: Tensor, extents: Sequence[tuple[int, int]] | None, candidates: Tensor) -> Tensor:
    """See `Block.blank`; known extents need no pass over all states."""
    if extents is None:
        return states.masked_fill_(~candidates.view(*candidates.shape, *[1] * (states.dim() - 4)), 0)
    for row, (first, end) in enumerate(extents):
        for outside in (slice(0, first), slice(end, states.shape[3])):
            if outside.start < outside.stop:
                states[:, row, :, outside] = 0
    return states


Score = Callable[[Block], Tensor]


@dataclass(frozen=True)
class Selector:
    """Keeps the candidates of the highest score; ties go to the earlier one.

    score: from a block to (layers, rows, kv_heads or 1, tokens) float32.
    per_head: a set per KV head; otherwise one set by the scores' sum over the heads.
    mass: whose attention the score needs: nobody's, the latent queries', the next agent's prompt queries'.
    fixed: a budget that no setting changes: everything for ``full``, nothing for ``gen``.
    adaptive: the layer's total goes to its heads by their scores; a head holds between a quarter of the budget and
        twice the budget.
    """

    stage: str
    score: Score
    about: str = ""
    per_head: bool = False
    mass: Literal["none", "latent", "next"] = "latent"
    fixed: int | None = None
    adaptive: bool = False

    @property
    def name(self) -> str:
        """The stage as the composition grammar writes it."""
        usual = SELECTORS[self.stage].per_head if self.stage in SELECTORS else False
        return self.stage if self.per_head == usual else f"{self.stage}:per_head={str(self.per_head).lower()}"

    def quota(self, budget: int | float, candidates: int) -> int:
        """How many of a row's candidates stay; a share is rounded and keeps at least one."""
        budget = budget if self.fixed is None else self.fixed
        wanted = max(1, round(budget * candidates)) if isinstance(budget, float) else budget
        return min(wanted, candidates)

    def widest(self, quota: int, candidates: int) -> int:
        """The most that one head may hold where the uniform share is ``quota``."""
        return min(2 * quota, candidates) if self.adaptive else quota

    def __call__(self, block: Block) -> Selection:
        score, candidates = self.score(block), block.candidates
        if not self.per_head:
            score, candidates = score.sum(dim=2, keepdim=True), candidates.any(dim=2, keepdim=True)
        candidates = candidates.expand(score.shape)
        score = score.masked_fill(~candidates, -torch.inf)
        kept = self._spread(score, block) if self.adaptive else _best(score, block.quotas)
        return Selection.of(candidates & kept, block)

    def _spread(self, score: Tensor, block: Block) -> Tensor:
        """The tokens kept when the heads of a layer compete for its total."""
        rank, quotas = _rank(score), _column(block.quotas, score)
        # two orders in one key: what a head is sure of comes first, what lies beyond its cap last
        score = score.masked_fill((rank < (quotas + 3) // 4) & (score > -torch.inf), torch.inf)
        score = score.masked_fill(rank >= _column(block.widest, rank), -torch.inf)
        place = _rank(score.flatten(2)).view_as(rank)
        return (place < quotas * score.shape[2]) & (score > -torch.inf)


def attention_mass(block: Block) -> Tensor:
    """Attention that the latent queries put on a state (method, section 3)."""
    return block.mass


def recency(block: Block) -> Tensor:
    """The later the token, the higher."""
    return torch.arange(block.mass.shape[-1], device=block.mass.device).expand(block.mass.shape).float()


def small_key(block: Block) -> Tensor:
    """The shorter the key, the higher: short keys tend to draw attention (Devoto et al., arXiv 2406.11430)."""
    return -block.keys.float().norm(dim=-1)


def mass_times_value(block: Block) -> Tensor:
    """Attention mass times the value's norm: what a state adds to the output at most (Guo et al., arXiv 2406.12335)."""
    return block.mass * block.values.float().norm(dim=-1)


def drawn(block: Block) -> Tensor:
    """A number per (seed, layer, head, position), the same in any batch and on any device."""
    device = block.mass.device
    heads = torch.arange(block.mass.shape[2], device=device)[:, None]
    layers = on_device(block.layers, device).view(-1, 1, 1, 1)
    number = _scrambled(_column(block.seeds, block.mass))
    for step in (layers, heads, block.positions.long()):
        number = _scrambled(number ^ step)
    return number.float() / 2**32


SELECTORS: dict[str, Selector] = {
    selector.stage: selector
    for selector in (
        Selector("full", attention_mass, "every prompt state", mass="none", fixed=sys.maxsize),
        Selector("gen", attention_mass, "no prompt state: sink, history and latent only", mass="none", fixed=0),
        Selector("headwise", attention_mass, "per KV head, the states of largest attention mass", per_head=True),
        Selector("layerwise", attention_mass, "per layer, one set by the mass summed over its KV heads"),
        Selector("random", drawn, "control: drawn evenly, seeded per sample", mass="none"),
        Selector("recent", recency, "control: the last states", mass="none"),
        Selector("key-norm", small_key, "control: the shortest keys", mass="none"),
        Selector("value-aware", mass_times_value, "control: mass times the value's norm"),
        Selector("oracle", attention_mass, "upper bound: mass from the next agent's prompt", mass="next"),
    )
}


def _best(score: Tensor, quotas: tuple[int, ...]) -> Tensor:
    """The ``quotas[row]`` highest scores of every head, the earlier of equal ones; as ``score``, bool."""
    # what a stable sort would say, for a quarter of its time
    quota = _column(quotas, score)
    top = score.topk(max(1, *quotas), dim=-1).values
    least = top.gather(-1, (quota - 1).clamp_min(0).expand(*top.shape[:-1], 1))
    above, level = score > least, score == least
    return above | (level & (level.cumsum(-1) <= quota - above.sum(-1, keepdim=True)))


def _rank(score: Tensor) -> Tensor:
    """The place of every token in descending order of score, 0 for the best; equal scores in order of position."""
    order = score.sort(dim=-1, descending=True, stable=True).indices
    places = torch.arange(score.shape[-1], device=score.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def _column(per_row: tuple[int, ...], like: Tensor) -> Tensor:
    """Host integers per row as (1, rows, 1, 1) on the device of ``like``."""
    return on_device(per_row, like.device).view(1, -1, 1, 1)


def _scrambled(number: Tensor) -> Tensor:
    """A 32-bit integer hash (the finaliser of MurmurHash3, public domain) held in int64."""
    number = number & 0xFFFFFFFF
    number = ((number ^ (number >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    number = ((number ^ (number >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return number ^ (number >> 16)
