"""What a cache knows of the states that came in with relays: where they stand, and which slots hold none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from lm_eval_latentmas.cache import Relay


@dataclass
class Inherited:
    """Per layer, positions and holes of the inherited states, (rows, 1 or kv_heads, slots); empty without a relay.

    holes: True where a slot below the length holds nothing; empty when there are none.
    """

    positions: list[Tensor] = field(default_factory=list)
    holes: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, relay: Relay) -> Inherited:
        """What a relay says."""
        return cls(list(relay.positions), list(relay.holes or ()))

    def joined(self, other: Inherited) -> Inherited:
        """The rows of both, one behind the other. Raises ValueError where only one has holes."""
        if not self.positions:
            return other
        if bool(self.holes) != bool(other.holes):
            raise ValueError("rows with and without holes cannot share a cache")
        return Inherited(_stacked(self.positions, other.positions), _stacked(self.holes, other.holes))

    def picked(self, rows: Sequence[int]) -> Inherited:
        """The given rows, in the given order."""
        return Inherited(*([tensor[list(rows)] for tensor in tensors] for tensors in (self.positions, self.holes)))

    def positions_to(self, layer: int, slots: int, device: torch.device) -> Tensor:
        """A layer's positions, padded to ``slots``."""
        return _widened(self.positions[layer].to(device), slots)

    def holes_to(self, layer: int, slots: int, device: torch.device) -> Tensor:
        """A layer's holes, padded to ``slots``: what is not inherited has none."""
        return _widened(self.holes[layer].to(device), slots)


def _stacked(mine: list[Tensor], theirs: list[Tensor]) -> list[Tensor]:
    stacked = []
    for one, other in zip(mine, theirs, strict=True):
        heads, slots = max(one.shape[1], other.shape[1]), max(one.shape[2], other.shape[2])
        stacked.append(torch.cat([_widened(held, slots).expand(-1, heads, -1) for held in (one, other)]))
    return stacked


def _widened(held: Tensor, slots: int) -> Tensor:
    return pad(held[..., :slots], (0, max(0, slots - held.shape[-1])))
