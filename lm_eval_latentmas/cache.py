"""The states that travel: a Segment is one agent's cache at the hand-off, a Relay what the next agent gets.

Both are ragged batches with dense rows: row b of a layer's tensor holds its real states in slots
``0 .. lengths[b] - 1`` and rubbish behind them, so pads never survive a hand-off. Lengths are host integers;
no code here waits for a device. Imports torch only.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def lengths(self) -> tuple[int, ...]:
        """Real states per row."""
        return tuple(h + p + g for h, p, g in zip(self.history, self.prompt, self.latent, strict=True))
