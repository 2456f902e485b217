"""Measures relay fidelity: every arm's next-token distributions along the answers that the full relay gave."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from lm_eval_latentmas.chain import Handed, Question
from lm_eval_latentmas.conversation import unpack
from lm_eval_latentmas.grid.plan import Cell, Grid
from lm_eval_latentmas.grid.runner import run_grid
from lm_eval_latentmas.grid.weights import Weights, check_arguments, split
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.report.fidelity import DocumentFidelity, token_sums, write_fidelity
from lm_eval_latentmas.report.reading import find_results, read_samples
from lm_eval_latentmas.sampling import Generation

FULL = {"compressor": "full"}
_TOKENS_AT_ONCE = 64  # two vocabularies of logits a token, in float64, are held at a time


@dataclass(frozen=True)
class Answered:
    """A question, and the answer that the full relay gave to it."""

    question: Question
    answer: str


def measure_fidelity(grid: Grid, say: Callable[[str], None]) -> list[Path]:
    """Run the grid with the full relay alone, then measure every arm along its answers; one file a task and seed.

    The arms' own answers are not needed and not decoded, so this takes a fraction of the grid's time.

    Raises:
        ValueError: as `run_grid`, and a task without generated answers.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("fidelity is measured by one process; start it without accelerate or torchrun")
    check_arguments(grid)
    weights, paths = Weights(grid), []
    for seed in grid.seeds:
        run_grid(replace(grid, arms=(FULL,), seeds=(seed,)), say, weights)
        answered = read_answered(grid.folder(Cell(FULL, seed)))
        by_task: dict[str, list[DocumentFidelity]] = {}
        cells = [Cell(arm, seed) for arm in grid.arms]
        say(f"fidelity of {', '.join(cell.arm for cell in cells)}, seed {seed}, on {len(answered)} documents")
        found = compare_with_full(weights, cells, answered)
        for document in tqdm(found, total=len(cells) * len(answered), desc="fidelity", unit="answer"):
            by_task.setdefault(document.task, []).append(document)
        for task, documents in by_task.items():
            paths.append(grid.results / f"fidelity_{task}_seed{seed}.jsonl")
            write_fidelity(paths[-1], documents)
    return paths


def read_answered(folder: Path) -> list[Answered]:
    """The questions and answers of a finished run, one per document; empty answers hold no token to compare on."""
    newest = max(find_results([folder])[0], key=lambda file: file.stamp)
    found: dict[tuple[str, int], Answered] = {}
    for task, path in newest.samples.items():
        for row in read_samples(path):
            answer = row["resps"][0][0]
            if not isinstance(answer, str):
                raise ValueError(f"{task}: ranks choices; fidelity is measured along answers that were generated")
            if answer.strip():
                found.setdefault((task, row["doc_id"]), Answered(_question(task, row), answer))
    return list(found.values())


def compare_with_full(
    weights: Weights, cells: Sequence[Cell], answered: Sequence[Answered]
) -> Iterator[DocumentFidelity]:
    """One record per document and cell: the cell's arm against the full relay along the full relay's answer.

    Raises:
        ValueError: an arm that loads other weights than the full relay.
    """
    for cell in cells:
        if loading := split(cell.arguments)[1]:
            raise ValueError(
                f"{cell.arm}: fidelity compares arms of one loaded model; {', '.join(loading)} loads another"
            )
    full = weights.under(Cell(FULL, cells[0].seed))
    questions = [one.question for one in answered]
    arms = [(cell, lm, lm.chain.thought_about(questions)) for cell in cells for lm in [weights.under(cell)]]
    for places in _batches(len(answered), weights.grid.batch_size):
        batch = [answered[place] for place in places]
        targets = [full.tokenizer(one.answer, add_special_tokens=False)["input_ids"] for one in batch]
        handed = _handed(full, [one.question for one in batch], [one.question for one in batch])
        # one read of the full relay serves all arms
        exact = [read_answer(full, left, answer) for left, answer in zip(handed, targets, strict=True)]
        for cell, lm, partners in arms:
            handed = _handed(lm, [one.question for one in batch], [partners[place] for place in places])
            for one, left, states, answer in zip(batch, handed, exact, targets, strict=True):
                sums = _sums(full, states, read_answer(lm, left, answer), np.array(answer))
                yield DocumentFidelity(one.question.task, one.question.doc_id, cell.arm, **sums)


@torch.inference_mode()
def read_answer(lm: LatentMASLM, left: Handed, answer: Sequence[int]) -> Tensor:
    """Let the judger read its prompt and a given answer: the states that predict its tokens, (tokens, hidden)."""
    prompt = list(left.plan.prompts[-1])
    tokens = prompt + list(answer)
    if left.relay is None:
        cache = LiveCache(lm.adapter.layers, 1)
        cache.reserve(len(tokens))
    else:
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(tokens))
    embeds = lm.adapter.embed(torch.tensor([tokens], device=lm.adapter.device))
    with cache.writing([len(tokens)], len(tokens), lm.adapter.device) as positions:
        hidden = lm.adapter.forward(embeds, positions, cache)
    return hidden[0, len(prompt) - 1 : -1]


def _handed(lm: LatentMASLM, questions: Sequence[Question], partners: Sequence[Question]) -> list[Handed]:
    """What the thinking agents leave for each question; partners: what they are shown in its place."""
    plans = [lm.chain.plan(q, thinking_about=other) for q, other in zip(questions, partners, strict=True)]
    return lm.chain.think(plans)


@torch.inference_mode()
def _sums(lm: LatentMASLM, full: Tensor, other: Tensor, targets: np.ndarray) -> dict[str, Any]:
    """`token_sums` over a few tokens at a time."""
    total: dict[str, Any] = {}
    for start in range(0, len(targets), _TOKENS_AT_ONCE):
        part = slice(start, start + _TOKENS_AT_ONCE)
        logits = [lm.adapter.logits(states[part]).cpu().numpy() for states in (full, other)]
        for name, value in token_sums(*logits, targets[part]).items():
            total[name] = total.get(name, 0) + value
    return total


def _question(task: str, row: dict[str, Any]) -> Question:
    talk = unpack(row["arguments"]["gen_args_0"]["arg_0"])
    return Question(task, row["doc_id"], 0, talk.question, Generation(), talk.system, talk.prefix)


def _batches(count: int, batch_size: int | str) -> Iterator[range]:
    size = batch_size if isinstance(batch_size, int) else 1
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
