"""Relay fidelity: how far the judger's next-token distributions move when a relay is compressed.

Measured along the answer that the full relay gave (teacher forcing), so it needs no labels and few documents. One line
of a ``fidelity_*.jsonl`` file is one document of one arm, with sums over the answer's tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from .extras import optional
from .reading import UnreadableFile
from .statistics import Interval, ratio_interval
from .tables import Column, Row, Table


@dataclass(frozen=True)
class DocumentFidelity:
    """Sums over the tokens of one document's answer, in nats; ``agreed`` counts equal likeliest tokens."""

    task: str
    doc_id: int
    arm: str
    tokens: int
    kl: float
    agreed: int
    full_nll: float
    nll: float


@dataclass(frozen=True)
class ArmFidelity:
    """An arm against ``full``: mean KL divergence per token, top-1 agreement, and the ratio of perplexities.

    behind: how much more KL per token than the closest arm, over the same answers; None for that arm itself.
    """

    arm: str
    documents: int
    tokens: int
    kl: Interval
    behind: Interval | None
    agreement: Interval
    perplexity_ratio: Interval


def token_sums(full: np.ndarray, other: np.ndarray, targets: np.ndarray) -> dict[str, float | int]:
    """Sums for one document, as fields of `DocumentFidelity`.

    full, other: (tokens, vocabulary) logits under the full and the compressed relay; targets: (tokens,) the answer.
    """
    full, other = _log_softmax(full), _log_softmax(other)
    probability = np.exp(full)
    # 0 * log 0 is 0: tokens that full rules out add nothing
    gap = np.subtract(full, other, out=np.zeros_like(full), where=probability > 0)
    divergence = (probability * gap).sum(axis=1)
    rows = np.arange(len(targets))
    return {
        "tokens": len(targets),
        "kl": float(np.maximum(divergence, 0.0).sum()),
        "agreed": int((full.argmax(axis=1) == other.argmax(axis=1)).sum()),
        "full_nll": float(-full[rows, targets].sum()),
        "nll": float(-other[rows, targets].sum()),
    }


def summarise_fidelity(documents: Sequence[DocumentFidelity], *, seed: int = 0) -> list[ArmFidelity]:
    """One summary per arm, closest to full first; documents are resampled whole, with all their seeds."""
    arms = {arm: _by_document(d for d in documents if d.arm == arm) for arm in dict.fromkeys(d.arm for d in documents)}
    levels = {arm: _per_token(held.values(), "kl", seed) for arm, held in arms.items()}
    ranked = sorted(arms, key=lambda arm: levels[arm].estimate)
    summaries = []
    for arm in ranked:
        held = list(arms[arm].values())
        gap = ratio_interval([d.nll - d.full_nll for d in held], [d.tokens for d in held], seed=seed)
        summaries.append(
            ArmFidelity(
                arm,
                len(held),
                sum(d.tokens for d in held),
                levels[arm],
                None if arm == ranked[0] else _behind(arms[arm], arms[ranked[0]], seed),
                _per_token(held, "agreed", seed),
                Interval(*(None if end is None else math.exp(end) for end in (gap.estimate, gap.low, gap.high))),
            )
        )
    return summaries


def _by_document(documents: Iterable[DocumentFidelity]) -> dict[tuple[str, int], DocumentFidelity]:
    """One arm's documents, each with the sums over its seeds."""
    found: dict[tuple[str, int], DocumentFidelity] = {}
    sums = ("tokens", "kl", "agreed", "full_nll", "nll")
    for one in documents:
        before = found.get((one.task, one.doc_id))
        both = {name: getattr(one, name) + getattr(before, name) for name in sums} if before else {}
        found[one.task, one.doc_id] = replace(one, **both)
    return found


def _per_token(documents: Collection[DocumentFidelity], name: str, seed: int) -> Interval:
    return ratio_interval([getattr(d, name) for d in documents], [d.tokens for d in documents], seed=seed)


