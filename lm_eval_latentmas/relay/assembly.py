"""A relay's tensors from a segment's: every slot is copied from its source, kept values are put in as corrected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Segment, on_device
from lm_eval_latentmas.relay.layout import Piece, Region, column, lengths
from lm_eval_latentmas.relay.selectors import Selection

Chosen = Mapping[Region, tuple[Selection, Tensor | None]]


@dataclass(frozen=True)
class Slots:
    """What one layer's slots hold: positions, origins and filled as (rows, 1 or kv_heads, slots), holes per head."""

    positions: Tensor
    origins: Tensor
    filled: Tensor
    holes: Tensor


def assemble(
    segment: Segment, pieces: Sequence[Piece], chosen: Chosen, layers: tuple[int, ...]
) -> Iterator[tuple[Tensor, Tensor, Slots]]:
    """Keys, values, each (rows, kv_heads, slots, head_dim), and slots of the given layers, one layer after the other.

    Nothing shares memory with the segment; what is not filled holds zeros.
    """
    device = segment.keys[layers[0]].device
    sizes = lengths(pieces)
    whole = segment.holes is None and min(sizes) == max(sizes) and not any(region.adaptive for region in chosen)
    source, filled, used = _sources(pieces, chosen, len(layers), device)
    positions = _taken(torch.stack([segment.positions[layer] for layer in layers]), source)
    origins = _taken(_origins(segment, layers, device), source)
    if segment.holes is not None:
        filled = filled & ~_taken(torch.stack([segment.holes[layer] for layer in layers]), source)
    for place, layer in enumerate(layers):
        keys = _copied(segment.keys[layer], source[place], None if whole else filled[place])
        values = _copied(segment.values[layer], source[place], None if whole else filled[place])
        for region, (selection, corrected) in chosen.items():
            if corrected is not None and whole:
                _put_whole(values, corrected[place], region.slots, _offset(pieces, region))
            elif corrected is not None:
                _put(values, corrected[place], selection.filled[place], _offset(pieces, region))
        holes = (used & ~filled[place]).expand(-1, keys.shape[1], -1)
        there = filled[place]
        yield keys, values, Slots(positions[place].masked_fill(~there, 0), origins[place] & there, there, holes)


def _sources(
    pieces: Sequence[Piece], chosen: Chosen, layers: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """For every slot of the relay its slot in the segment, whether it holds a state, and whether its row has it.

    The first two are (layers, rows, heads, slots), the last (rows, 1, slots).
    """
    heads = max((selection.index.shape[2] for selection, _ in chosen.values()), default=1)
    stretches = [_stretch(piece, chosen, device) for piece in pieces]
    shape = (layers, len(pieces[0].start), heads, -1)
    source = torch.cat([index.expand(shape) for index, _ in stretches], dim=-1)
    filled = torch.cat([there.expand(shape) for _, there in stretches], dim=-1)
    order = on_device(_order(pieces), device)[:, None].expand(*source.shape[:3], -1)
    used = torch.arange(order.shape[-1], device=device) < column(lengths(pieces), device)
    return source.gather(-1, order), filled.gather(-1, order) & used, used


def _stretch(piece: Piece, chosen: Chosen, device: torch.device) -> tuple[Tensor, Tensor]:
    """A piece's slots in the segment, side by side for all rows, and which of them there are."""
    if piece in chosen:
        selection, _ = chosen[piece]
        return selection.index + piece.span.start, selection.filled
    places = torch.arange(max(piece.slots), device=device)
    there = places < column(piece.slots, device)
    return (column(piece.start, device) + places).masked_fill(~there, 0), there


def _order(pieces: Sequence[Piece]) -> list[list[int]]:
    """Per row, the side-by-side slots without the gaps between pieces, padded with 0 to the longest row."""
    begins, widest = [0], max(lengths(pieces))
    for piece in pieces:
        begins.append(begins[-1] + max(piece.slots))
    rows = []
    for counts in zip(*(piece.slots for piece in pieces), strict=True):
        row = [begin + place for begin, count in zip(begins, counts, strict=False) for place in range(count)]
        rows.append(row + [0] * (widest - len(row)))
    return rows


def _offset(pieces: Sequence[Piece], region: Region) -> tuple[int, ...]:
    """Where a region begins in the relay, per row."""
    before = pieces[: pieces.index(region)]
    return lengths(before) if before else (0,) * len(region.start)


def _origins(segment: Segment, layers: tuple[int, ...], device: torch.device) -> Tensor:
    """Which slots of the segment hold prompt states, (layers, rows, 1 or kv_heads, slots)."""
    slots = torch.arange(segment.keys[layers[0]].shape[2], device=device)
    history = column(segment.history, device)
    own = (slots >= history) & (slots < history + column(segment.prompt, device))
    if segment.origins is None:
        return own.expand(len(layers), -1, -1, -1)
    inherited = torch.stack([segment.origins[layer].to(device) for layer in layers])[..., : len(slots)]
    inherited = torch.nn.functional.pad(inherited, (0, len(slots) - inherited.shape[-1]))
    return torch.where(slots < history, inherited, own)


def _taken(states: Tensor, source: Tensor) -> Tensor:
    """(layers, rows, heads, slots) read at ``source``, with as many heads as either has."""
    heads = max(states.shape[2], source.shape[2])
    return states.expand(-1, -1, heads, -1).gather(-1, source.expand(-1, -1, heads, -1))


def _copied(states: Tensor, source: Tensor, filled: Tensor | None) -> Tensor:
    """(rows, kv_heads, slots, head_dim) read at ``source`` (rows, 1 or kv_heads, slots), zeros where not filled."""
    rows, heads, slots, width = states.shape
    if states.stride(3) != 1 or states.stride(2) != width or states.stride(0) % width or states.stride(1) % width:
        states = states.contiguous()
    # the same as indexing by row, head and slot, at half of the cost
    row, head = states.stride(0) // width, states.stride(1) // width
    flat = states.as_strided(((rows - 1) * row + (heads - 1) * head + slots, width), (width, 1))
    first = row * torch.arange(rows, device=states.device)[:, None] + head * torch.arange(heads, device=states.device)
    copied = flat.index_select(0, (first[..., None] + source).flatten()).view(rows, heads, -1, width)
    return copied if filled is None else copied.masked_fill_(~filled[..., None], 0)


def _put_whole(values: Tensor, corrected: Tensor, counts: tuple[int, ...], offset: tuple[int, ...]) -> None:
    """`_put` where every head of a row holds ``counts`` of them: rows are runs, equal ones go together."""
    if len(set(zip(counts, offset, strict=True))) == 1:
        values[:, :, offset[0] : offset[0] + counts[0]] = corrected
        return
    for row, (count, start) in enumerate(zip(counts, offset, strict=True)):
        values[row, :, start : start + count] = corrected[row, :, :count]


def _put(values: Tensor, corrected: Tensor, filled: Tensor, offset: tuple[int, ...]) -> None:
    """Write corrected values (rows, kv_heads, slots, head_dim) in place, from slot ``offset`` of each row on."""
    slots = torch.arange(corrected.shape[2], device=values.device)
    # a short row's unfilled slots run past its region: they wrap around and write back what is there
    places = (column(offset, values.device) + slots) % values.shape[2]
    places = places[..., None].expand(corrected.shape)
    there = values.gather(2, places)
    values.scatter_(2, places, torch.where(filled[..., None], corrected.to(values.dtype), there))
