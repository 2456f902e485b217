"""Rotary frequencies that transformers recomputes from the longest position of a batch, fixed once for the chain."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def pin(decoder: nn.Module, config: Any, length: int | None = None) -> None:
    """Fix length-dependent rotary frequencies (``longrope``, ``dynamic``) at those for ``length`` positions.

    The length is by default the longest that the config names. Left alone, frequencies would change between an agent's
    states and the next agent's, and with the other rows of a batch.
    """
    for module in decoder.modules():
        kinds = getattr(module, "rope_type", None)
        # one kind for all layers, or one for each type of layer
        by_layer = kinds if isinstance(kinds, dict) else {None: kinds}
        moving = [layer for layer, kind in by_layer.items() if kind and ("dynamic" in kind or kind == "longrope")]
        for layer in moving:
            device = next(module.buffers()).device
            last = torch.tensor([[(length or config.max_position_embeddings) - 1]], device=device)
            module(torch.zeros((), device=device), last, *([] if layer is None else [layer]))
            by_layer[layer] = "pinned"
        if moving:
            module.rope_type = by_layer if isinstance(kinds, dict) else "pinned"
