"""Packing at 8 and 4 bits: how far a state may move, what a group is, and the room it takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lm_eval_latentmas.relay.codecs import MinMax

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def states(dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, 2, 3, 11, 8, generator=generator) * scale
    filled = torch.ones(2, 1, 11, dtype=torch.bool)
    filled[1, :, 7:] = False
    return keys.to(dtype), values.to(dtype), filled


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [8, 4])
def test_no_state_moves_by_more_than_half_a_step(bits: int, dtype: torch.dtype, scale: float) -> None:
    keys, values, filled = states(dtype, scale)
    codec = MinMax(bits)
    parts = codec.encode(keys, values, filled)
    # decoded to float32, so that only the codec's own error is seen
    for name, exact, read in zip(("key", "value"), (keys, values), codec.decode(parts, torch.float32), strict=True):
        step = parts[f"{name}_scale"].float()
        step = step[:, :, None] if name == "key" else step
        error = (read - exact.float()).abs() * filled[..., None]
        assert (error <= step * 0.5001).all()
        assert error.max() > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_second_writing_stays_within_half_a_step(bits: int, dtype: torch.dtype) -> None:
    keys, values, filled = states(dtype)
    codec = MinMax(bits)
    once = codec.decode(codec.encode(keys, values, filled), dtype)
    again = codec.encode(*once, filled)
    for name, first, second in zip(("key", "value"), once, codec.decode(again, dtype), strict=True):
        step = again[f"{name}_scale"].float()
        step = step[:, :, None] if name == "key" else step
        rounding = torch.finfo(dtype).eps * first.float().abs()
        assert ((first.float() - second.float()).abs() * filled[..., None] <= step * 0.5001 + rounding).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_keys_are_grouped_by_channel_and_values_by_state(bits: int) -> None:
    keys, values, filled = states(torch.float32)
    codec = MinMax(bits)
    before = codec.decode(codec.encode(keys, values, filled), torch.float32)
    keys[0, 0, 0, 0], values[0, 0, 0, 0] = 50, 50
    after = codec.decode(codec.encode(keys, values, filled), torch.float32)
    moved = [(old != new) for old, new in zip(before, after, strict=True)]
    assert moved[0][0, 0, :, 0].sum() > 5
    assert not moved[0][0, 0, :, 1:].any()
    assert moved[1][0, 0, 0].any()
    assert not moved[1][0, 0, 1:].any()


@pytest.mark.parametrize("bits", [8, 4])
def test_padding_enters_no_group(bits: int) -> None:
    keys, values, filled = states(torch.float32)
    codec = MinMax(bits)
    before = codec.encode(keys, values, filled)
    keys[1, :, 7:], values[1, :, 7:] = torch.nan, torch.inf
    after = codec.encode(keys, values, filled)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_extremes_of_a_group_can_be_reached(dtype: torch.dtype) -> None:
    keys, values, filled = states(dtype)
    parts = MinMax(8).encode(keys, values, filled)
    top = parts["value_low"].float() + 255 * parts["value_scale"].float()
    highest = values.float().amax(-1, keepdim=True)
    assert (top >= highest * filled[..., None] - 1e-6).all()
    assert torch.equal(
        parts["value_low"][filled.expand(-1, 3, -1)], values.amin(-1, keepdim=True)[filled.expand(-1, 3, -1)]
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_equal_states_come_back_as_they_were(bits: int) -> None:
    keys = torch.full((1, 2, 5, 8), -3.25, dtype=torch.bfloat16)
    filled = torch.ones(1, 1, 5, dtype=torch.bool)
    codec = MinMax(bits)
    assert all(torch.equal(read, keys) for read in codec.decode(codec.encode(keys, keys, filled), keys.dtype))


@pytest.mark.parametrize("bits", [8, 4])
def test_no_states_take_no_room(bits: int) -> None:
    codec = MinMax(bits)
    nothing = torch.zeros(1, 2, 0, 8)
    parts = codec.encode(nothing, nothing, torch.zeros(1, 1, 0, dtype=torch.bool))
    assert not parts["keys"].nbytes
    assert all(states.shape == (1, 2, 0, 8) for states in codec.decode(parts, torch.float32))


def test_four_bits_put_two_levels_in_a_byte() -> None:
    keys, values, filled = states(torch.bfloat16)
    parts = MinMax(4).encode(keys, values, filled)
    assert parts["keys"].shape == (2, 3, 11, 4)
    assert parts["keys"].nbytes * 4 == keys.nbytes


def test_four_bits_need_an_even_head_size() -> None:
    odd = torch.zeros(1, 1, 2, 7)
    with pytest.raises(ValueError, match="even, not 7"):
        MinMax(4).encode(odd, odd, torch.ones(1, 1, 2, dtype=torch.bool))
