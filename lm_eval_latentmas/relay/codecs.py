"""How a relay's payload is written: as it is, or asymmetric min-max at 8 or 4 bits, packed (method, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Codec(Protocol):
    """Writes the states of one layer as named tensors and reads them back.

    A part with four dimensions, (rows, kv_heads, slots, width), belongs to the states; one with three,
    (rows, kv_heads, width), to the row.
    """

    name: str

    def encode(self, keys: Tensor, values: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """keys, values: (rows, kv_heads, slots, head_dim); filled: (rows, 1 or kv_heads, slots), False at padding."""
        ...

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The keys and values that ``parts`` hold."""
        ...


@dataclass(frozen=True)
class Plain:
    """The states as they are, in the model's dtype."""

    name: str = "plain"

    def encode(self, keys: Tensor, values: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """Parts ``keys`` and ``values``."""
        return {"keys": keys, "values": values}

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The parts themselves."""
        return parts["keys"].to(dtype), parts["values"].to(dtype)


@dataclass(frozen=True)
class MinMax:
    """Levels 0 .. 2^bits - 1 between a group's minimum and maximum; two levels a byte at 4 bits.

    Keys are grouped per (head, channel) over a row's states, values per (head, state) over channels. Scale and minimum
    are kept in the model's dtype: the minimum is one of the states and so exact, the scale is rounded up so that the
    top level reaches the maximum.
    """

    bits: int

    @property
    def name(self) -> str:
        """``int8`` or ``int4``."""
        return f"int{self.bits}"

    def encode(self, keys: Tensor, values: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """Parts ``keys``, ``values`` (uint8) with ``*_scale`` and ``*_low``; padding slots hold zeros."""
        if self.bits == 4 and (keys.shape[-1] % 2 or values.shape[-1] % 2):
            raise ValueError(f"int4: two levels share a byte, so the head size must be even, not {keys.shape[-1]}")
        filled = filled[..., None]
        key_low, key_scale = self._group(keys, filled, dim=-2)
        value_low, value_scale = self._group(values, filled, dim=-1)
        return {
            "keys": self._pack(self._levels(keys, key_low, key_scale), filled),
            "key_low": key_low.squeeze(-2),
            "key_scale": key_scale.squeeze(-2),
            "values": self._pack(self._levels(values, value_low, value_scale), filled),
            "value_low": value_low.masked_fill(~filled, 0),
            "value_scale": value_scale.masked_fill(~filled, 0),
        }

    def decode(self, parts: dict[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Level times scale plus minimum, worked out in float32."""
        keys = self._restore(parts["keys"], parts["key_low"][:, :, None], parts["key_scale"][:, :, None])
        values = self._restore(parts["values"], parts["value_low"], parts["value_scale"])
        return keys.to(dtype), values.to(dtype)

    @property
    def _top(self) -> int:
        return 2**self.bits - 1

    def _group(self, states: Tensor, filled: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Minimum and scale of the groups that run along ``dim``, in the states' dtype."""
        if not states.shape[dim]:
            nothing = states.sum(dim, keepdim=True)
            return nothing, nothing
        low = states.masked_fill(~filled, torch.inf).amin(dim, keepdim=True)
        high = states.masked_fill(~filled, -torch.inf).amax(dim, keepdim=True)
        # a row without states has no minimum
        low, high = low.masked_fill(low == torch.inf, 0), high.masked_fill(high == -torch.inf, 0)
        return low, _rounded_up((high.float() - low.float()) / self._top, states.dtype)

    def _levels(self, states: Tensor, low: Tensor, scale: Tensor) -> Tensor:
        width = scale.float().masked_fill(scale == 0, 1)
        return ((states.float() - low.float()) / width).round_().clamp_(0, self._top)

    def _pack(self, levels: Tensor, filled: Tensor) -> Tensor:
        levels = levels.masked_fill_(~filled, 0).to(torch.uint8)
        return levels if self.bits == 8 else levels[..., 0::2] | (levels[..., 1::2] << 4)

    def _restore(self, packed: Tensor, low: Tensor, scale: Tensor) -> Tensor:
        levels = packed if self.bits == 8 else torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        return levels.float() * scale.float() + low.float()


def _rounded_up(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest number of ``dtype`` that is at least ``scale`` (float32, 0 or more)."""
    nearest = scale.to(dtype)
    if dtype.itemsize >= 4:
        return nearest
    # the bits of a non-negative float, read as an integer, count the floats below it
    above = (nearest.view(torch.int16) + 1).view(dtype)
    return torch.where(nearest.float() < scale, above, nearest)


CODECS: dict[str, MinMax] = {"int8": MinMax(8), "int4": MinMax(4)}
WIRE_CODECS: dict[str, Codec] = {"plain": Plain(), **CODECS}
