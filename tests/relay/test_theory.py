"""The identities and the bound of the method, section 4, over random and adversarial cases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segments import compress, segment
from torch import Tensor

from lm_eval_latentmas.relay.compensation import Backfill
from lm_eval_latentmas.relay.lowrank import outside, row_space
from lm_eval_latentmas.relay.probes import attention_output
from lm_eval_latentmas.relay.selectors import Block, Selection

several = settings(max_examples=60, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Case:
    """States of one head, (1, 1, tokens, size) float64, which of them are kept, and one query."""

    keys: Tensor
    values: Tensor
    query: Tensor
    kept: Tensor

    @property
    def weights(self) -> Tensor:
        """What the query puts on every state, read off by giving the states unit vectors as values."""
        count = self.keys.shape[2]
        filled = torch.ones(1, 1, count, dtype=torch.bool)
        return attention_output(self.query, self.keys, torch.eye(count)[None, None], filled)[0, 0, 0]

    def output(self, values: Tensor, there: Tensor | None = None) -> Tensor:
        """What the query reads, (size,)."""
        there = torch.ones_like(self.kept) if there is None else there
        return attention_output(self.query, self.keys, values, there[None, None])[0, 0, 0]

    def means(self) -> tuple[float, Tensor, Tensor]:
        """A_del and the conditional means of the dropped and of the kept values."""
        weights, values = self.weights, self.values[0, 0].double()
        lost = weights[~self.kept].sum()
        dropped = (weights[~self.kept] / lost) @ values[~self.kept]
        return float(lost), dropped, (weights[self.kept] / weights[self.kept].sum()) @ values[self.kept]

    def backfilled(self, **options: object) -> Tensor:
        """The kept values after a backfill, (kept, size)."""
        block = Block(
            load_keys=lambda: self.keys[None],
            values=self.values[None],
            mass=self.weights.float()[None, None, None],
            candidates=torch.ones_like(self.kept)[None, None, None],
            positions=torch.arange(len(self.kept), dtype=torch.int32)[None, None, None],
            layers=(0,),
            seeds=(0,),
            quotas=(int(self.kept.sum()),),
            widest=(int(self.kept.sum()),),
        )
        selection = Selection.of(self.kept[None, None, None], block)
        return Backfill(**{"rank": "all", "base": 4} | options)(block, selection)[0, 0, 0]


@st.composite
def cases(draw) -> Case:
    """Random states, with duplicates, a rank-deficient kept set, a budget up to the head size, odd norms, bfloat16."""
    size = draw(st.sampled_from([4, 8, 16]))
    kept = draw(st.sampled_from([1, 2, size - 1, size, size + 3]))
    dropped = draw(st.sampled_from([1, 2, size, 3 * size]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    count = kept + dropped
    values = torch.randn(1, 1, count, size, generator=generator)
    shape = draw(st.sampled_from(["plain", "duplicates", "low rank", "all equal", "in span"]))
    if shape == "duplicates":
        values[..., ::2, :] = values[..., :1, :].clone()
    elif shape == "low rank":
        values = torch.randn(1, 1, count, 2, generator=generator) @ values[..., :2, :]
    elif shape == "all equal":
        values[:] = values[..., :1, :].clone()
    elif shape == "in span":
        values[..., kept:, :] = torch.randn(dropped, kept, generator=generator) @ values[..., :kept, :]
    values = values * draw(st.sampled_from([1e-6, 1.0, 1e4]))
    if draw(st.booleans()):
        values = values.bfloat16().float()
    sharpness = draw(st.sampled_from([0.0, 1.0, 6.0]))
    keys, query = (torch.randn(1, 1, n, size, generator=generator) for n in (count, 1))
    return Case(keys * sharpness, values, query, torch.arange(count) < kept)


@several
@given(cases())
def test_dropping_keys_scales_every_kept_weight(case: Case) -> None:
    kept_only = case.kept[None, None]
    weights = attention_output(case.query, case.keys, torch.eye(len(case.kept))[None, None], kept_only)[0, 0, 0]
    lost = case.weights[~case.kept].sum()
    torch.testing.assert_close(weights[case.kept] * (1 - lost), case.weights[case.kept], atol=1e-12, rtol=1e-6)


@several
@given(cases())
def test_eviction_error_is_the_lost_mass_times_the_distance_of_the_means(case: Case) -> None:
    lost, dropped, kept = case.means()
    error = (case.output(case.values) - case.output(case.values, case.kept)).norm()
    scale = float(case.values.abs().max())
    torch.testing.assert_close(error, lost * (dropped - kept).norm(), atol=1e-6 * scale, rtol=1e-6)


@several
@given(cases())
def test_exact_projected_target_never_errs_more_than_eviction(case: Case) -> None:
    lost, dropped, kept = case.means()
    basis = row_space(case.values[0, 0][case.kept].double())
    filled_in = case.values.double().clone()
    filled_in[0, 0, case.kept] += lost * outside((dropped - kept).double()[None], basis)[0]
    target, scale = case.output(case.values), float(case.values.abs().max())
    evicted = (target - case.output(case.values, case.kept)).norm()
    assert (target - case.output(filled_in, case.kept)).norm() <= evicted + 1e-9 * scale


@several
@given(cases(), st.sampled_from(["uniform", "attention", "per-token"]), st.sampled_from([1, 3, "all", "evr"]))
def test_a_backfill_leaves_the_kept_span_alone(case: Case, inject: str, rank: int | str) -> None:
    kept = case.values[0, 0][case.kept].double()
    change = case.backfilled(rank=rank, inject=inject).double() - kept
    inside = change @ row_space(kept).mT
    # up to the direction that float32 numbers of this size cannot tell from the span
    assert inside.abs().max() <= 1e-6 * max(float(case.values.abs().max()), float(change.abs().max()))


@several
@given(cases())
def test_uniform_backfill_of_all_directions_is_the_projected_target(case: Case) -> None:
    lost, dropped, _ = case.means()
    values = case.values[0, 0].double()
    delta = outside(dropped.double()[None], row_space(values[case.kept]))[0]
    change = case.backfilled().double() - values[case.kept]
    demand = lost / (1 - lost + 1e-12)
    scale = float(case.values.abs().max()) * max(1.0, demand)
    torch.testing.assert_close(change, (demand * delta).expand_as(change), atol=1e-5 * scale, rtol=1e-4)


def test_masses_of_zero_weigh_the_dropped_evenly_and_move_nothing() -> None:
    given_segment = segment()
    for mass in given_segment.mass:
        mass.zero_()
    plain, filled = compress("recent", given_segment), compress("recent+obf", given_segment)
    for layer in range(plain.layers):
        assert torch.equal(plain.layer(layer)[1], filled.layer(layer)[1])
    unscaled = compress("recent+obf:scale=false", given_segment)
    for layer in range(plain.layers):
        assert not torch.equal(plain.layer(layer)[1], unscaled.layer(layer)[1])


def test_bfloat16_states_are_corrected_in_full_precision() -> None:
    low = segment(dtype=torch.bfloat16)
    high = segment()
    for layer in range(2):
        high.values[layer].copy_(low.values[layer])
        high.keys[layer].copy_(low.keys[layer])
    rounded, exact = compress("l-obf", low), compress("l-obf", high)
    for layer in range(2):
        assert torch.equal(rounded.layer(layer)[1], exact.layer(layer)[1].bfloat16())


def test_nothing_dropped_moves_nothing() -> None:
    keys, values, query = (torch.randn(1, 1, count, 8) for count in (4, 4, 1))
    case = Case(keys, values, query, torch.ones(4, dtype=torch.bool))
    assert torch.equal(case.backfilled().float(), values[0, 0])
