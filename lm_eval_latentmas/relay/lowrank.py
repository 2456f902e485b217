"""Spans and leading directions of many small matrices at once, through Gram matrices in float64."""

from __future__ import annotations

import torch
from torch import Tensor

# a filter of higher degree separates neighbours sooner, but the largest eigenvalue then drowns the wanted ones
DEGREE = 4
STAGES = {"fast": 5, "exact": 10}
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
        energy, left = torch.linalg.eigh(rows @ rows.mT)
        basis = (left.mT @ rows) * energy.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt()[..., None]
    else:
        energy, right = torch.linalg.eigh(rows.mT @ rows)
        basis = right.mT
    floor = energy[..., -1:] * (max(n, d) * PRECISION) ** 2
    return basis * ((energy > floor) & (energy > 0))[..., None]


def outside(rows: Tensor, basis: Tensor) -> Tensor:
    """What of each row (..., n, d) lies outside the span of ``basis`` (..., r, d), orthonormal or zero rows."""
    residual = rows - (rows @ basis.mT) @ basis
    # once more takes away what rounding left inside the span
    return residual - (residual @ basis.mT) @ basis


def gram_outside(gram: Tensor, basis: Tensor) -> Tensor:
    """(I - P) G (I - P) for a Gram matrix (..., d, d) and the projector P on the span of ``basis`` (..., r, d)."""
    inside = basis @ gram
    half = basis.mT @ (inside - (inside @ basis.mT) @ basis / 2)
    return gram - half - half.mT


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
        vectors, energy = _filtered(flat, count + SPARE, STAGES[svd])
        vectors, energy = vectors[..., :count], energy[..., :count]
        if svd == "exact":
            vectors, energy = _settled(flat, vectors, energy)
    return vectors.mT.reshape(*gram.shape[:-2], count, d), energy.clamp_min(0).reshape(*gram.shape[:-2], count)


def _direct(gram: Tensor, count: int) -> tuple[Tensor, Tensor]:
    energy, vectors = torch.linalg.eigh(gram)
    return vectors[..., -count:].flip(-1), energy[..., -count:].flip(-1)


def _filtered(gram: Tensor, block: int, stages: int) -> tuple[Tensor, Tensor]:
    """Subspace iteration with Chebyshev filters (Zhou et al., J. Comput. Phys. 219, 2006): (n, d, block), (n, block).

    Every stage damps what lies below the smallest Ritz value of the block, which is known from the stage before.
    """
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(gram.shape[-1], block, generator=generator, dtype=torch.float64).to(gram)
    vectors = torch.linalg.qr(gram @ torch.linalg.qr(gram @ start).Q).Q
    energy, vectors, images = _ritz(gram, vectors)
    for _ in range(stages):
        half = (torch.maximum(energy[:, -1:], energy[:, :1] * 1e-8) / 2).clamp_min(torch.finfo(gram.dtype).tiny)
        half = half[..., None]
        before, now = vectors, images / half - vectors
        for _ in range(DEGREE - 1):
            before, now = now, 2 * (gram @ now / half - now) - before
        energy, vectors, images = _ritz(gram, torch.linalg.qr(now).Q)
    return vectors, energy


def _ritz(gram: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values, in descending order, Ritz vectors and their images, from an orthonormal block."""
    images = gram @ vectors
    energy, turn = torch.linalg.eigh(vectors.mT @ images)
    turn = turn.flip(-1)
    return energy.flip(-1), vectors @ turn, images @ turn


def _settled(gram: Tensor, vectors: Tensor, energy: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs as they are where they solve the eigenproblem to float64 precision, LAPACK's elsewhere."""
    error = (gram @ vectors - vectors * energy[:, None]).norm(dim=1).amax(-1)
    loose = (error > CONVERGED * energy[:, 0]).nonzero()[:, 0]
    if len(loose):
        vectors, energy = vectors.clone(), energy.clone()
        vectors[loose], energy[loose] = _direct(gram[loose], vectors.shape[-1])
    return vectors, energy
