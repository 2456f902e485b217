"""A relay's own account: what it holds, in which order, and what it weighs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from segments import HEADS, LAYERS, SINK, SIZE, assert_same, compress, follow, segment

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.layout import Region, chunks

TWO_HOPS = [
    ("full", {}, (23 + 9 + 2, 12 + 12 + 2, 17 + 1 + 2), (29, 21, 15)),
    ("gen", {}, (5 + 2,) * 3, (SINK,) * 3),
    ("layerwise", {}, (10 + 7, 10 + 7, 10 + 3), (SINK + 10, SINK + 10, SINK + 6)),
    ("headwise", {"history_budget": 3}, (5 + 7, 5 + 7, 5 + 3), None),
    ("headwise", {"latent_budget": 1}, (8 + 6, 8 + 6, 8 + 2), (SINK + 10, SINK + 10, SINK + 6)),
]


@pytest.mark.parametrize(("spec", "budgets", "lengths", "prompts"), TWO_HOPS, ids=lambda value: str(value))
def test_what_two_hops_hold(spec: str, budgets: dict, lengths: tuple, prompts: tuple | None) -> None:
    first = compress(spec, segment(), **budgets)
    second = compress(spec, follow(first, (9, 12, 1), (2, 2, 2)), **budgets)
    assert second.lengths == lengths
    for row in range(3):
        assert second.states(row) == lengths[row]
        own = min(5, (9, 12, 1)[row]) if spec == "headwise" else None
        if prompts is not None:
            assert second.prompt_states(row) == prompts[row]
        else:
            # of the history three states stay, prompt or latent
            assert SINK + own <= second.prompt_states(row) <= SINK + own + 3


def test_history_is_handed_on_unchanged_and_the_sink_stays_first() -> None:
    first = compress("h-obf", segment())
    second = compress("h-obf", follow(first, (9, 12, 1), (2, 2, 2)))
    for layer in range(LAYERS):
        for before, after in zip(first.layer(layer), second.layer(layer), strict=True):
            assert torch.equal(after[:, :, : first.lengths[0]], before)
    shorter = compress("h-obf", follow(first, (9, 12, 1), (2, 2, 2)), history_budget=2)
    for layer in range(LAYERS):
        assert torch.equal(shorter.layer(layer)[0][:, :, :SINK], first.layer(layer)[0][:, :, :SINK])
        assert torch.equal(shorter.positions[layer][:, :1, :SINK].flatten(), torch.arange(SINK).int().repeat(3))
    assert shorter.sinks == (SINK,) * 3


def test_full_relay_is_the_segment() -> None:
    given = segment(history=(4, 0, 6))
    relay = compress("full", given)
    for layer in range(LAYERS):
        for row, length in enumerate(given.lengths):
            for held, kept in zip((given.keys, given.values), relay.layer(layer), strict=True):
                assert torch.equal(kept[row, :, :length], held[layer][row, :, :length])


def test_padding_holds_zeros() -> None:
    relay = compress("full", segment())
    for layer in range(LAYERS):
        assert not relay.layer(layer)[0][1, :, relay.lengths[1] :].any()
        assert not relay.layer(layer)[1][1, :, relay.lengths[1] :].any()


@pytest.mark.parametrize("spec", ["h-obf", "l-obf+int8", "full+int4"])
def test_rows_part_and_join(spec: str) -> None:
    relay = compress(spec, segment())
    rows = [relay.row(row) for row in range(3)]
    assert [row.lengths for row in rows] == [(length,) for length in relay.lengths]
    assert_same(Relay.join(rows), relay)
    assert_same(Relay.join([rows[2], rows[0]]), Relay.join([Relay.join([rows[2]]), rows[0]]))


def test_relays_of_different_allocation_join() -> None:
    even, adaptive = (compress("headwise", segment(), allocation=how).row(0) for how in ("uniform", "adaptive"))
    joined = Relay.join([even, adaptive])
    assert joined.states(0) == joined.states(1) == even.states(0)
    assert not joined.holes[0][0].any()


@pytest.mark.parametrize(("codec", "bits"), [("", 32), ("+int8", 8), ("+int4", 4)])
def test_memory_is_that_of_the_packed_states(codec: str, bits: int) -> None:
    relay = compress(f"full{codec}", segment(prompt=(20, 20, 20)))
    states = 3 * LAYERS * HEADS * 23
    marks = 3 * LAYERS * 23 * (4 + 1)
    groups = 0 if not codec else 2 * 4 * (states + 3 * LAYERS * HEADS * SIZE)
    assert relay.nbytes == 2 * SIZE * states * bits // 8 + marks + groups


@pytest.mark.parametrize("spec", ["gen", "gen+int8", "gen+int4"])
def test_a_relay_can_be_empty(spec: str) -> None:
    relay = compress(spec, replace(segment(latent=(0, 0, 0)), sink=(0, 0, 0)))
    assert relay.lengths == (0, 0, 0)
    assert relay.prompt_states(1) == 0
    assert_same(wire.decode(wire.encode(relay.row(1), fingerprint=""), fingerprint=""), relay.row(1))
    after = compress(spec, follow(relay, (9, 12, 1), (2, 2, 2)))
    assert after.lengths == (2, 2, 2)


def test_a_sink_is_at_most_the_prompt() -> None:
    relay = compress("gen", replace(segment(prompt=(1, 3, 9), latent=(0, 0, 0)), sink=(4, 4, 4)))
    assert relay.lengths == relay.sinks == (1, 3, 4)


@pytest.mark.parametrize(("layers", "together"), [(8, 4), (128, 8), (512, 16)])
def test_layers_are_worked_on_together_in_a_part_of_what_the_segment_takes(layers: int, together: int) -> None:
    # a layer takes 128 KiB of keys, as much of values, and 1 MiB to work on
    states, slots = torch.zeros(1, 4, 128, 64), (128,)
    none, positions = (0,), torch.zeros(1, 1, 128, dtype=torch.int32)
    made = Segment((states,) * layers, (states,) * layers, None, none, slots, none, none, slots, (positions,) * layers)
    regions = [Region(none, slots, "prompt", (32,), (32,))]
    assert [len(chunk) for chunk in chunks(made, regions, None)] == [together] * (layers // together)
    assert [len(chunk) for chunk in chunks(made, regions, 2 << 20)] == [2] * (layers // 2)
