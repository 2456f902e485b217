"""The cache that the model reads and writes: preallocated, dense per row, with masks and positions worked out here.

Row b's real states lie in slots ``0 .. lengths[b] - 1`` of every layer. A forward pass writes its new states behind
them; pads at the end of a prompt are written too, but stay beyond the length, are masked for every real query, and
are overwritten by the next write.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import Cache

from lm_eval_latentmas.cache import Relay, Segment


class LiveCache(Cache):
    """Keys and values of a batch of rows of unequal length, written in place.

    lengths: real states per row. cursors: the next position per row. history: states per row that came in with a
    relay; whatever lies behind them has consecutive positions that end at the cursor.
    """

    def __init__(self, layers: int, rows: int) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.mass: list[Tensor | None] | None = None
        self.queries: list[Tensor | None] = []
        self.lengths = [0] * rows
        self.history = [0] * rows
        self.cursors = [0] * rows
        self._held_positions: list[Tensor] | None = None
        self._held_holes: list[Tensor] | None = None
        self._reserved = 0
        self._width = 0
        self._real: list[int] = []
        self._every_query = False
        self._on_device: dict[tuple, Tensor] = {}

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return len(self.lengths)

    @classmethod
    def from_relay(cls, relay: Relay, cursors: Sequence[int], *, reserve: int) -> LiveCache:
        """A cache that begins with a copy of ``relay`` and has room for ``reserve`` more states per row."""
        cache = cls(relay.layers, relay.rows)
        cache.lengths, cache.history, cache.cursors = list(relay.lengths), list(relay.lengths), list(cursors)
        cache._held_positions, cache._reserved = list(relay.positions), reserve
        cache._held_holes = None if relay.holes is None else list(relay.holes)
        for index in range(relay.layers):
            keys, values = relay.layer(index)
            cache.keys[index] = _with_room(keys, max(relay.lengths) + reserve)
            cache.values[index] = _with_room(values, max(relay.lengths) + reserve)
        return cache

    # -- one forward pass: open, let the model call `update` for every layer, close -----------------

    def reserve(self, states: int) -> None:
        """Promise that about ``states`` more states per row will be written, so that buffers are made once."""
        self._reserved = states

    def track_mass(self) -> None:
        """From now on sum the attention weight that one-token queries put on every slot."""
        self.mass = [None] * len(self.keys)

    @contextmanager
    def looking_ahead(self, *, mass: bool = True) -> Iterator[None]:
        """Around a pass whose queries are wanted and whose states are not: they are forgotten after.

        The rotated queries stay in ``queries``, per layer (rows, heads, width, head_dim); with ``mass`` the attention
        weight that they put on every slot replaces what was summed before.
        """
        before = list(self.lengths), list(self.cursors), self.mass
        self.mass = [None] * len(self.keys) if mass else None
        self.queries, self._every_query = [None] * len(self.keys), True
        yield
        self._every_query = False
        self.lengths, self.cursors = before[:2]
        self.mass = self.mass if mass else before[2]

    def note_queries(self, layer_idx: int, queries: Tensor) -> None:
        """Keep a pass's rotated queries where they were asked for."""
        if self._every_query:
            self.queries[layer_idx] = queries

    def counted_queries(self, width: int, device: torch.device) -> Tensor | None:
        """Which of a pass's queries add to the mass: (rows, width) of 0 and 1; None where the pass is not counted."""
        if self.mass is None or (width > 1 and not self._every_query):
            return None
        real = torch.tensor(self._real, device=device)[:, None]
        return self._cached("counted", device, lambda: (torch.arange(width, device=device) < real).float())

    @contextmanager
    def writing(self, new: Sequence[int], width: int, device: torch.device) -> Iterator[Tensor]:
        """Around one forward pass over ``width`` tokens a row, ``new[b]`` of them real.

        Yields their positions, (rows, width). Afterwards the real ones count as states.
        """
        self._width, self._real, self._on_device = width, list(new), {}
        offsets = torch.arange(width, device=device)
        yield torch.tensor(self.cursors, device=device)[:, None] + offsets
        self.lengths = [length + count for length, count in zip(self.lengths, new, strict=True)]
        self.cursors = [cursor + count for cursor, count in zip(self.cursors, new, strict=True)]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write one layer's new states, (rows, kv_heads, width, head_dim); return all states up to the longest row."""
        for buffers, states in ((self.keys, keys), (self.values, values)):
            buffers[layer_idx] = self._write(buffers[layer_idx], states)
        end = self._end
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]

    def add_mass(self, layer_idx: int, weight: Tensor) -> None:
        """Add attention weights summed over a KV head's queries, (rows, kv_heads, slots), float32."""
        held = self.mass[layer_idx]
        if held is None or held.shape[-1] < weight.shape[-1]:
            held = _with_room(weight.new_zeros(*weight.shape[:2], 0), self.keys[layer_idx].shape[2], old=held)
            self.mass[layer_idx] = held
        held[:, :, : weight.shape[-1]] += weight

    def _write(self, buffer: Tensor | None, states: Tensor) -> Tensor:
        end = self._end
        if buffer is None or buffer.shape[2] < end:
            room = max(end, max(self.lengths) + max(self._reserved, self._width))
            empty = states.new_zeros(states.shape[0], states.shape[1], 0, states.shape[3])
            buffer = _with_room(empty, room, old=buffer)
        if min(self.lengths) == max(self.lengths):
            buffer[:, :, self.lengths[0] : end] = states
        else:
            slots = self._slots(states.device)
            rows = self._cached("rows", states.device, lambda: torch.arange(self.rows, device=states.device)[:, None])
            buffer[rows, :, slots] = states.transpose(1, 2)
        return buffer

    # -- what a pass may see ------------------------------------------------------------------------

    def mask(self, layer_idx: int, window: int | None, device: torch.device, group: int = 1) -> Tensor:
        """Which slots the new tokens may read: bool, (rows, 1 or kv_heads, group * width, slots), True where visible.

        A window counts positions, not slots, so it means the same after an eviction as in the dense model. ``group``
        repeats the mask for the queries that share a KV head; a single token needs no repeating, it broadcasts.
        """
        has_holes = self._held_holes is not None
        layer = layer_idx if has_holes or (window is not None and self._held_positions is not None) else None

        def make() -> Tensor:
            visible = self._visible(device)
            if has_holes or window is not None:
                visible = self._narrowed(visible, layer_idx, window)
            return visible if group == 1 or self._width == 1 else tiled(visible, group)

        return self._cached(("mask", window, layer, group), device, make)

    def _visible(self, device: torch.device) -> Tensor:
        slots = torch.arange(self._end, device=device)
        return slots <= self._slots(device)[:, None, :, None]

    def _narrowed(self, visible: Tensor, layer_idx: int, window: int | None) -> Tensor:
        device = visible.device
        if (holes := self._holes(layer_idx, device)) is not None:
            visible = visible & ~holes[:, :, None, :]
        if window is not None:
            start = torch.tensor(self.cursors, device=device)[:, None]
            queries = start + torch.arange(self._width, device=device)
            keys = self.positions(layer_idx, device, self._end)
            visible = visible & (queries[:, None, :, None] - keys[:, :, None, :] < window)
        return visible

    def positions(self, layer_idx: int, device: torch.device, slots: int) -> Tensor:
        """The rotary position of every slot of a layer: (rows, 1 or kv_heads, slots) int32."""
        index = torch.arange(slots, device=device)
        history = torch.tensor(self.history, device=device)[:, None, None]
        first = [c - (n - h) for c, n, h in zip(self.cursors, self.lengths, self.history, strict=True)]
        own = torch.tensor(first, device=device)[:, None, None] + index - history
        if self._held_positions is None:
            return own.to(torch.int32)
        held = self._held_positions[layer_idx].to(device)
        held = torch.nn.functional.pad(held[..., :slots], (0, max(0, slots - held.shape[-1])))
        return torch.where(index < history, held, own).to(torch.int32)

    def _holes(self, layer_idx: int, device: torch.device) -> Tensor | None:
        if self._held_holes is None:
            return None
        held = self._held_holes[layer_idx].to(device)
        return torch.nn.functional.pad(held, (0, max(0, self._end - held.shape[-1])))[..., : self._end]

    def _slots(self, device: torch.device) -> Tensor:
        """Where the new tokens go: (rows, width)."""
        return self._cached(
            "slots",
            device,
            lambda: torch.tensor(self.lengths, device=device)[:, None] + torch.arange(self._width, device=device),
        )

    def _cached(self, name: object, device: torch.device, make: object) -> Tensor:
        key = (name, device)
        if key not in self._on_device:
            self._on_device[key] = make()
        return self._on_device[key]

    # -- rows that come and go ----------------------------------------------------------------------

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only the given rows, in the given order."""

        def picked(tensors: list[Tensor] | None) -> list[Tensor] | None:
            return tensors and [tensor[torch.tensor(rows, device=tensor.device)] for tensor in tensors]

        self.keys, self.values = picked(self.keys), picked(self.values)
        self._held_positions, self._held_holes = picked(self._held_positions), picked(self._held_holes)
        for name in ("lengths", "history", "cursors"):
            held = getattr(self, name)
            setattr(self, name, [held[row] for row in rows])

    def branch(self, rows: Sequence[int]) -> LiveCache:
        """A cache of its own that begins with copies of the given rows, some of them several times."""
        other = copy.copy(self)
        other.keep_rows(rows)
        return other

    def replace_rows(self, rows: Sequence[int], other: LiveCache) -> None:
        """Put the rows of ``other`` into ``rows`` of this cache; a row index of `rows` or above adds a row."""
        count = max(self.rows, max(rows) + 1)
        room = max(self.keys[0].shape[2], other.keys[0].shape[2])
        for mine, theirs, size in (
            (self.keys, other.keys, room),
            (self.values, other.values, room),
            *self._inherited_pairs(other),
        ):
            for index, incoming in enumerate(theirs):
                mine[index] = _with_rows(mine[index], rows, incoming, count, size)
        for name in ("lengths", "history", "cursors"):
            held = getattr(self, name)
            held += [0] * (count - len(held))
            for row, value in zip(rows, getattr(other, name), strict=True):
                held[row] = value

    def _inherited_pairs(self, other: LiveCache) -> list[tuple[list[Tensor], list[Tensor], None]]:
        if (self._held_holes is None) != (other._held_holes is None):
            raise ValueError("rows with and without holes cannot share a cache")
        pairs = [(self._held_positions, other._held_positions, None), (self._held_holes, other._held_holes, None)]
        return [pair for pair in pairs if pair[0] is not None]

    # -- hand-off -----------------------------------------------------------------------------------

    def segment(self, *, prompt: Sequence[int], latent: int, sink: Sequence[int], **fields: object) -> Segment:
        """What an agent hands to its compressor: views of the buffers, valid until the cache is written again."""
        end = max(self.lengths)
        positions = tuple(self.positions(index, keys.device, end) for index, keys in enumerate(self.keys))
        holes = None
        if self._held_holes is not None:
            self._width = 0
            holes = tuple(self._holes(index, keys.device) for index, keys in enumerate(self.keys))
        return Segment(
            keys=tuple(keys[:, :, :end] for keys in self.keys),
            values=tuple(values[:, :, :end] for values in self.values),
            mass=None if self.mass is None else tuple(self._mass(index, end) for index in range(len(self.keys))),
            history=tuple(self.history),
            prompt=tuple(prompt),
            latent=tuple([latent] * self.rows),
            sink=tuple(sink),
            cursors=tuple(self.cursors),
            positions=positions,
            holes=holes,
            **fields,
        )

    def _mass(self, layer_idx: int, end: int) -> Tensor:
        """A layer's mass over all slots; zeros where no query was counted (``latent_steps=0``)."""
        held = self.mass[layer_idx]
        if held is None:
            rows, heads = self.keys[layer_idx].shape[:2]
            return torch.zeros((rows, heads, end), device=self.keys[layer_idx].device)
        return held[:, :, :end]

    # -- what transformers asks of any cache --------------------------------------------------------

    @property
    def _end(self) -> int:
        return max(self.lengths) + self._width

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """States of the longest row; positions and masks are always given, so no model may rely on it."""
        return max(self.lengths)

    def get_mask_sizes(self, *_: object, **__: object) -> tuple[int, int]:
        """Length and offset of the keys of the pass under way."""
        return self._end, 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values) if t is not None)


