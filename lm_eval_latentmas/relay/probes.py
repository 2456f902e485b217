"""What a compressor did, measured from outside: the diagnostics of the method, section 4, as plain columns.

A probe is handed to a compressor's call; without one nothing here runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay.compensation import Backfill, Compensation, Residual
from lm_eval_latentmas.relay.selectors import Block, Selection


@dataclass
class Diagnostics:
    """A probe that keeps one record per region, layer, row and KV head: ``compressor(segment, Diagnostics(...))``.

    compensation: the compressor's own, asked for the share of the residual that its directions explain.
    records: region, layer, row, head, candidates, kept (positions), and PCR, RCR, PC, REVR, DR, IVN in lower case.
    """

    compensation: Compensation | None = None
    records: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, region: str, block: Block, selection: Selection, values: Tensor) -> None:
        measured = {name: tensor.tolist() for name, tensor in measure(block, selection, values).items()}
        if isinstance(self.compensation, Backfill):
            measured["revr"] = self.compensation.explained(block, selection).tolist()
        layers, rows, heads = block.values.shape[:3]
        positions = block.positions.expand(-1, -1, heads, -1).cpu()
        kept = selection.kept.expand(-1, -1, heads, -1).cpu()
        candidates = block.candidates.expand(layers, -1, heads, -1).sum(-1).tolist()
        for layer in range(layers):
            for row in range(rows):
                for head in range(heads):
                    at = (layer, row, head)
                    self.records.append(
                        {"region": region, "layer": block.layers[layer], "row": row, "head": head}
                        | {"candidates": candidates[layer][row][head], "kept": positions[at][kept[at]].tolist()}
                        | {name: numbers[layer][row][head] for name, numbers in measured.items()}
                    )


def measure(block: Block, selection: Selection, values: Tensor) -> dict[str, Tensor]:
    """The diagnostics that need no principal directions, each (layers, rows, kv_heads); 0 where nothing is dropped.

    values: the kept values after compensation, (layers, rows, kv_heads, slots, head_dim). ``ivn`` is the mean norm of
    their change: ||alpha * delta|| where every kept value gets the same.
    """
    found = Residual.of(block, selection, project=True)
    dropped = block.values.to(found.kept.dtype) * selection.dropped[..., None]
    residual = found.outside(dropped)
    inside = dropped - residual
    size = dropped.flatten(-2).norm(dim=-1).clamp_min(torch.finfo(residual.dtype).tiny)
    change = (values.to(found.kept.dtype) - found.kept).norm(dim=-1) * selection.filled
    return {
        "pcr": inside.flatten(-2).norm(dim=-1) / size,
        "rcr": residual.flatten(-2).norm(dim=-1) / size,
        # sums point where means do
        "pc": torch.cosine_similarity(dropped.sum(-2), inside.sum(-2), dim=-1),
        "dr": found.demand[..., 0],
        "ivn": change.sum(-1) / selection.filled.sum(-1).clamp_min(1),
    }


def attention_output(queries: Tensor, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
    """What queries read from states: (rows, heads, queries, head_dim), float64.

    queries: (rows, heads, queries, head_dim), already rotated. keys, values: (rows, kv_heads, slots, head_dim).
    filled: (rows, 1 or kv_heads, slots) bool. Only these states are read, not the queries' own tokens.
    """
    rows, heads, _, width = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.double().view(rows, kv_heads, heads // kv_heads, -1, width)
    scores = grouped @ keys.double()[:, :, None].mT / width**0.5
    weights = scores.masked_fill(~filled[:, :, None, None], -torch.inf).softmax(-1)
    states = values.double().masked_fill(~filled[..., None], 0)
    return (weights @ states[:, :, None]).flatten(1, 2)


def output_errors(
    queries: Tensor, segment: Segment, relays: Mapping[str, Relay], layer: int, counted: Tensor | None = None
) -> dict[str, Tensor]:
    """How far what the next queries read from each relay lies from what they would read from the whole segment.

    Per relay (rows, kv_heads): ||o_relay - o_exact|| / ||o_exact||, a mean over a group's queries. counted: (rows,),
    how many queries of each row are real. The selector's relay beside the compensated one shows what the
    compensation gains where it acts.
    """
    keys, values = segment.keys[layer], segment.values[layer]
    exact = attention_output(queries, keys, values, _filled(segment, layer))
    size = exact.norm(dim=-1).clamp_min(torch.finfo(exact.dtype).tiny)
    width = queries.shape[2]
    real = torch.full((queries.shape[0],), width, device=queries.device) if counted is None else counted
    weight = (torch.arange(width, device=queries.device) < real[:, None]) / real[:, None]
    weight = weight[:, None]
    errors = {}
    for name, relay in relays.items():
        read = attention_output(queries, *relay.layer(layer), _filled(relay, layer))
        relative = (read - exact).norm(dim=-1) / size
        errors[name] = (relative * weight).unflatten(1, (keys.shape[1], -1)).mean(2).sum(-1)
    return errors


def write_parquet(path: str | Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as one Parquet file. Needs pyarrow (the ``report`` extra)."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("diagnostics need pyarrow: pip install 'lm-eval-latentmas[report]'") from error
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)


def _filled(states: Segment | Relay, layer: int) -> Tensor:
    """Which slots hold a state, (rows, 1 or kv_heads, slots) bool."""
    positions = states.positions[layer]
    lengths = torch.tensor(states.lengths, device=positions.device).view(-1, 1, 1)
    inside = torch.arange(positions.shape[-1], device=positions.device) < lengths
    return inside if states.holes is None else inside & ~states.holes[layer]
