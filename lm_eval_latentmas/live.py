"""The cache that the model reads and writes: preallocated, dense per row, with masks and positions worked out here.

Row b's real states lie in slots ``0 .. lengths[b] - 1`` of every layer. A forward pass writes its new states behind
them; pads at the end of a prompt are written too, but stay beyond the length, are masked for every real query, and
are overwritten by the next write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.inherited import Inherited
from lm_eval_latentmas.mass import Mass
from lm_eval_latentmas.passes import Pass

_GROWTH = 8  # a buffer that turns out too small grows by one part in so many


class LiveCache(Cache):
    """Keys and values of a batch of rows of unequal length, written in place.

    keys, values: per layer a buffer (rows or more, kv_heads, slots, head_dim), None before the first write.
    lengths: real states per row. cursors: the next position per row. history: states per row that came in with a
    relay; whatever lies behind them has consecutive positions that end at the cursor. inherited: what is known of them.
    now: the pass under way.
    """

    def __init__(self, layers: int, rows: int) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.queries: list[Tensor | None] = []
        self.lengths = [0] * rows
        self.history = [0] * rows
        self.cursors = [0] * rows
        self.inherited = Inherited()
        self._mass: Mass | None = None
        self._first = 0  # where this cache's rows begin in the buffers
        self._reserved = 0
        self.now = self._next_pass()
        self._notes_queries = False

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return len(self.lengths)

    @classmethod
    def from_relay(cls, relay: Relay, cursors: Sequence[int], *, reserve: int) -> LiveCache:
        """A cache that begins with a copy of ``relay`` and has room for ``reserve`` more states per row."""
        cache = cls(relay.layers, 0)
        cache.reserve(reserve)
        cache._load([relay], cursors)
        return cache

    # -- one forward pass: open, let the model call `update` for every layer, close -----------------

    def reserve(self, states: int) -> None:
        """Promise that about ``states`` more states per row will be written, so that buffers are made once."""
        self._reserved = states

    @contextmanager
    def writing(self, new: Sequence[int], width: int, device: torch.device) -> Iterator[Tensor]:
        """Around one forward pass over ``width`` tokens a row, ``new[b]`` of them real.

        Yields their positions, (rows, width). Afterwards the real ones count as states.
        """
        self.now = self._next_pass(real=list(new), width=width)
        yield self.now.positions(device)
        self.lengths = [length + count for length, count in zip(self.lengths, new, strict=True)]
        self.cursors = [cursor + count for cursor, count in zip(self.cursors, new, strict=True)]

    def _next_pass(self, **fields: Any) -> Pass:
        return Pass(self.lengths, self.cursors, self.history, self.inherited, **fields)

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write one layer's new states, (rows, kv_heads, width, head_dim); return all states up to the longest row."""
        now = self.now
        views = []
        for buffers, states in ((self.keys, keys), (self.values, values)):
            room = max(now.end, now.end - now.width + self._reserved)
            buffers[layer_idx] = _with_room(buffers[layer_idx], states, self._first + self.rows, now.end, room)
            view = buffers[layer_idx][self._first : self._first + self.rows]
            if now.even:
                view[:, :, now.end - now.width : now.end] = states
            else:
                view[now.rows(states.device), :, now.slots(states.device)] = states.transpose(1, 2)
            views.append(view[:, :, : now.end])
        return views[0], views[1]

    def mask(self, layer_idx: int, window: int | None, like: Tensor) -> Tensor | None:
        """What the new tokens may read, see `Pass.mask`."""
        return self.now.mask(layer_idx, window, like)

    @property
    def has_buffers(self) -> bool:
        """Whether every buffer that a pass needs has been made."""
        made = (*self.keys, *(self.weights or ()))
        return not self._first and all(buffer is not None for buffer in made)

    def make_room(self, slots: int) -> None:
        """Let all buffers have at least ``slots`` slots."""
        for buffers in (self.keys, self.values):
            for index, buffer in enumerate(buffers):
                buffers[index] = _with_room(buffer, buffer, self.rows, slots, slots)
        for index, buffer in enumerate(self.weights or ()):
            self.weights[index] = pad(buffer, (0, max(0, self.keys[index].shape[2] - buffer.shape[-1])))

    # -- what the queries of a pass look at ---------------------------------------------------------

    def track_mass(self) -> None:
        """From now on sum the attention weight that one-token queries put on every slot."""
        self._mass = Mass(len(self.keys))

    @contextmanager
    def looking_ahead(self, *, mass: bool = True) -> Iterator[None]:
        """Around passes whose queries are wanted and whose states are not: they are forgotten after.

        The rotated queries stay in ``queries``, per layer (rows, heads, width of all passes, head_dim); with ``mass``
        the attention weight that they put on every slot replaces what was summed before.
        """
        before = list(self.lengths), list(self.cursors), self._mass
        self._mass = Mass(len(self.keys), every=True) if mass else None
        self.queries, self._notes_queries = [None] * len(self.keys), True
        yield
        self._notes_queries = False
        self.lengths, self.cursors = before[:2]
        self._mass = self._mass if mass else before[2]

    def note_queries(self, layer_idx: int, queries: Tensor) -> None:
        """Keep a pass's rotated queries behind those of the passes before it, where they were asked for."""
        if self._notes_queries:
            noted = self.queries[layer_idx]
            self.queries[layer_idx] = queries if noted is None else torch.cat([noted, queries], dim=2)

    @property
    def counts(self) -> bool:
        """Whether queries of the pass under way add to the mass."""
        return self._mass is not None and (self._mass.every or self.now.width == 1)

    def add_mass(self, layer_idx: int, weights: Tensor) -> None:
        """Add a pass's attention weights, (rows, kv_heads, group, width, slots) float32; pads count nothing."""
        counted = self.now.counted(weights.device) if self._mass.every else None
        self._mass.add(layer_idx, weights, counted, self.keys[layer_idx].shape[2])

    @property
    def weights(self) -> list[Tensor | None] | None:
        """The buffers of the mass."""
        return None if self._mass is None else self._mass.weights

    @property
    def mass(self) -> tuple[Tensor, ...] | None:
        """The mass on every slot, per layer (rows, kv_heads, slots) float32; None where nobody asked for it."""
        if self._mass is None:
            return None
        end = max(self.lengths)
        return tuple(self._mass.summed(index, keys, end) for index, keys in enumerate(self.keys))

    # -- rows that come and go ----------------------------------------------------------------------

    def opened(self, relays: Sequence[Relay | None], cursors: Sequence[int], *, reserve: int) -> LiveCache:
        """A cache of new rows behind this one's and in its buffers, one for each relay of a single row.

        Once they have been read into, `take_in` makes them rows of this cache.
        """
        held = [relay for relay in relays if relay is not None]
        new = LiveCache(len(self.keys), 0 if held else len(relays))
        new.keys, new.values, new._first = self.keys, self.values, self._first + self.rows
        new.reserve(reserve)
        if held:
            new._load(held, cursors)
        else:
            new.cursors = list(cursors)
        return new

    def take_in(self, new: LiveCache) -> None:
        """Count the rows of an `opened` cache as this one's."""
        self.lengths += new.lengths
        self.history += new.history
        self.cursors += new.cursors
        self.inherited = self.inherited.joined(new.inherited)

    def drop_row(self, row: int) -> None:
        """Let a row go; the last one takes its place."""
        last = self.rows - 1
        if row != last:
            count, first = self.lengths[last], self._first
            for buffer in (*self.keys, *self.values):
                buffer[first + row, :, :count] = buffer[first + last, :, :count]
        for values in (self.lengths, self.history, self.cursors):
            values[row] = values[last]
            values.pop()
        self.inherited = self.inherited.picked([*range(row), *([last] if row != last else []), *range(row + 1, last)])

    def branch(self, rows: Sequence[int], *, reserve: int = 0) -> LiveCache:
        """A cache of its own that begins with copies of the given rows, some of them several times."""
        return LiveCache.copied([(self, row) for row in rows], reserve=reserve)

    @classmethod
    def copied(cls, rows: Sequence[tuple[LiveCache, int]], *, reserve: int = 0) -> LiveCache:
        """A cache that begins with copies of rows of others, with room for ``reserve`` more states behind the longest.

        Rows that hold nothing yet may come from a cache that was never written.
        """
        new = cls(len(rows[0][0].keys), 0)
        for name in ("lengths", "history", "cursors"):
            setattr(new, name, [getattr(cache, name)[row] for cache, row in rows])
        for cache, row in rows:
            new.inherited = new.inherited.joined(cache.inherited.picked([row]))
        new.reserve(reserve)
        end = max(new.lengths)
        for kind in ("keys", "values"):
            for index, copies in enumerate(zip(*(getattr(cache, kind) for cache, _ in rows), strict=True)):
                like = next((buffer for buffer in copies if buffer is not None), None)
                if like is None:
                    continue
                made = like.new_zeros((len(rows), like.shape[1], end + reserve, like.shape[3]))
                for place, (buffer, (cache, row)) in enumerate(zip(copies, rows, strict=True)):
                    if count := cache.lengths[row]:
                        made[place, :, :count] = buffer[cache._first + row, :, :count]
                getattr(new, kind)[index] = made
        return new

    def _load(self, relays: Sequence[Relay], cursors: Sequence[int]) -> None:
        """Begin with copies of relays, their rows one behind the other."""
        rows = self._first + sum(relay.rows for relay in relays)
        slots = max(length for relay in relays for length in relay.lengths) + self._reserved
        for relay in relays:
            at = self._first + self.rows
            for index in range(relay.layers):
                for buffers, states in zip((self.keys, self.values), relay.layer(index), strict=True):
                    buffers[index] = _with_room(buffers[index], states, rows, slots, slots)
                    buffers[index][at : at + relay.rows, :, : states.shape[2]] = states
            self.lengths += relay.lengths
            self.history += relay.lengths
            self.inherited = self.inherited.joined(Inherited.of(relay))
        self.cursors += cursors

    # -- hand-off -----------------------------------------------------------------------------------

    def segment(self, *, prompt: Sequence[int], latent: int, sink: Sequence[int], **fields: object) -> Segment:
        """What an agent hands to its compressor: views of the buffers, valid until the cache is written again."""
        done = self._next_pass()
        layers = [(index, keys.device) for index, keys in enumerate(self.keys)]
        holes = [self.inherited.holes_to(index, done.end, device) for index, device in layers if self.inherited.holes]
        return Segment(
            keys=tuple(keys[:, :, : done.end] for keys in self.keys),
            values=tuple(values[:, :, : done.end] for values in self.values),
            mass=self.mass,
            history=tuple(self.history),
            prompt=tuple(prompt),
            latent=tuple([latent] * self.rows),
            sink=tuple(sink),
            cursors=tuple(self.cursors),
            positions=tuple(done.standing(*layer) for layer in layers),
            holes=tuple(self.inherited.holes_to(index, done.end, device) for index, device in layers)
            if holes
            else None,
            **fields,
        )

    # -- what transformers asks of any cache --------------------------------------------------------

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """States of the longest row; positions and masks are always given, so no model may rely on it."""
        return max(self.lengths)

    def get_mask_sizes(self, *_: object, **__: object) -> tuple[int, int]:
        """Length and offset of the keys of the pass under way."""
        return self.now.end, 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values) if tensor is not None)


def _with_room(buffer: Tensor | None, like: Tensor, rows: int, slots: int, room: int) -> Tensor:
    """``buffer`` if it holds ``rows`` and ``slots``, or a larger one with its contents; at first of ``room`` slots.

    Zeroed, because a masked weight of 0 times rubbish that happens to be NaN would still be NaN.
    """
    if buffer is None:
        return like.new_zeros((rows, like.shape[1], room, like.shape[3]))
    if buffer.shape[0] >= rows and buffer.shape[2] >= slots:
        return buffer
    room = buffer.shape[2] if buffer.shape[2] >= slots else max(slots, buffer.shape[2] + buffer.shape[2] // _GROWTH)
    grown = buffer.new_zeros((max(rows, buffer.shape[0]), buffer.shape[1], room, buffer.shape[3]))
    grown[: buffer.shape[0], :, : buffer.shape[2]] = buffer
    return grown
