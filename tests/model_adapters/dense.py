"""The dense model to compare with: one pass over everything that was read, with a mask for every layer and KV head."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "masked_reference"


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    visible: list[Tensor],
    weights: list[Tensor],
    **arguments: object,
) -> tuple[Tensor, Tensor]:
    """The family's own eager attention under the mask of the layer, (kv_heads, queries, keys)."""
    allowed = visible[module.layer_idx].repeat_interleave(query.shape[1] // key.shape[1], dim=0)
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    eager = sys.modules[type(module).__module__].eager_attention_forward
    out, spent = eager(module, query, key, value, mask[None], **arguments)
    weights.append(spent[0])
    return out, spent


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, eager_mask)


@torch.no_grad()
def dense(adapter: object, embeds: Tensor, positions: Tensor, visible: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Final states (tokens, hidden), and the attention weights of every layer, (heads, tokens, tokens).

    adapter: over a model that was loaded with the attention function `NAME`.
    """
    weights: list[Tensor] = []
    output = adapter.decoder(
        inputs_embeds=embeds[None],
        position_ids=positions[None],
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool),
        use_cache=False,
        visible=visible,
        weights=weights,
    )
    return output.last_hidden_state[0], weights
