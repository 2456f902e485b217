"""The floor: the forward passes that a chain needs and nothing else. No masks on steps, no rows of unequal length, no
attention mass, no compression, no text, and logits for decoded tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, Cache
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lm_eval_latentmas.model_adapters import ModelAdapter

NAME = "benchmark_floor"


class FloorCache(Cache):
    """Buffers of ``slots`` states, made at the first write; every row holds ``length`` of them.

    visible: the mask of the pass under way, None where a token sees everything.
    """

    def __init__(self, layers: int, slots: int) -> None:
        super().__init__(layers=[])
        self.buffers: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self.slots, self.length, self.visible = slots, 0, None

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write new states behind the held ones and return all of them."""
        rows, heads, width, size = keys.shape
        if self.buffers[layer_idx] is None:
            shape = (rows, heads, self.slots, size)
            self.buffers[layer_idx] = (keys.new_zeros(shape), values.new_zeros(shape))
        end = self.length + width
        held = self.buffers[layer_idx]
        held[0][:, :, self.length : end], held[1][:, :, self.length : end] = keys, values
        return held[0][:, :, :end], held[1][:, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """States held."""
        return self.length

    def get_mask_sizes(self, *_: object, **__: object) -> tuple[int, int]:
        """Length and offset of the keys."""
        return self.length, 0


def bare_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    relay_cache: FloorCache,
    **_: object,
) -> tuple[Tensor, None]:
    """SDPA; the queries that share a KV head become queries of that head."""
    rows, heads, width, size = query.shape
    packed = query.reshape(rows, key.shape[1], -1, size)
    out = nn.functional.scaled_dot_product_attention(packed, key, value, attn_mask=relay_cache.visible, scale=scaling)
    return out.reshape(rows, heads, width, -1).transpose(1, 2).contiguous(), None


@contextmanager
def attention(adapter: ModelAdapter, name: str) -> Any:
    """Let the adapter's model use another attention function for a while."""
    before = adapter.model.config._attn_implementation
    AttentionInterface.register(NAME, bare_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    adapter.model.set_attn_implementation(name)
    try:
        yield
    finally:
        adapter.model.set_attn_implementation(before)


@torch.inference_mode()
def chain(
    adapter: ModelAdapter, rows: int, agents: Sequence[tuple[int, int]], latent_steps: int, new_tokens: int
) -> None:
    """The passes of a chain. agents: history and prompt width of every agent, the one that speaks last."""
    with attention(adapter, NAME):
        slots = max(history + width for history, width in agents) + max(latent_steps, new_tokens)
        cache = FloorCache(adapter.layers, slots)
        for history, width in agents[:-1]:
            cache.length = history
            hidden = forward(adapter, cache, prompt(adapter, rows, width))
            for _ in range(latent_steps):
                hidden = forward(adapter, cache, hidden)
        cache.length, width = agents[-1]
        hidden = forward(adapter, cache, prompt(adapter, rows, width))
        for _ in range(new_tokens - 1):
            hidden = forward(adapter, cache, adapter.embed(adapter.head(hidden).argmax(dim=-1)))
        adapter.head(hidden).argmax(dim=-1)


def prompt(adapter: ModelAdapter, rows: int, width: int) -> Tensor:
    return adapter.embed(torch.zeros((rows, width), dtype=torch.long, device=adapter.device))


def forward(adapter: ModelAdapter, cache: FloorCache, embeds: Tensor) -> Tensor:
    """One pass over (rows, width, hidden); the state at its last token, (rows, 1, hidden)."""
    width, device = embeds.shape[1], embeds.device
    positions = torch.arange(cache.length, cache.length + width, device=device)[None]
    cache.visible = None
    if width > 1:
        group = adapter.config.num_attention_heads // adapter.config.num_key_value_heads
        slots = torch.arange(cache.length + width, device=device)
        cache.visible = (slots <= positions[0, :, None]).repeat(group, 1)
    hidden = adapter.forward(embeds, positions, cache)
    cache.length += width
    return hidden[:, -1:]
