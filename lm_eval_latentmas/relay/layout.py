"""Which stretches of a segment a relay is made of, and which of them a budget applies to; host integers only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Segment, on_device
from lm_eval_latentmas.relay.selectors import Block, Selector, blank
from lm_eval_latentmas.relay.settings import RelaySettings

# bytes to work in: on a CPU what its caches hold, at most the given part of the segment unless that is very little
ROOM = 1 << 24
LITTLE = 1 << 22
PART = 4
ROOM_ON_A_DEVICE = 1 << 30


@dataclass(frozen=True)
class Piece:
    """One stretch of every row of a segment, ``count`` states from slot ``start`` on, that the relay takes over."""

    start: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def slots(self) -> tuple[int, ...]:
        """What it takes up in the relay, per row."""
        return self.count


@dataclass(frozen=True)
class Region(Piece):
    """A stretch that a budget applies to: of ``count`` candidates ``quotas`` stay, in one head at most ``widest``."""

    name: Literal["history", "prompt", "latent"]
    quotas: tuple[int, ...]
    widest: tuple[int, ...]

    @property
    def slots(self) -> tuple[int, ...]:
        """What it takes up in the relay, per row."""
        return self.widest

    @property
    def span(self) -> slice:
        """The slots that hold the region in some row."""
        ends = [start + count for start, count in zip(self.start, self.count, strict=True)]
        return slice(min(self.start), max(ends))

    def block(self, segment: Segment, layers: tuple[int, ...]) -> Block:
        """What selectors and compensations see of the region in some layers."""
        candidates = self._candidates(segment, layers)
        begin = self.span.start
        ends = [start + count for start, count in zip(self.start, self.count, strict=True)]
        extents = tuple((start - begin, end - begin) for start, end in zip(self.start, ends, strict=True))
        extents = extents if segment.holes is None else None

        def stacked(tensors: tuple[Tensor, ...]) -> Tensor:
            if len(layers) == 1 and self.even and extents:
                return tensors[layers[0]][None, :, :, self.span]
            # beyond a row's end lies rubbish: zero weights would not silence a NaN
            return blank(torch.stack([tensors[layer][:, :, self.span] for layer in layers]), extents, candidates)

        values, mass = stacked(segment.values), segment.mass
        return Block(
            load_keys=lambda: stacked(segment.keys),
            values=values,
            mass=stacked(mass).float() if mass else torch.zeros(values.shape[:-1], device=values.device),
            candidates=candidates,
            positions=torch.stack([segment.positions[layer][:, :, self.span] for layer in layers]),
            layers=layers,
            seeds=segment.seeds or (0,) * len(self.start),
            quotas=self.quotas,
            widest=self.widest,
            extents=extents,
        )

    @property
    def adaptive(self) -> bool:
        """Its heads may hold unequal counts."""
        return self.widest != self.quotas

    @property
    def even(self) -> bool:
        """The region lies in the same slots of every row."""
        return len(set(zip(self.start, self.count, strict=True))) == 1

    def _candidates(self, segment: Segment, layers: tuple[int, ...]) -> Tensor:
        device = segment.keys[layers[0]].device
        slots = torch.arange(self.span.start, self.span.stop, device=device)
        start, count = column(self.start, device), column(self.count, device)
        inside = ((slots >= start) & (slots < start + count))[None]
        if segment.holes is None:
            return inside
        return inside & ~torch.stack([segment.holes[layer][:, :, self.span] for layer in layers])


def plan(segment: Segment, selector: Selector, settings: RelaySettings) -> tuple[list[Piece], list[Region]]:
    """The stretches of the relay in order, and those of them that lose states."""
    first = [not history for history in segment.history]
    sink = sinks(segment)
    inherited_sink = tuple(0 if new else size for new, size in zip(first, sink, strict=True))
    prompt_sink = tuple(size if new else 0 for new, size in zip(first, sink, strict=True))
    prompt_end = _added(segment.history, segment.prompt)
    pieces = [
        Piece((0,) * len(sink), inherited_sink),
        _budgeted("history", inherited_sink, segment.history, settings.history_budget, selector),
        Piece(segment.history, prompt_sink),
        _budgeted("prompt", _added(segment.history, prompt_sink), prompt_end, settings.kv_budget, selector),
        _budgeted("latent", prompt_end, segment.lengths, settings.latent_budget, selector),
    ]
    # an empty relay keeps one piece, so that it still has rows
    pieces = [piece for piece in pieces if any(piece.slots)] or pieces[:1]
    return pieces, [piece for piece in pieces if isinstance(piece, Region)]


def lengths(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """Slots of the relay, per row."""
    return tuple(map(sum, zip(*(piece.slots for piece in pieces), strict=True)))


def sinks(segment: Segment) -> tuple[int, ...]:
    """Sink states that each row really holds."""
    holders = [history or prompt for history, prompt in zip(segment.history, segment.prompt, strict=True)]
    return tuple(min(size, holder) for size, holder in zip(segment.sink, holders, strict=True))


def chunks(segment: Segment, regions: list[Region], limit: int | None) -> Iterator[tuple[int, ...]]:
    """Layers that are worked on together: equal shape, dtype and device, and within ``limit`` bytes.

    Without a limit: on a CPU what its caches hold and the segment dwarfs, on a device what makes products large.
    """
    if limit is None:
        held = sum(states.nbytes for states in (*segment.keys, *segment.values))
        on_cpu = segment.keys[0].device.type == "cpu"
        limit = min(ROOM, max(LITTLE, held // PART)) if on_cpu else ROOM_ON_A_DEVICE

    def kind(layer: int) -> tuple:
        keys, values = segment.keys[layer], segment.values[layer]
        return keys.shape, values.shape, keys.dtype, keys.device

    for _, run in groupby(range(len(segment.keys)), key=kind):
        layers = tuple(run)
        rows, heads, _, width = segment.values[layers[0]].shape
        tokens = max((region.span.stop - region.span.start for region in regions), default=1)
        # the values, their dropped part, its residual and one temporary, in float64
        together = max(1, limit // (rows * heads * tokens * width * 8 * 4))
        for start in range(0, len(layers), together):
            yield layers[start : start + together]


def column(per_row: tuple[int, ...], device: torch.device) -> Tensor:
    """Host integers as (rows, 1, 1) on a device."""
    return on_device(per_row, device).view(-1, 1, 1)


def _budgeted(
    name: str, start: tuple[int, ...], end: tuple[int, ...], budget: int | float | None, selector: Selector
) -> Piece:
    """The stretch from ``start`` to ``end``: whole where nothing is lost, empty where nothing stays."""
    count = tuple(stop - first for first, stop in zip(start, end, strict=True))
    if budget is None:
        return Piece(start, count)
    quotas = tuple(selector.quota(budget, candidates) for candidates in count)
    if quotas == count or not any(quotas):
        return Piece(start, quotas)
    widest = tuple(selector.widest(quota, candidates) for quota, candidates in zip(quotas, count, strict=True))
    return Region(start, count, name, quotas, widest)


def _added(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))
