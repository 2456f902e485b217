"""(b) The chain against its floor of bare forward passes, and against the plain way, at equal and skewed lengths."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks import floor, models
from benchmarks.measure import Spread, Table, interleaved, ratio
from benchmarks.plain import PlainChain
from benchmarks.sizes import Sizes
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.chain import Chain, Plan, Question
from lm_eval_latentmas.config import split_arguments
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.records import Record
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings
from lm_eval_latentmas.relay_probe import documents, split_upstream
from lm_eval_latentmas.sampling import Generation

TITLE = "(b) The chain of four agents with h-obf, seconds"
NOTE = (
    "Greedy answers of fixed length, so that every variant decodes equally much. Floor: the bare forward passes of the "
    "same widths. Plain: the chain written plainly (`plain.py`); at equal lengths its answers are checked to be ours."
)


def run(sizes: Sizes) -> Table:
    """Measure every model and batch of ``sizes``."""
    table = Table(TITLE, NOTE)
    shares = {}
    for name, layers in sizes.models.items():
        adapter = load(name, layers, sizes)
        for rows in sizes.batches:
            line, share = _equal(adapter, rows, sizes)
            table.add({"model": f"{name}, {adapter.layers} layers", "batch": rows, **line})
            if layers is None and name == "embedded":
                shares[rows] = share
        if sizes.skew[0]:
            table.rows[-1] |= _skewed(adapter, rows, sizes)
    _targets(table, shares)
    return table


def load(name: str, layers: int | None, sizes: Sizes) -> ModelAdapter:
    """A model by name."""
    if name == "toy":
        return models.toy()
    if name == "embedded":
        return models.embedded(layers)
    return models.qwen3(
        name.removeprefix("Qwen3-"), layers=layers, dtype=getattr(torch, sizes.dtype), device=sizes.device
    )


def chain(adapter: ModelAdapter, spec: str, sizes: Sizes, *, prompts: str | None = None, **arguments: Any) -> Chain:
    """The chain as the harness runs it. arguments: more of its settings."""
    arguments |= {"compressor": spec, "latent_steps": sizes.latent_steps, "kv_budget": sizes.kv_budget}
    settings, _ = split_arguments(arguments, object)
    made = compressor(spec, RelaySettings(kv_budget=sizes.kv_budget))
    return Chain(adapter, made, load_prompts(prompts), settings, max_length=1 << 20, seed=0)


def plans(made: Chain, lengths: Sequence[int], sizes: Sizes) -> list[Plan]:
    """Questions whose answers have the given lengths, in that order."""
    asked = []
    asked_about = documents(len(lengths), facts_per_type=1, distractors=sizes.distractors)
    for index, (length, document) in enumerate(zip(lengths, asked_about, strict=True)):
        question = "\n".join(split_upstream(document["text"]))
        asked.append(made.plan(Question("benchmark", index, 0, question, Generation(max_gen_toks=length))))
    return asked


def geometric(count: int, mean: int, cap: int) -> list[int]:
    """Answer lengths that end at every token with the same chance."""
    draw = random.Random(0)
    return [min(cap, 1 + int(math.log(1 - draw.random()) / math.log(1 - 1 / mean))) for _ in range(count)]


def answers(made: Chain, asked: Sequence[Plan], rows: int) -> list[Record]:
    """Every question answered."""
    return [record for _, record in made.answer(asked, rows)]


def turns(asked: Sequence[Plan], kept: int, latent_steps: int, sink: int) -> list[tuple[int, int]]:
    """History and prompt width of every agent, where ``kept`` states of every prompt travel."""
    widths = [max(len(plan.prompts[agent]) for plan in asked) for agent in range(len(asked[0].prompts))]
    step = kept + latent_steps
    return [(0 if agent == 0 else sink + agent * step, width) for agent, width in enumerate(widths)]


def _equal(adapter: ModelAdapter, rows: int, sizes: Sizes) -> tuple[dict, float]:
    made = chain(adapter, "h-obf", sizes)
    asked = plans(made, [sizes.new_tokens] * rows, sizes)
    sink = RelaySettings().sink_size
    shapes = turns(asked, sizes.kv_budget, sizes.latent_steps, sink)
    plain = PlainChain(adapter, sizes.latent_steps, sizes.kv_budget, sink)
    prompts = [[plan.prompts[agent] for plan in asked] for agent in range(len(shapes))]
    records: list[Record] = []
    ways = {
        "floor": lambda: floor.chain(adapter, rows, shapes, sizes.latent_steps, sizes.new_tokens),
        "ours": lambda: records.extend(answers(made, asked, rows)),
        "plain": lambda: plain.answer(prompts, sizes.new_tokens),
    }
    if sizes.compile:
        ways["compiled"] = partial(answers, chain(adapter, "h-obf", sizes, compile=True), asked, rows)
    seconds = interleaved(ways, sizes.rounds)
    counted = records[len(asked) :]  # without the first round, as in the times
    spent = [sum(record.seconds[phase] for record in counted) for phase in ("compression", "latent", "decoding")]
    share = 100 * spent[0] / sum(spent)
    return {
        **{name: Spread.of(taken) for name, taken in seconds.items()},
        "ours / floor": ratio(seconds["ours"], seconds["floor"]),
        "plain / ours": ratio(seconds["plain"], seconds["ours"]),
        "compression, %": share,
    }, share


def _skewed(adapter: ModelAdapter, rows: int, sizes: Sizes) -> dict:
    made = chain(adapter, "h-obf", sizes)
    batches, mean, cap = sizes.skew
    lengths = geometric(batches * rows, mean, cap)
    asked = plans(made, lengths, sizes)
    plain = PlainChain(adapter, sizes.latent_steps, sizes.kv_budget, RelaySettings().sink_size)

    def plainly() -> None:
        for start in range(0, len(asked), rows):
            batch = asked[start : start + rows]
            prompts = [[plan.prompts[agent] for plan in batch] for agent in range(len(batch[0].prompts))]
            plain.answer(prompts, max(plan.generation.max_gen_toks for plan in batch))

    seconds = interleaved({"ours": lambda: answers(made, asked, rows), "plain": plainly}, sizes.rounds)
    return {"skewed: plain / ours": ratio(seconds["plain"], seconds["ours"])}


def _targets(table: Table, shares: dict[int, float]) -> None:
    table.target("ours / floor, most", max(row["ours / floor"].median for row in table.rows), most=1.15)
    table.target("plain / ours, least", min(row["plain / ours"].median for row in table.rows), least=1.5)
    skewed = [row["skewed: plain / ours"].median for row in table.rows if "skewed: plain / ours" in row]
    if skewed:
        table.target("plain / ours at skewed lengths, least", min(skewed), least=2.5)
    if shares:
        table.target("compression with the whole embedded model, % of the time, most", max(shares.values()), most=2)
