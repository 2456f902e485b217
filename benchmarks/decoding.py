"""(c) Decoding answers of skewed length: continuous against batch-synchronous, on the same kernels and rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.chain import geometric, load
from benchmarks.measure import Spread, Table, interleaved, ratio
from benchmarks.sizes import Sizes
from lm_eval_latentmas.decoding import Decoder, Job
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import prefill, step
from lm_eval_latentmas.sampling import Draws, Generation, next_tokens

TITLE = "(c) Decoding answers of geometric length"
NOTE = (
    "Both ways have the same number of rows, and buffers that grow with the longest row. A slot is one row of one "
    "single-token pass; it is useful where its token belongs to an answer."
)


@dataclass
class Slots:
    """Rows of single-token passes, counted at the adapter, and the most bytes that a cache has held."""

    passes: int = 0
    rows: int = 0
    cache_bytes: int = 0

    def counted(self, forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """``forward`` of an adapter, counting."""

        def wrapped(embeds: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
            if embeds.shape[1] == 1:
                self.passes += 1
                self.rows += embeds.shape[0]
            out = forward(embeds, positions, cache)
            self.cache_bytes = max(self.cache_bytes, cache.nbytes)
            return out

        return wrapped


def run(sizes: Sizes) -> Table:
    """Measure the first model of ``sizes``."""
    table = Table(TITLE, NOTE)
    name, layers = next(iter(sizes.models.items()))
    adapter = load(name, layers, sizes)
    rows, answers, mean, cap = sizes.decoding
    lengths = geometric(answers, mean, cap)
    draw = random.Random(1)
    prompts = [[draw.randrange(200) for _ in range(draw.randint(*sizes.prompt_lengths))] for _ in range(answers)]

    def jobs() -> list[Job]:
        return [
            Job(place, None, prompt, 0, Generation(max_gen_toks=length), Draws(place))
            for place, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
        ]

    ways = {
        "continuous": lambda: continuous(adapter, jobs(), rows),
        "synchronous": lambda: synchronous(adapter, jobs(), rows),
    }
    decoded_by, slots = {}, {}
    for way, decode in ways.items():
        slots[way], done = count(adapter, decode)
        decoded_by[way] = [job.tokens for job in done]
    if decoded_by["continuous"] != decoded_by["synchronous"]:
        raise AssertionError("the two ways decode different tokens")
    seconds = interleaved(ways, sizes.rounds)
    decoded = sum(lengths) - answers  # the first token of an answer comes from its prompt's pass
    for way, taken in seconds.items():
        table.add(
            {
                "way": way,
                "model": f"{name}, {adapter.layers} layers",
                "rows": rows,
                "answers": answers,
                "tokens": sum(lengths),
                "tokens / s": Spread.of([sum(lengths) / second for second in taken]),
                "passes": slots[way].passes,
                "useful slots, %": 100 * decoded / slots[way].rows,
                "cache, MiB": slots[way].cache_bytes / 2**20,
            }
        )
    table.target("useful slots, %", table.rows[0]["useful slots, %"], least=90)
    gain = ratio(seconds["synchronous"], seconds["continuous"])
    table.target("tokens / s over synchronous", gain.median, least=1.8)
    return table


def continuous(adapter: ModelAdapter, jobs: list[Job], rows: int) -> list[Job]:
    """As the chain does it: who finishes leaves, who waits comes in."""
    decoder, waiting = Decoder(adapter, rows), list(jobs)
    while waiting or decoder.busy:
        done = []
        if waiting and decoder.free:
            admitted, waiting = waiting[: decoder.free], waiting[decoder.free :]
            done = decoder.admit(admitted)
        if not done:
            decoder.run()
    return jobs


@torch.inference_mode()
def synchronous(adapter: ModelAdapter, jobs: list[Job], rows: int) -> list[Job]:
    """Batch after batch, each decoded until its longest answer is finished."""
    for start in range(0, len(jobs), rows):
        batch = jobs[start : start + rows]
        cache = LiveCache(adapter.layers, len(batch))
        cache.reserve(max(len(job.prompt) for job in batch) + 64)
        hidden = prefill(adapter, cache, [job.prompt for job in batch])
        longest = max(job.generation.max_gen_toks for job in batch)
        while True:
            drawn = next_tokens(adapter.logits(hidden), [job.generation for job in batch], [job.draws for job in batch])
            for job, token in zip(batch, drawn.tolist(), strict=True):
                if len(job.tokens) < job.generation.max_gen_toks:
                    job.tokens.append(token)
            if max(len(job.tokens) for job in batch) == longest:
                break
            hidden = step(adapter, cache, adapter.embed(drawn))
    return jobs


def count(adapter: ModelAdapter, decode: Callable[[], list[Job]]) -> tuple[Slots, list[Job]]:
    """The slots that one run of ``decode`` works through, and its answers."""
    slots = Slots()
    adapter.forward = slots.counted(type(adapter).forward.__get__(adapter))
    try:
        return slots, decode()
    finally:
        del adapter.forward
