"""A relay's slots hold what the segment holds at their sources, however the segment lies in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lm_eval_latentmas.relay.assembly import _copied

ROWS, HEADS, SLOTS, WIDTH = 3, 2, 7, 4


def laid(way: str) -> Tensor:
    """States (ROWS, HEADS, SLOTS, WIDTH) of one content in several layouts."""
    states = torch.arange(ROWS * HEADS * SLOTS * WIDTH, dtype=torch.float32).view(ROWS, HEADS, SLOTS, WIDTH)
    if way == "room behind":
        return torch.cat([states, states.new_full((ROWS, HEADS, 5, WIDTH), torch.nan)], dim=2)[:, :, :SLOTS]
    if way == "room before":
        return torch.cat([states.new_full((ROWS, HEADS, 5, WIDTH), torch.nan), states], dim=2)[:, :, 5:]
    if way == "some rows":
        return torch.stack([states, states * torch.nan], dim=1).flatten(0, 1)[::2]
    if way == "heads inside":
        return states.transpose(1, 2).contiguous().transpose(1, 2)
    if way == "width outside":
        return states.transpose(2, 3).contiguous().transpose(2, 3)
    if way == "one head for all":
        return states[:, :1].expand(-1, HEADS, -1, -1)
    if way == "odd rows":
        return torch.cat([states.flatten(1), states.new_zeros(ROWS, 1)], dim=1)[:, :-1].unflatten(1, states.shape[1:])
    return states


@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize(
    "way",
    [
        "plain",
        "room behind",
        "room before",
        "some rows",
        "heads inside",
        "width outside",
        "one head for all",
        "odd rows",
    ],
)
def test_slots_are_copied_from_their_sources(way: str, heads: int) -> None:
    states = laid(way)
    source = torch.randint(SLOTS, (ROWS, heads, 5), generator=torch.Generator().manual_seed(2))
    filled = torch.rand(ROWS, heads, 5, generator=torch.Generator().manual_seed(3)) < 0.7
    whole, holed = _copied(states, source, None), _copied(states, source, filled)
    assert whole.shape == holed.shape == (ROWS, HEADS, 5, WIDTH)
    for row in range(ROWS):
        for head in range(HEADS):
            for slot in range(5):
                own = head % heads
                expected = states[row, head, source[row, own, slot]]
                assert torch.equal(whole[row, head, slot], expected)
                assert torch.equal(holed[row, head, slot], expected * filled[row, own, slot])
    assert whole.untyped_storage().data_ptr() != states.untyped_storage().data_ptr()
