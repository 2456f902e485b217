"""``compile=true``: the single-token step as one compiled graph over whole buffers, a CUDA graph where there is a GPU.

What changes from step to step goes in as tensors, so that a graph serves until buffers grow or rows leave.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache

from lm_eval_latentmas.cache import on_device
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.passes import added

_BUCKET = 256  # buffers grow by whole numbers of so many slots: every size has a graph of its own


def compiled(adapter: Any, **options: Any) -> Any:
    """The adapter with a compiled step; everything else, prefill included, runs as before.

    options: for ``torch.compile``.
    """
    other = copy.copy(adapter)
    other.forward = CompiledStep(adapter, **options)
    return other


class CompiledStep:
    """Takes the place of `ModelAdapter.forward`, and compiles its passes of one token a row."""

    def __init__(self, adapter: Any, **options: Any) -> None:
        if not options and adapter.device.type == "cuda":
            options = {"mode": "reduce-overhead"}
        self._adapter = adapter
        self._run = torch.compile(self._whole, **options)

    def __call__(self, embeds: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """See `ModelAdapter.forward`."""
        # the first counted pass makes the mass's buffers
        if embeds.shape[1] > 1 or not isinstance(cache, LiveCache) or not cache.has_buffers:
            return self._adapter.forward(embeds, positions, cache)
        cache.make_room(-(-cache.now.end // _BUCKET) * _BUCKET)
        rows, _, slots, _ = cache.keys[0].shape
        idle = rows - embeds.shape[0]  # rows that nobody decodes: leaving them out would need another graph
        history = on_device([*cache.history, *[0] * idle], embeds.device)[:, None]
        hidden = self._run(
            pad(embeds, (0, 0, 0, 0, 0, idle)),
            pad(positions, (0, 0, 0, idle)),
            self._fixed(cache.keys),
            self._fixed(cache.values),
            None if cache.weights is None else self._fixed(cache.weights),
            pad(cache.now.slots(embeds.device), (0, 0, 0, idle)),
            history,
            self._padded(cache.inherited.positions, rows, slots) if self._windows else None,
            self._padded(cache.inherited.holes, rows, slots),
        )
        # a copy, because the next replay of a CUDA graph overwrites what this one returned
        return hidden[: cache.rows].clone()

    def _whole(self, embeds: Tensor, positions: Tensor, *state: Any) -> Tensor:
        return self._adapter.forward(embeds, positions, WholeBuffers(positions, *state))

    @property
    def _windows(self) -> bool:
        """Whether some layer sees a window only, and so needs to know where states stand."""
        return getattr(self._adapter.config, "sliding_window", None) is not None

    @staticmethod
    def _fixed(buffers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Buffers that are written in place, told to stay where they are."""
        for buffer in buffers:
            torch._dynamo.mark_static_address(buffer)
        return tuple(buffers)

    @staticmethod
    def _padded(held: Sequence[Tensor], rows: int, slots: int) -> tuple[Tensor, ...] | None:
        padding = [(0, slots - one.shape[2], 0, 0, 0, rows - one.shape[0]) for one in held]
        return tuple(map(pad, held, padding)) or None


class WholeBuffers(Cache):
    """A pass of one token over buffers of fixed size; what it may read is worked out from tensors alone.

    position, slot: (rows, 1), where the token stands and where it goes. keys, values: per layer (rows, kv_heads,
    slots, head_dim). weights: per layer (rows, kv_heads, group, slots), to which attention weights are added; None
    where nobody asks. history: (rows, 1), states that came in with a relay; inherited, holes: their positions and
    holes per layer, padded to all slots; None where there are none.
    """

    def __init__(
        self,
        position: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        weights: Sequence[Tensor] | None,
        slot: Tensor,
        history: Tensor,
        inherited: Sequence[Tensor] | None,
        holes: Sequence[Tensor] | None,
    ) -> None:
        super().__init__(layers=[])
        self.keys, self.values, self.weights = keys, values, weights
        self.position, self.slot, self.history = position, slot, history
        self.inherited, self.holes = inherited, holes

    @property
    def counts(self) -> bool:
        """Whether the pass adds to the mass."""
        return self.weights is not None

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write a layer's new state and return its buffers."""
        rows = torch.arange(keys.shape[0], device=keys.device)
        for buffer, states in ((self.keys[layer_idx], keys), (self.values[layer_idx], values)):
            buffer[rows, :, self.slot[:, 0]] = states[:, :, 0]
        return self.keys[layer_idx], self.values[layer_idx]

    def mask(self, layer_idx: int, window: int | None, like: Tensor) -> Tensor:
        """As `Pass.mask`, over all slots."""
        index = torch.arange(self.keys[layer_idx].shape[2], device=like.device)
        visible = (index <= self.slot)[:, None, None]
        if self.holes is not None:
            visible = visible & ~self.holes[layer_idx][:, :, None]
        if window is not None:
            stand = (self.position - self.slot + index)[:, None]
            if self.inherited is not None:
                stand = torch.where((index < self.history)[:, None], self.inherited[layer_idx], stand)
            visible = visible & (self.position[:, None, None] - stand[:, :, None] < window)
        return added(visible, like.dtype)

    def note_queries(self, layer_idx: int, queries: Tensor) -> None:
        """Nobody asks for the queries of a compiled step."""

    def add_mass(self, layer_idx: int, weights: Tensor) -> None:
        """Add a pass's weights, (rows, kv_heads, group, 1, slots)."""
        self.weights[layer_idx].add_(weights[:, :, :, 0])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots of the buffers; positions and masks are always given."""
        return self.keys[layer_idx].shape[2]

    def get_mask_sizes(self, *_: object, **__: object) -> tuple[int, int]:
        """Length and offset of the keys."""
        return self.keys[0].shape[2], 0
