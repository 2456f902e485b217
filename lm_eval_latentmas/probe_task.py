"""What the YAMLs of the relay probe name: its documents, and the metrics of one of them.

acc: the right fact was given, or ranked first by log-likelihood; acc_TYPE the same for one type of fact. rank: the
place of the right fact among the candidates, 1 the best. no_answer, truncated: as in every task of this package.
"""

from __future__ import annotations

from typing import Any

from lm_eval_latentmas.datasets import Documents
from lm_eval_latentmas.relay_probe import documents, rank_of, read_answer
from lm_eval_latentmas.scoring.process import responses_of, share, truncated


def splits(
    probe_documents: int = 200,
    probe_seed: int = 0,
    probe_facts: int = 2,
    probe_distractors: int = 6,
    **metadata: Any,
) -> dict[str, Documents]:
    """The documents, as ``custom_dataset``; lm-eval's ``--metadata`` changes the settings.

    Their names differ from the model's arguments, which lm-eval hands over too: a model's seed changes no document.
    """
    made = documents(probe_documents, seed=probe_seed, facts_per_type=probe_facts, distractors=probe_distractors)
    return {"test": Documents(made)}


def generated(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """The metrics of answers that were written."""
    responses = responses_of(results)
    answers = [read_answer(text, doc["candidates"]) for text in responses]
    acc = share(answer == doc["answer"] for answer in answers)
    return _by_type(doc, acc) | {"no_answer": share(answer is None for answer in answers)} | truncated(responses)


def ranked(doc: dict[str, Any], results: list[tuple[float, bool]]) -> dict[str, float]:
    """The metrics of candidates that were scored."""
    rank = rank_of(doc["answer"], doc["candidates"], [likelihood for likelihood, _ in results])
    return _by_type(doc, float(rank == 1)) | {"rank": float(rank)}


def _by_type(doc: dict[str, Any], acc: float) -> dict[str, float]:
    return {"acc": acc, f"acc_{doc['fact_type'].replace(' ', '_')}": acc}
