"""The states that travel: a Segment is one agent's cache at the hand-off, a Relay what the next agent gets.

Both are ragged batches with dense rows: row b of a layer's tensor holds its real states in slots
``0 .. lengths[b] - 1`` and rubbish behind them, so pads never survive a hand-off. Lengths are host integers;
no code here waits for a device. Imports torch only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """One agent's cache at the hand-off, laid out per row as ``[ history | prompt | latent ]`` (method, section 1).

    keys, values: one tensor per layer, (rows, kv_heads, slots, head_dim), already rotated keys.
    mass: one tensor per layer, (rows, kv_heads, slots), float32: attention weight that the latent queries put on
        every slot, summed over the latent steps and over the query heads of the KV head's group; None if nobody asked.
    history, prompt, latent: real states per row, in this order.
    sink: states at the start of the row (of the prompt for the first agent, of the history later) that always stay.
    cursors: the next unused position per row (``timeline``).
    positions: per layer, (rows, 1 or kv_heads, slots) int32, the rotary position of every state.
    holes: per layer, (rows, kv_heads, slots) bool, True where a slot below the length holds nothing (heads that keep
        unequal counts); None when there are none.
    seeds: one integer per row for selectors that draw; the same row has the same seed in any batch.
    origins: the incoming relay's ``origins``, handed on as they are; None for the first agent.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mass: tuple[Tensor, ...] | None
    history: tuple[int, ...]
    prompt: tuple[int, ...]
    latent: tuple[int, ...]
    sink: tuple[int, ...]
    cursors: tuple[int, ...]
    positions: tuple[Tensor, ...]
    holes: tuple[Tensor, ...] | None = None
    seeds: tuple[int, ...] | None = None
    origins: tuple[Tensor, ...] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Real states per row."""
        return tuple(h + p + g for h, p, g in zip(self.history, self.prompt, self.latent, strict=True))


class Decoder(Protocol):
    """What a relay asks of the codec that wrote its payload."""

    name: str

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The keys and values of one layer, (rows, kv_heads, slots, head_dim)."""
        ...


