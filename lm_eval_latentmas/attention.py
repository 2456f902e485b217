"""The attention function that this package registers with transformers: SDPA over per-row caches, and attention mass.

Called for a model that was loaded with one of `NAMES`. Where the pass carries a `LiveCache` the mask comes from it;
any other pass (plain log-likelihoods, ``generate``) behaves as under transformers' own SDPA.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lm_eval_latentmas.live import LiveCache

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
    scale = size**-0.5 if scaling is None else scaling
    counts = False
    if relay_cache is not None:
        relay_cache.note_queries(module.layer_idx, query)
        mask, counts = relay_cache.mask(module.layer_idx, sliding_window, query), relay_cache.counts
        # One softmax serves output and mass, and a step has the same output whether or not its mass is asked for.
        written_out |= width == 1 and query.dtype == torch.float32
    else:
        mask = _visible(attention_mask, width, key.shape[2], query.device)
    written_out |= softcap is not None or s_aux is not None
    weights = _weights(query, key, mask, scale, softcap, s_aux) if written_out or counts else None
    if counts:
        relay_cache.add_mass(module.layer_idx, weights)
    if written_out:
        out = (weights.flatten(2, 3).to(value.dtype) @ value).reshape(rows, heads, width, -1)
    else:
        out = _sdpa(query, key, value, mask, scale)
    return out.transpose(1, 2).contiguous(), None


def _sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """PyTorch's attention, (rows, heads, width, head_dim), without copies of keys and values where it can be had."""
    attend = nn.functional.scaled_dot_product_attention
    group = query.shape[1] // key.shape[1]
    if query.shape[2] == 1:
        # the queries of a KV head's group become more queries of that head
        packed = query.unflatten(1, (-1, group)).flatten(2, 3)
        return attend(packed, key, value, attn_mask=mask, scale=scale).reshape(*query.shape[:3], -1)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.repeat_interleave(group, dim=1)
    if query.device.type == "cpu":
        return attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=group > 1)
    # fused GPU kernels take masks or grouped heads, not both
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    return attend(query, key, value, attn_mask=mask, scale=scale)


def _weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Softmax weights in float32: (rows, kv_heads, group, width, slots)."""
    group, width = query.shape[1] // key.shape[1], query.shape[2]
    grouped = query.unflatten(1, (-1, group)).flatten(2, 3)
    scores = (grouped.float() * scale) @ key.float().mT
    scores = scores.unflatten(2, (group, width))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        mask = mask[:, :, None]
        # the lowest finite number, not -inf: a query that sees nothing must not become NaN and reach later layers
        least = torch.finfo(torch.float32).min
        scores = scores.masked_fill(~mask, least) if mask.dtype == torch.bool else scores.add_(mask)
    if sinks is None:
        return scores.softmax(dim=-1)
    # a sink logit per query head takes its share of the softmax and then is dropped
    sink = sinks.float().reshape(1, -1, group, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]


def _visible(attention_mask: Tensor | None, width: int, slots: int, device: torch.device) -> Tensor:
    """The mask of a pass without a relay: as given, or plain causal."""
    if attention_mask is not None:
        return attention_mask[..., :slots]
    query = torch.arange(slots - width, slots, device=device)
    return (torch.arange(slots, device=device) <= query[:, None])[None, None]
