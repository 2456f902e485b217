"""What each selector keeps, within which budget, and that nothing but the row itself decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from segments import HEADS, LAYERS, SINK, alone, compress, segment

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.selectors import SELECTORS
from lm_eval_latentmas.relay.settings import RelaySettings

RANKING = [name for name, row in SELECTORS.items() if row.fixed is None]
PROMPT = (20, 9, 14)


def kept(relay: Relay, row: int, layer: int = 0, head: int = 0) -> list[int]:
    """Prompt positions that a head keeps, sink left out."""
    positions, origins = (t[layer][row].expand(HEADS, -1)[head] for t in (relay.positions, relay.origins))
    return positions[origins].tolist()[SINK:]


@pytest.mark.parametrize("name", RANKING)
def test_a_budget_is_kept_and_positions_ascend(name: str) -> None:
    relay = compress(name, segment())
    for row in range(3):
        assert relay.lengths[row] == SINK + 5 + 3
        for layer in range(LAYERS):
            chosen = kept(relay, row, layer)
            assert len(chosen) == 5
            assert chosen == sorted(chosen)
            assert min(chosen) >= SINK


@pytest.mark.parametrize(("budget", "expected"), [(0, 0), (1, 1), (1000, 18), (0.5, 9), (0.001, 1)])
def test_a_budget_is_a_count_or_a_share_of_the_candidates(budget: float, expected: int) -> None:
    assert len(kept(compress("layerwise", segment(), kv_budget=budget), 0)) == expected


def test_full_keeps_all_and_gen_only_sink_and_latent() -> None:
    assert kept(compress("full", segment()), 1) == list(range(SINK, 9))
    assert compress("gen", segment()).lengths == (SINK + 3,) * 3


def test_no_budget_is_the_same_as_gen() -> None:
    none, gen = compress("l-obf", segment(), kv_budget=0), compress("gen", segment())
    for layer in range(LAYERS):
        assert all(map(torch.equal, none.layer(layer), gen.layer(layer)))


def test_headwise_keeps_the_largest_masses_of_each_head() -> None:
    given = segment()
    relay = compress("headwise", given)
    sets = set()
    for head in range(HEADS):
        mass = given.mass[1][0, head, SINK:20]
        expected = sorted((mass.argsort(descending=True)[:5] + SINK).tolist())
        assert kept(relay, 0, layer=1, head=head) == expected
        sets.add(tuple(expected))
    assert len(sets) > 1


def test_layerwise_keeps_the_largest_sums_over_heads() -> None:
    given = segment()
    mass = given.mass[0][0, :, SINK:20].sum(0)
    assert kept(compress("layerwise", given), 0) == sorted((mass.argsort(descending=True)[:5] + SINK).tolist())


def test_equal_masses_keep_the_earlier_states() -> None:
    given = segment()
    for mass in given.mass:
        mass.fill_(0.5)
    assert kept(compress("headwise", given), 0) == list(range(SINK, SINK + 5))


@pytest.mark.parametrize("draw", range(4))
def test_what_is_kept_is_what_a_stable_sort_keeps(draw: int) -> None:
    """Few different masses, so that the last kept one is often one of several."""
    given, generator = segment(), torch.Generator().manual_seed(draw)
    mass = tuple(torch.randint(0, 4, held.shape, generator=generator).float() for held in given.mass)
    relay = compress("headwise", replace(given, mass=mass), kv_budget=0.5)
    for row, length in enumerate(PROMPT):
        for layer in range(LAYERS):
            for head in range(HEADS):
                scores = mass[layer][row, head, SINK:length]
                order = scores.sort(descending=True, stable=True).indices[: round((length - SINK) / 2)]
                assert kept(relay, row, layer, head) == (order + SINK).sort().values.tolist()


def test_adaptive_heads_without_candidates_take_no_place() -> None:
    """A head of holes leaves its share to the others."""
    given = segment()
    holes = tuple(torch.zeros(held.shape, dtype=torch.bool) for held in given.mass)
    for layer in holes:
        layer[:, 0, SINK:] = True
    for budget in (2, 4):
        relay = compress("headwise", replace(given, holes=holes), allocation="adaptive", kv_budget=budget)
        for layer in range(LAYERS):
            counts = (relay.origins[layer] & ~relay.holes[layer]).sum(dim=-1) - SINK
            assert counts[:, 0].tolist() == [0, 0, 0]
            assert counts.sum(dim=1).tolist() == [budget * HEADS] * 3


def test_recent_keeps_the_last_prompt_states() -> None:
    assert kept(compress("recent", segment()), 1) == [4, 5, 6, 7, 8]


def test_key_norm_keeps_the_shortest_keys() -> None:
    given = segment()
    norms = given.keys[0][0, 1, SINK:20].norm(dim=-1)
    expected = sorted((norms.argsort()[:5] + SINK).tolist())
    assert kept(compress("key-norm:per_head=true", given), 0, head=1) == expected


def test_value_aware_weighs_mass_with_the_value() -> None:
    given = segment()
    weighed = given.mass[0][0, 2, SINK:20] * given.values[0][0, 2, SINK:20].norm(dim=-1)
    expected = sorted((weighed.argsort(descending=True)[:5] + SINK).tolist())
    assert kept(compress("value-aware:per_head=true", given), 0, head=2) == expected


def test_random_follows_the_seed_of_the_row_alone() -> None:
    given = segment()
    drawn = compress("random", given)
    assert kept(compress("random", alone(given, 1)), 0) == kept(drawn, 1)
    other = compress("random", replace(given, seeds=(1, 2, 3)))
    assert [kept(other, row) for row in range(3)] != [kept(drawn, row) for row in range(3)]
    assert kept(drawn, 0, layer=0) != kept(drawn, 0, layer=1)


def test_random_favours_no_position() -> None:
    given = segment((0,) * 400, (20,) * 400, (1,) * 400)
    relay = compress("random", given)
    counts = torch.bincount(torch.tensor([kept(relay, row) for row in range(400)]).flatten(), minlength=20)[SINK:]
    # 400 rows draw 5 of 18: 111 each, with a deviation of 9
    assert counts.min() > 70
    assert counts.max() < 155


def test_who_asks_for_which_attention() -> None:
    asked = {
        spec: compressor(spec, RelaySettings()).mass for spec in ("full+obf", "gen", "h-obf", "random", "random+obf")
    }
    assert asked == {"full+obf": "none", "gen": "none", "h-obf": "latent", "random": "none", "random+obf": "latent"}
    assert compressor("oracle+obf", RelaySettings()).mass == "next"


def test_adaptive_heads_share_the_same_total() -> None:
    given = segment()
    even, adaptive = (compress("headwise", given, allocation=how) for how in ("uniform", "adaptive"))
    unequal = False
    for row in range(3):
        for layer in range(LAYERS):
            counts = [len(kept(adaptive, row, layer, head)) for head in range(HEADS)]
            assert sum(counts) == 5 * HEADS
            assert min(counts) >= 2
            assert max(counts) <= min(10, PROMPT[row] - SINK)
            unequal |= len(set(counts)) > 1
            held = [
                sum(float(given.mass[layer][row, head, kept(relay, row, layer, head)].sum()) for head in range(HEADS))
                for relay in (even, adaptive)
            ]
            assert held[1] >= held[0] - 1e-5
        assert adaptive.states(row) == even.states(row)
    assert unequal


def test_adaptive_needs_a_set_per_head() -> None:
    with pytest.raises(ValueError, match="layerwise:per_head=true"):
        compress("layerwise", segment(), allocation="adaptive")


@pytest.mark.parametrize("name", ["history_budget", "latent_budget"])
def test_further_budgets_need_a_ranking(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=3: full ranks nothing"):
        compress("full", segment(), **{name: 3})
