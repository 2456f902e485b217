"""Agents that worked side by side: their relays, each begun at position 0, become the one that the last agent gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.model_adapters.rebase import Rotation
from lm_eval_latentmas.relay.codecs import Plain


def side_by_side(relays: Sequence[Relay], rotation: Rotation, *, compact: bool = False) -> Relay:
    """One relay of one row that holds the states of ``relays``, of one row each, in their order.

    Every relay's positions begin where those of the relays before it end: after every token ever read, or with
    ``compact`` after the states held. Keys are turned to their new positions; values, holes and origins stay. The
    states are held as decoded, since relays of a codec with groups over tokens have no groups in common.
    """
    if len(relays) == 1:
        return relays[0]
    sizes = [relay.lengths[0] if compact else relay.cursors[0] for relay in relays]
    begins = [0, *accumulate(sizes)][:-1]
    codec, parts = Plain(), []
    for layer in range(relays[0].layers):
        decoded = [relay.layer(layer) for relay in relays]
        keys = [rotation.moved(keys, layer, begin) for (keys, _), begin in zip(decoded, begins, strict=True)]
        values = [values for _, values in decoded]
        filled = torch.ones(1, 1, sum(relay.lengths[0] for relay in relays), dtype=torch.bool, device=keys[0].device)
        parts.append(codec.encode(torch.cat(keys, dim=2), torch.cat(values, dim=2), filled))
    shifted = [[held + begin for held in relay.positions] for relay, begin in zip(relays, begins, strict=True)]
    has_holes = any(relay.holes is not None for relay in relays)
    holes = [relay.holes or [torch.zeros_like(origin) for origin in relay.origins] for relay in relays]
    return replace(
        relays[0],
        parts=tuple(parts),
        codec=codec,
        lengths=(sum(relay.lengths[0] for relay in relays),),
        cursors=(sum(relay.cursors[0] for relay in relays),),
        positions=_behind(shifted),
        origins=_behind([relay.origins for relay in relays]),
        holes=_behind(holes) if has_holes else None,
    )


def _behind(relays: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Per layer, tensors of (1, 1 or kv_heads, slots) behind each other, with as many heads as any has."""
    joined = []
    for tensors in zip(*relays, strict=True):
        heads = max(tensor.shape[1] for tensor in tensors)
        joined.append(torch.cat([tensor.expand(-1, heads, -1) for tensor in tensors], dim=2))
    return tuple(joined)
