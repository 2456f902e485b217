"""The hand-off: a segment goes in, its selector, compensation and codec make the relay that the next agent gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay.assembly import Slots, assemble
from lm_eval_latentmas.relay.codecs import Codec, Plain
from lm_eval_latentmas.relay.compensation import Compensation
from lm_eval_latentmas.relay.layout import Region, chunks, lengths, plan, sinks
from lm_eval_latentmas.relay.selectors import Block, Selection, Selector
from lm_eval_latentmas.relay.settings import RelaySettings

#: Settings that only some selectors and compensations follow.
_OF_PARTS = {"kv_budget", "pca_rank", "svd", "evr_tau", "evr_cap"}

Probe = Callable[[str, Block, Selection, Tensor], None]


@dataclass(frozen=True)
class Compressor:
    """Selects, compensates, encodes. Keeps nothing between calls, so one compressor serves every agent and batch.

    Called with a segment, returns the relay, which shares no memory with it. ``probe`` is called with (region, block,
    selection, kept values) for every block that lost states; it must not change them.
    """

    selector: Selector
    compensation: Compensation | None = None
    codec: Codec = field(default_factory=Plain)
    settings: RelaySettings = field(default_factory=RelaySettings)

    @property
    def name(self) -> str:
        """The composition in full."""
        stages = [self.selector.name]
        stages += [self.compensation.name] if self.compensation else []
        stages += [] if isinstance(self.codec, Plain) else [self.codec.name]
        return "+".join(stages)

    @property
    def mass(self) -> Literal["none", "latent", "next"]:
        """Whose attention the segment's mass must hold: nobody's, the latent queries', the next agent's."""
        if self.compensation and self.selector.mass == "none" and self.selector.fixed is None:
            return "latent"
        return self.selector.mass

    @property
    def unread(self) -> list[str]:
        """Settings that differ from their defaults and change no relay of this compressor."""
        read = {f.name for f in fields(RelaySettings)} - _OF_PARTS
        if self.selector.fixed is None:
            read |= {"kv_budget"} | (self.compensation.reads(self.settings) if self.compensation else set())
        changed = asdict(self.settings).items() - asdict(RelaySettings()).items()
        return [name for name in asdict(self.settings) if name in dict(changed).keys() - read]

    def __call__(self, segment: Segment, probe: Probe | None = None) -> Relay:
        pieces, regions = plan(segment, self.selector, self.settings)
        parts: list[dict[str, Tensor]] = []
        slots: list[Slots] = []
        with torch.no_grad():
            for layers in chunks(segment, regions, self.settings.chunk_bytes):
                chosen = {region: self._choose(segment, region, layers, probe) for region in regions}
                for keys, values, held in assemble(segment, pieces, chosen, layers):
                    parts.append(self.codec.encode(keys, values, held.filled))
                    slots.append(held)
        has_holes = segment.holes is not None or self.selector.adaptive
        return Relay(
            parts=tuple(parts),
            codec=self.codec,
            dtype=segment.keys[0].dtype,
            lengths=lengths(pieces),
            sinks=sinks(segment),
            cursors=segment.cursors,
            positions=tuple(held.positions for held in slots),
            origins=tuple(held.origins for held in slots),
            holes=tuple(held.holes for held in slots) if has_holes else None,
        )

    def _choose(
        self, segment: Segment, region: Region, layers: tuple[int, ...], probe: Probe | None
    ) -> tuple[Selection, Tensor | None]:
        """The selection in one region of some layers, and the kept values where they changed."""
        block = region.block(segment, layers)
        selection = self.selector(block)
        values = self._compensated(region, block, selection) if self.compensation else None
        if probe is not None:
            probe(region.name, block, selection, selection.gather(block.values) if values is None else values)
        return selection, values

    def _compensated(self, region: Region, block: Block, selection: Selection) -> Tensor:
        try:
            return self.compensation(block, selection)
        except torch.linalg.LinAlgError as error:
            strange = (~block.values.isfinite()).flatten(2).any(-1).nonzero().tolist()
            where = [f"layer {block.layers[layer]}, row {row}" for layer, row in strange] or ["states are finite"]
            raise RuntimeError(
                f"{self.name}: a factorisation failed in the {region.name} states, shape {tuple(block.values.shape)}, "
                f"layers {block.layers[0]} to {block.layers[-1]}; not finite: {'; '.join(where)} ({error})"
            ) from error
