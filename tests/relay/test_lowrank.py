"""Spans and leading directions against float64 SVDs, over a thousand heads of five spectra."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lm_eval_latentmas.relay import lowrank
from lm_eval_latentmas.relay.lowrank import gram_outside, leading, outside, row_space

SIZE, DROPPED, KEPT, HEADS = 64, 90, 12, 200


def residuals(kind: str, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    """Dropped values (heads, DROPPED, SIZE) of a kind of spectrum, and kept ones, from float32 numbers."""
    generator = torch.Generator().manual_seed(7)
    dropped = torch.randn(heads, DROPPED, SIZE, generator=generator)
    place = torch.arange(1, SIZE + 1)
    if kind == "decaying":
        dropped = dropped * place**-0.5
    elif kind == "outlier":
        dropped = dropped + 100 * torch.randn(heads, 1, SIZE, generator=generator)
    elif kind == "low rank":
        dropped = torch.randn(heads, DROPPED, 3, generator=generator) @ dropped[:, :3]
    elif kind == "steep":
        dropped = dropped * 0.5**place
    return dropped.double(), torch.randn(heads, KEPT, SIZE, generator=generator).double()


def svd_delta(residual: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The mean residual within the first right singular vectors, and how far apart the values at the cut are."""
    _, values, directions = torch.linalg.svd(residual, full_matrices=False)
    mean, first = residual.mean(-2, keepdim=True), directions[..., :count, :]
    return (mean @ first.mT @ first)[..., 0, :], 1 - values[..., count] / values[..., count - 1]


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["flat", "decaying", "outlier", "low rank", "steep"])
def test_fast_injects_what_an_exact_svd_would(kind: str, count: int, checked: bool, monkeypatch) -> None:
    # unchecked as on a device, where asking which matrices have settled would wait for it
    monkeypatch.setattr(lowrank, "_checked", lambda gram: checked)
    dropped, kept = residuals(kind)
    basis = row_space(kept)
    residual = outside(dropped, basis)
    expected, gap = svd_delta(residual, count)
    for svd, median, worst in (("fast", 1e-5, 1e-3), ("exact", 1e-7, 1e-6)):
        directions, _ = leading(residual.mT @ residual, count, svd)
        mean = residual.mean(-2, keepdim=True)
        delta = (mean @ directions.mT @ directions)[..., 0, :]
        error = (delta - expected).norm(dim=-1) / expected.norm(dim=-1)
        distinct = gap > 1e-4
        assert distinct.sum() > 0.99 * HEADS
        assert error.median() <= median
        assert error[distinct].max() <= worst


def test_equal_singular_values_at_the_cut_still_give_the_most_variance() -> None:
    directions = torch.linalg.qr(torch.randn(50, SIZE, SIZE, generator=torch.Generator().manual_seed(1)).double()).Q
    values = torch.ones(SIZE, dtype=torch.float64)
    values[:2] = 2
    gram = directions @ torch.diag(values) @ directions.mT
    for svd in ("fast", "exact"):
        found, energy = leading(gram, 4, svd)
        captured = (found @ gram @ found.mT).diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(captured.sum(-1), torch.full((50,), 6.0, dtype=torch.float64))
        torch.testing.assert_close(captured, energy)


@pytest.mark.parametrize("svd", ["fast", "exact"])
def test_directions_do_not_depend_on_the_batch(svd: str) -> None:
    dropped, _ = residuals("flat", heads=6)
    gram = dropped.mT @ dropped
    together, _ = leading(gram, 3, svd)
    for head in range(6):
        single, _ = leading(gram[head], 3, svd)
        torch.testing.assert_close(single.mT @ single, together[head].mT @ together[head], atol=1e-12, rtol=0)


@pytest.mark.parametrize("svd", ["fast", "exact"])
def test_a_zero_residual_has_no_energy_and_no_nan(svd: str) -> None:
    directions, energy = leading(torch.zeros(2, SIZE, SIZE, dtype=torch.float64), 4, svd)
    assert directions.isfinite().all()
    assert not energy.any()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_float32_finds_all_directions_of_a_low_rank(rank: int, size: float) -> None:
    generator = torch.Generator().manual_seed(rank)
    states = torch.randn(20, 90, rank, generator=generator) @ torch.randn(20, rank, 2 * SIZE, generator=generator)
    states = states * size
    directions, energy = leading(states.mT @ states, 4, "fast")
    inside = states @ directions.mT @ directions
    torch.testing.assert_close(inside, states, atol=1e-5 * float(states.abs().max()), rtol=0)
    torch.testing.assert_close(energy.sum(-1), (states**2).sum((-1, -2)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", ["flat", "decaying", "steep"])
def test_float32_finds_what_float64_does(kind: str) -> None:
    dropped, _ = residuals(kind)
    expected, gap = svd_delta(dropped, 2)
    gram = dropped.float().mT @ dropped.float()
    directions = leading(gram, 2, "fast")[0].double()
    delta = (dropped.mean(-2, keepdim=True) @ directions.mT @ directions)[..., 0, :]
    error = (delta - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error[gap > 1e-2].max() <= 1e-3


@pytest.mark.parametrize("basis", ["some", "none"])
def test_a_projected_gram_matrix_is_that_of_the_residual(basis: str) -> None:
    dropped, kept = residuals("decaying", heads=5)
    span = row_space(kept) if basis == "some" else torch.zeros_like(kept)
    residual = outside(dropped, span)
    torch.testing.assert_close(gram_outside(dropped.mT @ dropped, span), residual.mT @ residual)


@pytest.mark.parametrize("rows", [5, SIZE, SIZE + 9])
@pytest.mark.parametrize("kind", ["independent", "duplicates", "combinations", "zeros", "huge and tiny"])
def test_projector_is_the_exact_one(kind: str, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    states = torch.randn(20, rows, SIZE, generator=generator)
    if kind == "duplicates":
        states[:, rows // 2 :] = states[:, :1]
    elif kind == "combinations":
        states = torch.randn(20, rows, 3, generator=generator).double() @ states[:, :3].double()
    elif kind == "zeros":
        states[:, 1:] = 0
    elif kind == "huge and tiny":
        states = states * torch.logspace(-15, 15, 20)[:, None, None]
    states = states.double()
    _, values, directions = torch.linalg.svd(states, full_matrices=False)
    directions = directions * (values > values[:, :1] * max(rows, SIZE) * 2.0**-23)[..., None]
    basis = row_space(states)
    torch.testing.assert_close(basis.mT @ basis, directions.mT @ directions, atol=1e-7, rtol=0)
    other = torch.randn(20, 7, SIZE, generator=generator).double()
    remaining = outside(other, basis)
    torch.testing.assert_close(remaining, other - other @ directions.mT @ directions, atol=1e-7, rtol=0)
