"""Spans and leading directions of many small matrices at once, through Gram matrices in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(device: torch.device) -> torch.dtype:
    """The dtype of spectral work: float64, or float32 on devices that have no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def row_space(rows: Tensor) -> Tensor:
    """An orthonormal basis of the numerical row space: (..., n, d) to (..., min(n, d), d).

    Rows below the numerical rank are zero. A direction counts while its singular value exceeds max(n, d) * 2**-23
    times the largest, what float32 states can tell apart.
    """
    n, d = rows.shape[-2:]
    if n < d:
        energy, left = torch.linalg.eigh(rows @ rows.mT)
        basis = (left.mT @ rows) * energy.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt()[..., None]
    else:
        energy, right = torch.linalg.eigh(rows.mT @ rows)
        basis = right.mT
    floor = energy[..., -1:] * (max(n, d) * 2.0**-23) ** 2
    return basis * ((energy > floor) & (energy > 0))[..., None]


def outside(rows: Tensor, basis: Tensor) -> Tensor:
    """What of each row (..., n, d) lies outside the span of ``basis`` (..., r, d), orthonormal or zero rows."""
    residual = rows - (rows @ basis.mT) @ basis
    # once more takes away what rounding left inside the span
    return residual - (residual @ basis.mT) @ basis


def leading(rows: Tensor, count: int, svd: str) -> tuple[Tensor, Tensor]:
    """The first ``count`` right singular vectors of (..., n, d) and their squared singular values.

    Returns directions (..., count, d), in descending order, zero beyond the rank, and energies (..., count).
    """
    n, d = rows.shape[-2:]
    count = min(count, n, d)
    if n < d:
        energy, left = torch.linalg.eigh(rows @ rows.mT)
        energy, left = energy[..., -count:].flip(-1), left[..., -count:].flip(-1)
        directions = (left.mT @ rows) * energy.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt()[..., None]
        directions = directions * (energy > energy[..., :1] * n * torch.finfo(rows.dtype).eps)[..., None]
        return directions, energy.clamp_min(0)
    energy, right = torch.linalg.eigh(rows.mT @ rows)
    return right[..., -count:].flip(-1).mT, energy[..., -count:].flip(-1).clamp_min(0)
