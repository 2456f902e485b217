"""The attention mass: weight that queries put on every slot, summed while the passes run (method, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


class Mass:
    """Attention weights of all counted queries so far, per layer; stored attentions are never needed.

    every: count all real queries of a pass, else those of one-token passes alone.
    """

    def __init__(self, layers: int, *, every: bool = False) -> None:
        self.every = every
        # per layer (rows, kv_heads, group, slots): one sum over a group when the mass is read, in place of one a step
        self.weights: list[Tensor | None] = [None] * layers

    def add(self, layer: int, weights: Tensor, counted: Tensor | None, slots: int) -> None:
        """Add a pass's weights, (rows, kv_heads, group, width, slots so far), to a buffer of ``slots``.

        counted: (rows, width), 1 for a query that counts; None for a pass of one token, which always does.
        """
        weights = weights[:, :, :, 0] if counted is None else (weights * counted[:, None, None, :, None]).sum(dim=3)
        held = self.weights[layer]
        if held is None:
            held = self.weights[layer] = weights.new_zeros((*weights.shape[:-1], slots))
        elif held.shape[-1] < slots:
            held = self.weights[layer] = pad(held, (0, slots - held.shape[-1]))
        held[..., : weights.shape[-1]] += weights

    def summed(self, layer: int, like: Tensor, slots: int) -> Tensor:
        """A layer's mass, (rows, kv_heads, slots) float32; zeros where no query counted. like: the layer's keys."""
        held = self.weights[layer]
        if held is None:
            return torch.zeros((*like.shape[:2], slots), device=like.device)
        return pad(held[..., :slots].sum(dim=2), (0, max(0, slots - held.shape[-1])))
