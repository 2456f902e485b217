"""Moving cached keys along the positions: exact for rotary families, found out from the model itself, else refused.

A rotary key at position p + n is the key at p turned by n more steps. Which of a model's rotary maps a layer uses,
if any, is read off two short passes over the same tokens at different positions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lm_eval_latentmas.live import LiveCache

#: Keys (rows, kv_heads, slots, head_dim) in float32 and a number of positions, to the turned keys.
RotaryMap = Callable[[Tensor, int], Tensor]

_TOKENS, _SHIFT = 12, 1000  # far enough that slow frequencies can be told apart
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of a key's size; half precision rounds more
_ROUGH = 0.05


@dataclass(frozen=True)
class Rotation:
    """How the keys of every layer move; None for a layer whose keys do not depend on the position."""

    maps: tuple[RotaryMap | None, ...]

    @classmethod
    @torch.inference_mode()
    def of(cls, adapter: Any) -> Rotation:
        """The rotation of a model, after two passes over a few random tokens.

        Raises ValueError where some layer's keys at other positions are not its keys turned.
        """
        count = adapter.embeddings.weight.shape[0]
        tokens = torch.randint(count, (1, _TOKENS), generator=torch.Generator().manual_seed(0)).to(adapter.device)
        here, there = (_keys(adapter, tokens, start) for start in (0, _SHIFT))
        maps = [None, *_maps(adapter.decoder)]
        found = []
        for layer, (before, after) in enumerate(zip(here, there, strict=True)):
            errors = [_error(before if turn is None else turn(before, _SHIFT), after) for turn in maps]
            least = min(range(len(maps)), key=errors.__getitem__)
            if not errors[least] <= _TOLERANCE.get(adapter.dtype, _ROUGH):
                raise ValueError(
                    f"model_type '{adapter.config.model_type}': keys of layer {layer} cannot be moved to other "
                    f"positions exactly (off by {errors[least]:.1%}), which topology hierarchical needs; use a "
                    "sequential prompt set"
                )
            found.append(maps[least])
        return cls(tuple(found))

    def moved(self, keys: Tensor, layer: int, by: int) -> Tensor:
        """Cached keys of one layer, (rows, kv_heads, slots, head_dim), as computed ``by`` positions later."""
        turn = self.maps[layer]
        return keys if turn is None or by == 0 else turn(keys.float(), by).to(keys.dtype)


def _keys(adapter: Any, tokens: Tensor, start: int) -> list[Tensor]:
    cache = LiveCache(adapter.layers, 1)
    cache.cursors = [start]
    with cache.writing([tokens.shape[1]], tokens.shape[1], adapter.device) as positions:
        adapter.forward(adapter.embed(tokens), positions, cache)
    return [keys[:, :, : tokens.shape[1]].float() for keys in cache.keys]


def _maps(decoder: nn.Module) -> Iterator[RotaryMap]:
    """Every rotary map that the decoder holds: by module, and by type of layer where it has several."""
    apply = getattr(sys.modules[type(decoder).__module__], "apply_rotary_pos_emb", None)
    if apply is None:
        return
    for module in decoder.modules():
        if "RotaryEmbedding" in type(module).__name__:
            kinds = getattr(module, "rope_type", None)
            for arguments in [(kind,) for kind in kinds] if isinstance(kinds, dict) else [()]:
                yield _map(module, arguments, apply)


def _map(module: nn.Module, arguments: tuple[str, ...], apply: Callable[..., tuple[Tensor, Tensor]]) -> RotaryMap:
    def turn(keys: Tensor, by: int) -> Tensor:
        position = torch.tensor([[by]], device=keys.device)
        cos, sin = (part.to(keys.device) for part in module(keys.new_zeros(()), position, *arguments))
        size = (cos.square() + sin.square()).sqrt()  # some kinds scale both, and the cached keys are scaled already
        return apply(keys, keys, cos / size, sin / size)[1]

    return turn


def _error(moved: Tensor, expected: Tensor) -> float:
    """The median over tokens of the relative error: a wrong turn shows in most tokens, a flipped expert in one."""
    return float(((moved - expected).norm(dim=-1) / expected.norm(dim=-1)).median())
