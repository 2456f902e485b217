"""The compression of h-obf written plainly: one QR and one SVD for every layer, row and head. Kept as a reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def backfilled(values: Tensor, mass: Tensor, budget: int, rank: int) -> tuple[Tensor, Tensor]:
    """Kept tokens, ascending, and their corrected values, for one head's candidates (method, section 3).

    values: (candidates, d); mass: (candidates,).
    """
    kept = mass.topk(min(budget, len(mass))).indices.sort().values
    dropped = torch.ones(len(mass), dtype=torch.bool, device=mass.device)
    dropped[kept] = False
    keep, discard, weight = values[kept].float(), values[dropped].float(), mass[dropped]
    if not len(discard) or not len(keep):
        return kept, values[kept]
    basis = torch.linalg.qr(keep.T).Q
    residual = discard - discard @ basis @ basis.T
    if residual.norm() <= 1e-10:
        return kept, values[kept]
    directions = torch.linalg.svd(residual, full_matrices=False).Vh[:rank]
    mean = (weight / weight.sum()) @ residual
    demand = weight.sum() / (mass[kept].sum() + 1e-12)
    return kept, (keep + demand * (mean @ directions.T) @ directions).to(values.dtype)


def relay_layer(
    keys: Tensor,
    values: Tensor,
    mass: Tensor,
    *,
    history: int,
    prompts: Sequence[int],
    latent: Sequence[int],
    steps: int,
    sink: int,
    budget: int,
    rank: int,
) -> tuple[Tensor, Tensor]:
    """Keys and values of one layer's relay, ``[ history | sink (first agent) | kept | latent ]``.

    keys, values: (rows, kv_heads, slots, d); mass: (rows, kv_heads, slots). history: states before the prompt.
    latent: where each row's latent states begin. sink: of the prompt; 0 after the first agent. Prompts are longer than
    sink and budget together, so rows stay equally long.
    """
    all_keys, all_values = [], []
    for row, (length, start) in enumerate(zip(prompts, latent, strict=True)):
        for head in range(keys.shape[1]):
            begin, end = history + sink, history + length
            kept, corrected = backfilled(values[row, head, begin:end], mass[row, head, begin:end], budget, rank)
            thought = slice(start, start + steps)
            key, value = keys[row, head], values[row, head]
            all_keys.append(torch.cat([key[:begin], key[begin:end][kept], key[thought]]))
            all_values.append(torch.cat([value[:begin], corrected, value[thought]]))
    shape = (*keys.shape[:2], -1, keys.shape[3])
    return torch.stack(all_keys).view(shape), torch.stack(all_values).view(shape)
