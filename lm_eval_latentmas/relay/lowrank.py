"""Spans and leading directions of many small matrices at once, through Gram matrices."""

from __future__ import annotations

import torch
from torch import Tensor

# a filter of higher degree separates neighbours sooner, but the largest eigenvalue then drowns the wanted ones
DEGREE = 4
FILTERS_PER_ROUND = 2
# the most rounds where matrices whose pairs have settled leave early; fewer, wider ones where that waits for a device
ROUNDS = {"fast": 6, "exact": 9}
SPARE = 6
UNCHECKED_ROUNDS = 2
UNCHECKED_SPARE = 12
# what float32 states can tell apart
PRECISION = 2.0**-23
# the largest residual of a settled eigenpair, in units of the largest eigenvalue
SETTLED = {torch.float32: 1e-5, torch.float64: 2e-11}
# the least pivot, in units of the trace, at which a Cholesky factor gives the span to full precision
PIVOT = 1e-6


def wide(device: torch.device) -> torch.dtype:
    """The dtype of spectral work: float64, or float32 on devices that have no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def row_space(rows: Tensor) -> Tensor:
    """An orthonormal basis of the numerical row space: (..., n, d) to (..., min(n, d), d).

    Rows beyond the numerical rank are zero. A direction counts while its singular value exceeds max(n, d) times float32
    precision times the largest one.
    """
    n, d = rows.shape[-2:]
    gram = rows @ rows.mT if n < d else rows.mT @ rows
    # an eigendecomposition costs five times as much, and only what is nearly dependent needs one
    if n < d and rows.device.type == "cpu" and rows.dtype == torch.float64:
        lower = torch.linalg.cholesky_ex(gram).L
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        if bool((lower.diagonal(dim1=-2, dim2=-1).amin(-1) ** 2 > PIVOT * trace).all()):
            eye = torch.eye(n, dtype=rows.dtype).expand_as(gram)
            # the inverse times the rows: rows are long, and products faster than substitution
            return torch.linalg.solve_triangular(lower, eye, upper=False) @ rows
    energy, vectors = torch.linalg.eigh(gram)
    floor = energy[..., -1:] * (max(n, d) * PRECISION) ** 2
    there = (energy > floor) & (energy > 0)
    if n < d:
        length = energy.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt() * there
        return (vectors * length[..., None, :]).mT @ rows
    return vectors.mT * there[..., None]


def outside(rows: Tensor, basis: Tensor) -> Tensor:
    """What of each row (..., n, d) lies outside the span of ``basis`` (..., r, d), orthonormal or zero rows."""
    return rows - (rows @ basis.mT) @ basis


def gram_outside(gram: Tensor, basis: Tensor) -> Tensor:
    """(I - P) G (I - P) for a Gram matrix (..., d, d) and the projector P on the span of ``basis`` (..., r, d)."""
    flat, across = gram.flatten(0, -3), basis.flatten(0, -3)
    inside = across @ flat
    inside = torch.baddbmm(inside, inside @ across.mT, across, alpha=-0.5)
    outside = torch.baddbmm(flat, across.mT, inside, alpha=-1).baddbmm_(inside.mT, across, alpha=-1)
    return outside.view_as(gram)


def leading(gram: Tensor, count: int, svd: str) -> tuple[Tensor, Tensor]:
    """The first ``count`` eigenvectors of (..., d, d) and their eigenvalues: right singular vectors, squared values.

    Returns directions (..., count, d), in descending order, and energies (..., count). Subspace iteration with
    Chebyshev filters (Zhou et al., J. Comput. Phys. 219, 2006), all in batched products. ``fast`` does at most a fixed
    amount of work in the dtype of ``gram`` and waits for no device; ``exact`` goes on to the dtype's precision and
    hands matrices that do not get there to LAPACK.
    """
    d = gram.shape[-1]
    count = min(count, d)
    flat = gram.reshape(-1, d, d)
    if 3 * (count + _spare(flat)) > d:
        vectors, energy = _direct(flat, count)
    else:
        vectors, energy = _iterated(flat, count, svd)
    return vectors.mT.reshape(*gram.shape[:-2], count, d), energy.clamp_min(0).reshape(*gram.shape[:-2], count)


def _checked(gram: Tensor) -> bool:
    """Whether asking which pairs have settled costs nothing."""
    return gram.device.type == "cpu"


def _spare(gram: Tensor) -> int:
    return SPARE if _checked(gram) else UNCHECKED_SPARE


def _direct(gram: Tensor, count: int) -> tuple[Tensor, Tensor]:
    energy, vectors = torch.linalg.eigh(gram)
    return vectors[..., -count:].flip(-1), energy[..., -count:].flip(-1)


def _iterated(gram: Tensor, count: int, svd: str) -> tuple[Tensor, Tensor]:
    """Leading pairs of Gram matrices, (n, d, d): (n, d, count), (n, count)."""
    # widths that are no multiple of 8 make slower products
    block = -(-(count + _spare(gram)) // 8) * 8
    fast = ROUNDS["fast"] if _checked(gram) else UNCHECKED_ROUNDS
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(gram.shape[-1], block, generator=generator, dtype=torch.float64)
    if svd == "fast" or gram.dtype == torch.float32:
        rounds = fast if svd == "fast" else ROUNDS["exact"]
        vectors, energy = _refined(gram, *_powered(gram, start.to(gram)), count, rounds, svd)
    else:
        # what float32 finds is most of the way, at half of the cost; traces of 1 are within its range
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(torch.finfo(gram.dtype).tiny)
        rough = (gram / trace[:, None, None]).float()
        vectors, energy = _refined(rough, *_powered(rough, start.to(rough)), count, fast, "fast")
        vectors, energy = torch.linalg.qr(vectors.to(gram)).Q, energy * trace[:, None]
        vectors, energy = _refined(gram, vectors, energy, count, ROUNDS["exact"], svd)
    return vectors[..., :count], energy[..., :count]


def _powered(gram: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal block after two steps of orthogonal iteration, and what it says of the eigenvalues."""
    vectors, corner = torch.linalg.qr(gram @ torch.linalg.qr(gram @ start).Q)
    return vectors, corner.diagonal(dim1=-2, dim2=-1).abs().sort(dim=-1, descending=True).values