def _with_rows(mine: Tensor, rows: Sequence[int], incoming: Tensor, count: int, size: int | None) -> Tensor:
    """``mine`` with the rows of ``incoming`` put at ``rows``, grown to ``count`` rows and enough slots."""
    size = max(mine.shape[2], incoming.shape[2]) if size is None else size
    heads = max(mine.shape[1], incoming.shape[1])
    if mine.shape[:3] != (count, heads, size):
        grown = mine.new_zeros((count, heads, size, *mine.shape[3:]))
        grown[: mine.shape[0], :, : mine.shape[2]] = mine
        mine = grown
    target = torch.tensor(list(rows), device=mine.device)
    mine[target] = 0
    mine[target, :, : incoming.shape[2]] = incoming.expand(-1, heads, *incoming.shape[2:]).to(mine.dtype)
    return mine


def tiled(mask: Tensor, group: int) -> Tensor:
    """Repeat (rows, heads, width, slots) for every query of a group: (rows, heads, group * width, slots)."""
    rows, heads, width, slots = mask.shape
    return mask[:, :, None].expand(rows, heads, group, width, slots).reshape(rows, heads, group * width, slots)


def _with_room(states: Tensor, slots: int, old: Tensor | None = None) -> Tensor:
    """A zeroed buffer of ``slots`` slots that begins with ``old`` (or ``states``).

    Zeroed, because a masked weight of 0 times rubbish that happens to be NaN would still be NaN.
    """
    source = states if old is None else old
    shape = (*source.shape[:2], slots, *source.shape[3:])
    buffer = source.new_zeros(shape)
    kept = min(slots, source.shape[2])
    buffer[:, :, :kept] = source[:, :, :kept]
    return buffer
