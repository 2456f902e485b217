"""``diagnostics=true``: what every hop dropped, kept and injected, and what that does to the next queries.

Two Parquet files per document in the run directory: ``diagnostics-KEY.parquet``, one row per agent, layer and KV head,
and ``prompts-KEY.parquet``, the tokens that kept positions point at. Nothing here runs where they are off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.relay.probes import Diagnostics, output_errors, write_parquet

#: Every column of a row, so that all files have the same ones; what an operator lacks is None.
COLUMNS = (
    *("task", "doc_id", "repeat", "agent", "hop", "region", "layer", "head", "candidates", "kept"),
    *("pcr", "rcr", "pc", "revr", "dr", "ivn", "output_error", "output_error_evicted"),
)


class HopDiagnostics:
    """Collects the rows of documents under way and writes a document's files when its last hop is done."""

    def __init__(self, folder: str | Path, compressor: Any, token_text: Callable[[int], str]) -> None:
        self.folder, self.compressor, self.token_text = Path(folder).expanduser(), compressor, token_text
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._prompts: dict[str, list[dict[str, Any]]] = {}

    def note(
        self, segment: Segment, relay: Relay, cache: LiveCache, real: Sequence[int], about: Sequence[dict[str, Any]]
    ) -> None:
        """Note what the compression of a segment to a relay did; done once more, so that none of this is timed as it.

        cache: holds the queries of the agents that read next, ``real[row]`` of each row. about: per row the document's
        key, task, doc_id, repeat, agent, hop, and the agent's prompt with the position of its first token.
        """
        probe = Diagnostics(getattr(self.compressor, "compensation", None))
        self.compressor(segment, probe)
        errors = self._errors(segment, relay, cache, real)
        held = {(entry["region"], entry["layer"], entry["row"], entry["head"]): entry for entry in probe.records}
        for layer, by_name in enumerate(errors):
            rows, heads = by_name["output_error"].shape
            for row in range(rows):
                for head in range(heads):
                    entry = held.setdefault(
                        ("prompt", layer, row, head), {"region": "prompt", "layer": layer, "row": row, "head": head}
                    )
                    entry.update({name: float(values[row, head]) for name, values in by_name.items()})
        for entry in held.values():
            told = about[entry.pop("row")]
            row = {name: entry.get(name, told.get(name)) for name in COLUMNS}
            self._rows.setdefault(told["key"], []).append(row)
        for told in about:
            tokens = [self.token_text(token) for token in told["prompt"]]
            named = {name: told[name] for name in ("task", "doc_id", "agent")}
            self._prompts.setdefault(told["key"], []).append({**named, "start": told["start"], "tokens": tokens})

    def _errors(
        self, segment: Segment, relay: Relay, cache: LiveCache, real: Sequence[int]
    ) -> list[dict[str, torch.Tensor]]:
        """Per layer, the attention-output error of the next queries: as handed on, and with the selection alone."""
        relays = {"output_error": relay}
        if isinstance(self.compressor, Compressor) and self.compressor.compensation is not None:
            relays["output_error_evicted"] = replace(self.compressor, compensation=None)(segment)
        queries = [layer.float() for layer in cache.queries]
        counted = torch.tensor(list(real), device=queries[0].device)
        return [output_errors(layer, segment, relays, index, counted) for index, layer in enumerate(queries)]

    def taken(self, keys: Sequence[str]) -> dict[str, list[list[dict[str, Any]]]]:
        """The rows of documents whose next hop is another process's, as plain JSON; they are its own from here on."""
        return {key: [self._rows.pop(key, []), self._prompts.pop(key, [])] for key in keys}

    def take_in(self, rows: dict[str, list[list[dict[str, Any]]]]) -> None:
        """Go on with what another process has `taken`."""
        for key, (hops, prompts) in rows.items():
            self._rows.setdefault(key, []).extend(hops)
            self._prompts.setdefault(key, []).extend(prompts)

    def write(self, keys: Sequence[str]) -> None:
        """Write the files of documents whose hops are all done."""
        for key in keys:
            for name, rows in (("diagnostics", self._rows), ("prompts", self._prompts)):
                write_parquet(self.folder / f"{name}-{key[:16] or 'sample'}.parquet", rows.pop(key, []))