def _refined(gram: Tensor, vectors: Tensor, energy: Tensor, count: int, rounds: int, svd: str) -> tuple[Tensor, Tensor]:
    """Ritz vectors and values after up to ``rounds`` of filters; matrices whose pairs have settled leave early."""
    if not rounds:
        return _direct(gram, vectors.shape[-1]) if svd == "exact" else (vectors, energy)
    vectors, energy, error = _filtered(gram, vectors, energy, count)
    if svd == "fast" and not _checked(gram):
        return _refined(gram, vectors, energy, count, rounds - 1, svd)
    loose = (error > SETTLED[gram.dtype]).nonzero()[:, 0]
    if len(loose):
        vectors[loose], energy[loose] = _refined(gram[loose], vectors[loose], energy[loose], count, rounds - 1, svd)
    return vectors, energy


def _filtered(gram: Tensor, vectors: Tensor, energy: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """One round: Ritz vectors and values of the filtered block, and the residual of the first ``count`` pairs.

    A filter damps what lies below the smallest value of the block, or below one that keeps the wanted directions from
    being drowned by the largest.
    """
    limits, largest = torch.finfo(gram.dtype), energy[:, 0]
    spread = (energy[:, count - 1] / 2).clamp(largest * limits.eps**0.75, largest * limits.eps**0.25)
    # [0, top] becomes [-2, 2]
    top = torch.maximum(energy[:, -1], spread).clamp_min(limits.tiny * 1024)[:, None, None]
    shifted = gram * (4 / top)
    shifted.diagonal(dim1=-2, dim2=-1).sub_(2)
    for _ in range(FILTERS_PER_ROUND):
        vectors = torch.linalg.qr(_damped(shifted, vectors)).Q
    images = gram @ vectors
    energy, turn = torch.linalg.eigh(vectors.mT @ images)
    energy, turn = energy.flip(-1), turn.flip(-1)
    vectors = vectors @ turn
    residual = images @ turn[..., :count] - vectors[..., :count] * energy[:, None, :count]
    return vectors, energy, residual.norm(dim=1).amax(-1) / energy[:, 0].clamp_min(limits.tiny)


def _damped(shifted: Tensor, vectors: Tensor) -> Tensor:
    """The Chebyshev polynomial that stays within 1 on [-2, 2] and grows fastest outside, applied to (n, d, block)."""
    before, now = vectors, (shifted @ vectors).div_(2)
    for _ in range(DEGREE - 1):
        before, now = now, torch.baddbmm(before, shifted, now, beta=-1)
    return now
