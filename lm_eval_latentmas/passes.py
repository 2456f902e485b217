"""One forward pass over rows of unequal length: where its tokens go, where they stand, what they may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lm_eval_latentmas.cache import on_device
from lm_eval_latentmas.inherited import Inherited


class Pass:
    """``width`` new tokens a row, ``real[b]`` of them real, behind ``lengths[b]`` states.

    cursors: where each row's new tokens begin to stand. history: states per row that came in with a relay. Tensors are
    made once a pass and device, from host integers: no pass waits for a device.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        cursors: Sequence[int],
        history: Sequence[int],
        inherited: Inherited,
        *,
        real: Sequence[int] = (),
        width: int = 0,
    ) -> None:
        self.lengths, self.cursors, self.history, self.inherited = lengths, cursors, history, inherited
        self.real, self.width = real, width
        self.end = max(lengths, default=0) + width
        self.even = min(lengths, default=0) == max(lengths, default=0)
        self._made: dict[tuple, Tensor] = {}

    def rows(self, device: torch.device) -> Tensor:
        """Row numbers, (rows, 1)."""
        return self._once("rows", device, lambda: torch.arange(len(self.lengths), device=device)[:, None])

    def slots(self, device: torch.device) -> Tensor:
        """Where the new tokens go, (rows, width)."""
        return self._once("slots", device, lambda: self._from(self.lengths, device))

    def positions(self, device: torch.device) -> Tensor:
        """Where the new tokens stand, (rows, width)."""
        return self._once("positions", device, lambda: self._from(self.cursors, device))

    def counted(self, device: torch.device) -> Tensor:
        """1 for a real token, 0 for a pad: (rows, width) float32."""

        def make() -> Tensor:
            real = on_device(self.real, device)[:, None]
            return (torch.arange(self.width, device=device) < real).float()

        return self._once("counted", device, make)

    def mask(self, layer: int, window: int | None, like: Tensor) -> Tensor | None:
        """What is added to the new tokens' scores, (rows, 1 or kv_heads, width, slots) in the dtype of ``like``.

        None where every token sees every slot. A window counts positions, not slots, so it means the same after an
        eviction as in the dense model.
        """
        holes = bool(self.inherited.holes)
        if window is not None and max(self.cursors) + self.width <= window:
            window = None
        if not holes and window is None and self.width == 1 and self.even:
            return None
        differs = holes or (window is not None and bool(self.inherited.positions))
        name = ("mask", window, layer if differs else None, like.dtype)
        return self._once(name, like.device, lambda: added(self._visible(layer, window, like.device), like.dtype))

    def standing(self, layer: int, device: torch.device) -> Tensor:
        """The rotary position of every slot of a layer: (rows, 1 or kv_heads, slots) int32."""
        index = torch.arange(self.end, device=device)
        history = on_device(self.history, device)[:, None, None]
        first = [c - (n - h) for c, n, h in zip(self.cursors, self.lengths, self.history, strict=True)]
        own = on_device(first, device)[:, None, None] + index - history
        if self.inherited.positions:
            own = torch.where(index < history, self.inherited.positions_to(layer, self.end, device), own)
        return own.to(torch.int32)

    def _visible(self, layer: int, window: int | None, device: torch.device) -> Tensor:
        visible = torch.arange(self.end, device=device) <= self.slots(device)[:, None, :, None]
        if self.inherited.holes:
            visible = visible & ~self.inherited.holes_to(layer, self.end, device)[:, :, None, :]
        if window is not None:
            behind = self.positions(device)[:, None, :, None] - self.standing(layer, device)[:, :, None, :]
            visible = visible & (behind < window)
        return visible

    def _from(self, first: Sequence[int], device: torch.device) -> Tensor:
        start = on_device(first, device)[:, None]
        return start if self.width == 1 else start + torch.arange(self.width, device=device)

    def _once(self, name: object, device: torch.device, make: Callable[[], Tensor]) -> Tensor:
        if (name, device) not in self._made:
            self._made[name, device] = make()
        return self._made[name, device]


def added(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where visible, elsewhere the lowest finite number.

    Not -inf: a pad's query that sees nothing must not become NaN and reach later layers.
    """
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
