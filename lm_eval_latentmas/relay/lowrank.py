"""Spans and leading directions of many small matrices at once, through Gram matrices in float64."""

from __future__ import annotations

import torch
from torch import Tensor

# a filter of higher degree separates neighbours sooner, but the largest eigenvalue then drowns the wanted ones
DEGREE = 4
FILTERS_PER_ROUND = 2
ROUNDS = {"fast": 2, "exact": 5}
SPARE = 12
# what float32 states can tell apart
PRECISION = 2.0**-23
CONVERGED = 1e-12


def wide(device: torch.device) -> torch.dtype:
    """The dtype of spectral work: float64, or float32 on devices that have no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def row_space(rows: Tensor) -> Tensor:
    """An orthonormal basis of the numerical row space: (..., n, d) to (..., min(n, d), d).

    Rows beyond the numerical rank are zero. A direction counts while its singular value exceeds max(n, d) times float32
    precision times the largest one.
    """
    n, d = rows.shape[-2:]
    if n < d:
        energy, vectors = torch.linalg.eigh(rows @ rows.mT)
    else:
        energy, vectors = torch.linalg.eigh(rows.mT @ rows)
    floor = energy[..., -1:] * (max(n, d) * PRECISION) ** 2
    there = (energy > floor) & (energy > 0)
    if n < d:
        length = energy.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt() * there
        return (vectors * length[..., None, :]).mT @ rows
    return vectors.mT * there[..., None]


def outside(rows: Tensor, basis: Tensor) -> Tensor:
    """What of each row (..., n, d) lies outside the span of ``basis`` (..., r, d), orthonormal or zero rows."""
    return rows - (rows @ basis.mT) @ basis


def leading(gram: Tensor, count: int, svd: str) -> tuple[Tensor, Tensor]:
    """The first ``count`` eigenvectors of (..., d, d) and their eigenvalues: right singular vectors, squared values.

    Returns directions (..., count, d), in descending order, and energies (..., count). ``fast`` does a fixed amount of
    work in batched products and waits for nothing; ``exact`` goes on to float64 precision and hands matrices that do
    not get there to LAPACK.
    """
    d = gram.shape[-1]
    count = min(count, d)
    flat = gram.reshape(-1, d, d)
    if 3 * (count + SPARE) > d:
        vectors, energy = _direct(flat, count)
    else:
        vectors, energy = _filtered(flat, count + SPARE, ROUNDS[svd])
        vectors, energy = vectors[..., :count], energy[..., :count]
        if svd == "exact":
            vectors, energy = _settled(flat, vectors, energy)
    return vectors.mT.reshape(*gram.shape[:-2], count, d), energy.clamp_min(0).reshape(*gram.shape[:-2], count)


def _direct(gram: Tensor, count: int) -> tuple[Tensor, Tensor]:
    energy, vectors = torch.linalg.eigh(gram)
    return vectors[..., -count:].flip(-1), energy[..., -count:].flip(-1)


def _filtered(gram: Tensor, block: int, rounds: int) -> tuple[Tensor, Tensor]:
    """Subspace iteration with Chebyshev filters (Zhou et al., J. Comput. Phys. 219, 2006): (n, d, block), (n, block).

    A filter damps what lies below the smallest Ritz value of the block, as the round before found it.
    """
    generator = torch.Generator().manual_seed(0)
    # widths that are no multiple of 8 make slower products
    start = torch.randn(gram.shape[-1], -(-block // 8) * 8, generator=generator, dtype=torch.float64).to(gram)
    energy, vectors = _ritz(gram, torch.linalg.qr(gram @ (gram @ start)).Q)
    for _ in range(rounds):
        # [0, smallest Ritz value] becomes [-2, 2]; a floor far below the largest keeps a singular matrix finite
        top = torch.maximum(energy[:, -1:], energy[:, :1] * 1e-8).clamp_min(torch.finfo(gram.dtype).tiny ** 0.5)
        shifted = gram * (4 / top)[..., None]
        shifted.diagonal(dim1=-2, dim2=-1).sub_(2)
        for _ in range(FILTERS_PER_ROUND):
            vectors = torch.linalg.qr(_damped(shifted, vectors)).Q
        energy, vectors = _ritz(gram, vectors)
    return vectors, energy


def _damped(shifted: Tensor, vectors: Tensor) -> Tensor:
    """The Chebyshev polynomial that stays within 1 on [-2, 2] and grows fastest outside, applied to (n, d, block)."""
    before, now = vectors, (shifted @ vectors).div_(2)
    for _ in range(DEGREE - 1):
        before, now = now, torch.baddbmm(before, shifted, now, beta=-1)
    return now


def _ritz(gram: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Ritz values, in descending order, and Ritz vectors of an orthonormal block."""
    energy, turn = torch.linalg.eigh(vectors.mT @ (gram @ vectors))
    return energy.flip(-1), vectors @ turn.flip(-1)


def _settled(gram: Tensor, vectors: Tensor, energy: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs as they are where they solve the eigenproblem to float64 precision, LAPACK's elsewhere."""
    error = (gram @ vectors - vectors * energy[:, None]).norm(dim=1).amax(-1)
    loose = (error > CONVERGED * energy[:, 0]).nonzero()[:, 0]
    if len(loose):
        vectors, energy = vectors.clone(), energy.clone()
        vectors[loose], energy[loose] = _direct(gram[loose], vectors.shape[-1])
    return vectors, energy
