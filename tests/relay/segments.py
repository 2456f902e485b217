"""Small random segments for the tests; what lies behind a row's end is poison."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings

LAYERS, HEADS, SIZE, SINK = 2, 3, 16, 2


def segment(
    history: tuple[int, ...] = (0, 0, 0),
    prompt: tuple[int, ...] = (20, 9, 14),
    latent: tuple[int, ...] = (3, 3, 3),
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    size: int = SIZE,
) -> Segment:
    """Random states; row b of any batch made with this seed holds the same ones."""
    lengths = [sum(parts) for parts in zip(history, prompt, latent, strict=True)]
    rows, slots = len(lengths), max(lengths) + 2
    generator = torch.Generator().manual_seed(seed)

    def states(width: int) -> Tensor:
        drawn = torch.randn(rows, LAYERS, HEADS, 64, width, generator=generator)[:, :, :, :slots]
        for row, length in enumerate(lengths):
            drawn[row, :, :, length:] = torch.nan
        return drawn.transpose(0, 1)

    return Segment(
        keys=tuple(states(size).to(dtype)),
        values=tuple(states(size).to(dtype)),
        mass=tuple(states(1)[..., 0].abs()),
        history=history,
        prompt=prompt,
        latent=latent,
        sink=(SINK,) * rows,
        cursors=tuple(lengths),
        positions=tuple(torch.arange(slots, dtype=torch.int32).expand(rows, 1, slots) for _ in range(LAYERS)),
        seeds=tuple(range(100, 100 + rows)),
    )


def alone(batch: Segment, row: int) -> Segment:
    """One row of a segment, without any padding."""
    slots = batch.lengths[row]
    changes = {}
    for field in fields(batch):
        held = getattr(batch, field.name)
        if held and isinstance(held[0], Tensor):
            changes[field.name] = tuple(tensor[row : row + 1, :, :slots] for tensor in held)
        elif held:
            changes[field.name] = held[row : row + 1]
    return replace(batch, **changes)


def compress(spec: str, given: Segment, **settings: object) -> Relay:
    """The relay of a composition, with a budget of 5 unless told otherwise."""
    return compressor(spec, RelaySettings(**{"kv_budget": 5, "sink_size": SINK} | settings))(given)


def follow(relay: Relay, prompt: tuple[int, ...], latent: tuple[int, ...], seed: int = 1) -> Segment:
    """The next agent's segment: what the relay brought, then new random states."""
    own = segment(relay.lengths, prompt, latent, seed=seed, dtype=relay.dtype)
    slots = own.keys[0].shape[2]

    def behind(held: Tensor, new: Tensor) -> Tensor:
        heads = max(held.shape[1], new.shape[1])
        out = new.expand(-1, heads, *new.shape[2:]).clone()
        for row, length in enumerate(relay.lengths):
            out[row, :, :length] = held[row, :, :length]
        return out

    layers = range(relay.layers)
    holes = None
    if relay.holes is not None:
        holes = tuple(behind(hole, torch.zeros(len(prompt), HEADS, slots, dtype=torch.bool)) for hole in relay.holes)
    return replace(
        own,
        keys=tuple(behind(relay.layer(layer)[0], own.keys[layer]) for layer in layers),
        values=tuple(behind(relay.layer(layer)[1], own.values[layer]) for layer in layers),
        positions=tuple(behind(relay.positions[layer], own.positions[layer]) for layer in layers),
        sink=relay.sinks,
        holes=holes,
        origins=relay.origins,
    )


def assert_same(left: Relay, right: Relay, *, exact: bool = True) -> None:
    """Equal in every field; without ``exact`` the states may differ by rounding."""
    for name in ("lengths", "sinks", "cursors", "codec", "dtype"):
        assert getattr(left, name) == getattr(right, name), name
    for name in ("positions", "origins", "holes"):
        for ours, theirs in zip(getattr(left, name) or (), getattr(right, name) or (), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(*torch.broadcast_tensors(ours, theirs)), name
    for ours, theirs in zip(left.parts, right.parts, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            if exact:
                assert ours[name].dtype == theirs[name].dtype
                assert torch.equal(ours[name], theirs[name]), name
            else:
                torch.testing.assert_close(ours[name], theirs[name])
