"""The attention function that this package registers with transformers: SDPA over per-row caches, and attention mass.

Called for a model that was loaded with one of `NAMES`. Where the pass carries a `LiveCache` the mask comes from it;
any other pass (plain log-likelihoods, ``generate``) behaves as under transformers' own SDPA.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lm_eval_latentmas.live import LiveCache, tiled

# transformers refuses a name with "sdpa" in it for families that its own SDPA cannot serve (soft-capping, sink logits)
NAMES = {"sdpa": "latentmas", "eager": "latentmas_eager"}


def register() -> None:
    """Make the attention functions known to transformers under names of our own; doing so twice is harmless."""
    for implementation, name in NAMES.items():
        AttentionInterface.register(name, sdpa_attention if implementation == "sdpa" else eager_attention)
        AttentionMaskInterface.register(name, sdpa_mask)


def sdpa_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: object
) -> tuple[Tensor, None]:
    """Attention by SDPA, or written out where the family needs what SDPA lacks (soft-capping, sink logits)."""
    return _attention(module, query, key, value, attention_mask, written_out=False, **kwargs)


def eager_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: object
) -> tuple[Tensor, None]:
    """The same attention with the softmax written out, for comparison with SDPA."""
    return _attention(module, query, key, value, attention_mask, written_out=True, **kwargs)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    written_out: bool,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    relay_cache: LiveCache | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    rows, heads, width, size = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    # The queries of a KV head's group become more queries of that head, so that keys and values are never repeated.
    packed = query.reshape(rows, kv_heads, group * width, size)
    scale = size**-0.5 if scaling is None else scaling
    if relay_cache is not None:
        relay_cache.note_queries(module.layer_idx, query)
        mask = relay_cache.mask(module.layer_idx, sliding_window, query.device, group)
    else:
        visible = _visible(attention_mask, width, key.shape[2], query.device)
        mask = visible if width == 1 or group == 1 else tiled(visible, group)
    counted = None if relay_cache is None else relay_cache.counted_queries(width, query.device)
    weights = None
    if written_out or counted is not None or softcap is not None or s_aux is not None:
        weights = _weights(packed, key, mask, scale, softcap, s_aux, group, width)
    if counted is not None:
        per_query = weights.unflatten(2, (group, width)) * counted[:, None, None, :, None]
        relay_cache.add_mass(module.layer_idx, per_query.sum(dim=(2, 3)))
    if written_out or softcap is not None or s_aux is not None:
        out = weights.to(value.dtype) @ value
    else:
        out = nn.functional.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scale)
    return out.reshape(rows, heads, width, value.shape[-1]).transpose(1, 2).contiguous(), None


def _weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
    group: int,
    width: int,
) -> Tensor:
    """Softmax weights in float32: (rows, kv_heads, group * width, slots)."""
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    # The lowest finite number, not -inf: a pad query that sees nothing must not become NaN and reach later layers.
    scores = scores.masked_fill(~mask, torch.finfo(torch.float32).min) if mask.dtype == torch.bool else scores + mask
    if sinks is None:
        return scores.softmax(dim=-1)
    # A sink logit per query head takes its share of the softmax and then is dropped.
    sink = sinks.float().reshape(1, -1, group, 1).expand(scores.shape[0], -1, -1, width).reshape(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]


def _visible(attention_mask: Tensor | None, width: int, slots: int, device: torch.device) -> Tensor:
    """The mask of a pass without a relay: as given, or plain causal."""
    if attention_mask is not None:
        return attention_mask[..., :slots]
    query = torch.arange(slots - width, slots, device=device)
    return (torch.arange(slots, device=device) <= query[:, None])[None, None]