def _behind(
    arm: Mapping[tuple[str, int], DocumentFidelity], closest: Mapping[tuple[str, int], DocumentFidelity], seed: int
) -> Interval | None:
    """The paired difference, over documents where both followed as many tokens; None where there is none."""
    pairs = [(d, closest[key]) for key, d in arm.items() if key in closest and closest[key].tokens == d.tokens]
    if not pairs:
        return None
    return ratio_interval([d.kl - best.kl for d, best in pairs], [d.tokens for d, _ in pairs], seed=seed)


def predicts_scores(fidelity: Sequence[ArmFidelity], differences: Mapping[str, float]) -> tuple[float | None, int]:
    """Spearman's correlation of KL with the arms' score differences, and the number of arms; -1 is perfect.

    None with fewer than three arms in common, or where one of the two does not vary.
    """
    shared = [summary for summary in fidelity if summary.arm in differences]
    kl, scores = [s.kl.estimate for s in shared], [differences[s.arm] for s in shared]
    if len(shared) < 3 or np.ptp(kl) == 0 or np.ptp(scores) == 0:
        return None, len(shared)
    return float(optional("scipy.stats").spearmanr(kl, scores).statistic), len(shared)


def fidelity_table(fidelity: Sequence[ArmFidelity], differences: Mapping[str, float]) -> Table:
    """Fidelity by arm, and what it says of the score differences at hand."""
    rows = [
        Row(
            (
                f.arm,
                float(f.documents),
                float(f.tokens),
                *_ends(f.kl),
                *(_ends(f.behind) if f.behind else (None,) * 3),
                100 * f.agreement.estimate,
                *_ends(f.perplexity_ratio),
            )
        )
        for f in fidelity
    ]
    columns = (Column("arm"), Column("documents", 0), Column("tokens", 0), Column("KL", 4, "min"), Column("KL low", 4))
    columns += (Column("KL high", 4), Column("behind", 4), Column("behind low", 4), Column("behind high", 4))
    columns += (Column("top-1 agreement %", 1, "max"), Column("perplexity ratio", 3, "min"))
    columns += (Column("ratio low", 3), Column("ratio high", 3))
    correlation, arms = predicts_scores(fidelity, differences)
    said = "too few to correlate" if correlation is None else f"Spearman {correlation:.2f} (-1 is perfect)"
    note = (
        "At the judger, along full's own answers; KL in nats per token, intervals over documents. Behind: KL more than "
        "that of the closest arm, over the same documents; an interval above 0 tells them apart. "
        f"KL against score differences over {arms} arms: {said}."
    )
    return Table("fidelity", "Relay fidelity", columns, tuple(rows), note)


def write_fidelity(path: Path, documents: Iterable[DocumentFidelity]) -> None:
    """Write one line per document and arm."""
    path.write_text("".join(json.dumps(asdict(document)) + "\n" for document in documents), encoding="utf-8")


def read_fidelity(places: Iterable[str | Path]) -> list[DocumentFidelity]:
    """Every ``fidelity_*.jsonl`` in the folders named.

    Raises:
        UnreadableFile: a line that is cut off or lacks a field.
    """
    known = {field.name for field in fields(DocumentFidelity)}
    found = []
    for path in (
        path for place in places if Path(place).is_dir() for path in sorted(Path(place).rglob("fidelity_*.jsonl"))
    ):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UnreadableFile(f"{path}, line {number}: cut off or not JSON ({error.msg})") from error
            if not isinstance(row, dict) or known - row.keys():
                raise UnreadableFile(f"{path}, line {number}: no fidelity record (needs {', '.join(sorted(known))})")
            found.append(DocumentFidelity(**{name: row[name] for name in known}))
    return found


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, dtype=np.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _ends(interval: Interval) -> tuple[float | None, float | None, float | None]:
    return interval.estimate, interval.low, interval.high