@dataclass(frozen=True)
class Relay:
    """What the next agent gets, per row ``[ history | sink (first agent) | kept, ascending | latent ]``; read-only.

    parts: per layer, the named tensors that the codec wrote: (rows, kv_heads, slots, width) where every state has its
        own, (rows, kv_heads, width) where the states of a row share one. Padding slots hold zeros.
    codec: reads them. dtype: of the decoded states.
    lengths: slots in use per row. sinks: states at the start of the row that always stay. cursors: the next position
        per row, counting every token ever processed.
    positions: per layer, (rows, 1 or kv_heads, slots) int32. holes: per layer, (rows, kv_heads, slots) bool, True where
        a slot below the length holds nothing; None when there are none.
    origins: per layer, (rows, 1 or kv_heads, slots) bool, True where the state came from a prompt, not from a latent
        step.
    """

    parts: tuple[dict[str, Tensor], ...]
    codec: Decoder
    dtype: torch.dtype
    lengths: tuple[int, ...]
    sinks: tuple[int, ...]
    cursors: tuple[int, ...]
    positions: tuple[Tensor, ...]
    origins: tuple[Tensor, ...]
    holes: tuple[Tensor, ...] | None = None

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.parts)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory: payload, positions, origins and holes."""
        held = [part for parts in self.parts for part in parts.values()]
        return sum(tensor.nbytes for tensor in (*held, *self.positions, *self.origins, *(self.holes or ())))

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Decoded keys and values of one layer, each (rows, kv_heads, slots, head_dim)."""
        return self.codec.decode(self.parts[index], self.dtype)

    def shape(self, index: int) -> tuple[int, int, int]:
        """KV heads, width of a key and width of a value in one layer."""
        # no rows to decode, yet all the shapes
        keys, values = self.codec.decode({name: part[:0] for name, part in self.parts[index].items()}, self.dtype)
        return keys.shape[1], keys.shape[-1], values.shape[-1]

    def row(self, index: int) -> Relay:
        """One row at its exact size, in memory of its own."""
        slots, one = self.lengths[index], slice(index, index + 1)

        def cut(tensor: Tensor) -> Tensor:
            return tensor[one].narrow(2, 0, slots).clone(memory_format=torch.contiguous_format)

        return replace(
            self,
            parts=tuple(
                {name: cut(part) if part.dim() == 4 else part[one].clone() for name, part in parts.items()}
                for parts in self.parts
            ),
            lengths=self.lengths[one],
            sinks=self.sinks[one],
            cursors=self.cursors[one],
            positions=tuple(map(cut, self.positions)),
            origins=tuple(map(cut, self.origins)),
            holes=self.holes and tuple(map(cut, self.holes)),
        )

    @classmethod
    def join(cls, relays: Sequence[Relay]) -> Relay:
        """Several relays of one compressor as one batch; shorter rows are padded with zeros."""
        slots = max(length for relay in relays for length in relay.lengths)
        holes = [relay.holes for relay in relays]
        if any(holes):
            holes = [held or tuple(map(torch.zeros_like, r.origins)) for held, r in zip(holes, relays, strict=True)]
        return replace(
            relays[0],
            parts=tuple(
                {name: torch.cat([_padded(p[name], slots) for p in parts]) for name in parts[0]}
                for parts in zip(*(relay.parts for relay in relays), strict=True)
            ),
            lengths=tuple(length for relay in relays for length in relay.lengths),
            sinks=tuple(sink for relay in relays for sink in relay.sinks),
            cursors=tuple(cursor for relay in relays for cursor in relay.cursors),
            positions=_stacked([relay.positions for relay in relays], slots),
            origins=_stacked([relay.origins for relay in relays], slots),
            holes=_stacked(holes, slots) if any(holes) else None,
        )

    def to(self, devices: Sequence[torch.device]) -> Relay:
        """The same relay with every layer on its device, still encoded."""
        return replace(
            self,
            parts=tuple(
                {name: part.to(device) for name, part in parts.items()}
                for parts, device in zip(self.parts, devices, strict=True)
            ),
            positions=_placed(self.positions, devices),
            origins=_placed(self.origins, devices),
            holes=self.holes and _placed(self.holes, devices),
        )

    def states(self, index: int) -> float:
        """States that a row holds, as a mean over layers and heads."""
        if self.holes is None:
            return float(self.lengths[index])
        empty = sum(float(hole[index].sum()) / hole.shape[1] for hole in self.holes)
        return self.lengths[index] - empty / self.layers

    def prompt_states(self, index: int) -> float:
        """Prompt states that a row holds since the chain began, sink included, as a mean over layers and heads."""
        held = [origin[index, :, : self.lengths[index]] for origin in self.origins]
        if self.holes is not None:
            held = [h & ~hole[index, :, : h.shape[-1]] for h, hole in zip(held, self.holes, strict=True)]
        return sum(float(h.sum()) / h.shape[0] for h in held) / self.layers

    def message_bytes(self, index: int) -> int:
        """Length of the message that carries a row to another process."""
        from lm_eval_latentmas.relay import wire  # a relay can be held where nothing is ever sent

        return wire.message_bytes(self, index)


def on_device(numbers: Sequence, device: torch.device) -> Tensor:
    """Host integers (or lists of them) as an int64 tensor, handed over without waiting for the device."""
    tensor = torch.tensor(numbers, dtype=torch.int64)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _padded(part: Tensor, slots: int) -> Tensor:
    return torch.nn.functional.pad(part, (0, 0, 0, slots - part.shape[2])) if part.dim() == 4 else part


def _placed(tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> tuple[Tensor, ...]:
    return tuple(tensor.to(device) for tensor, device in zip(tensors, devices, strict=True))


def _stacked(batches: Sequence[tuple[Tensor, ...]], slots: int) -> tuple[Tensor, ...]:
    """Per layer, the rows of all batches as (rows, 1 or kv_heads, slots), padded with zeros."""
    stacked = []
    for tensors in zip(*batches, strict=True):
        heads = max(tensor.shape[1] for tensor in tensors)
        padded = [torch.nn.functional.pad(t, (0, slots - t.shape[2])).expand(-1, heads, -1) for t in tensors]
        stacked.append(torch.cat(padded))
    return tuple(stacked)
