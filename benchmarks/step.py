"""What a single-token pass of one row spends its time on: ``python -m benchmarks.step``, a profile to table (b)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import floor, models
from benchmarks.measure import Spread, Table, interleaved, ratio
from benchmarks.plain import PlainChain
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import prefill, step

TITLE = "A single-token pass of one row, milliseconds"
NOTE = "Behind 400 states and more. Reading: the sum of the same weights, about as fast as they come from memory."
STATES, TIMES, ROUNDS = 400, 10, 9
TOKENS = [100 + index % 100 for index in range(STATES)]
BARE = "bare pass, the floor's step"


def run(adapter: ModelAdapter) -> Table:
    """Measure every part, and whole passes with ever more around them."""
    layers = [module.weight for module in adapter.model.modules() if isinstance(module, nn.Linear)]
    layers = [weight for weight in layers if weight is not adapter.head.weight]
    with torch.inference_mode():
        ways: dict[str, Callable[[], object]] = {
            "reading the layers' weights": lambda: [weight.sum() for weight in layers],
            "the layers' linear maps alone": partial(_mapped, layers),
            "logits": partial(_mapped, [adapter.head.weight]),
            BARE: _bare(adapter),
            "our step": _ours(adapter),
            "our step that sums the mass": _ours(adapter, mass=True),
            "the plain way's step": _plain(adapter),
        }
        seconds = interleaved({name: partial(_often, name, way, adapter) for name, way in ways.items()}, ROUNDS)
    table = Table(TITLE, NOTE)
    for name, taken in seconds.items():
        milliseconds = [1000 * value / TIMES for value in taken]
        table.add({"what": name, "ms": Spread.of(milliseconds), "of the bare pass": ratio(taken, seconds[BARE])})
    return table


def _often(name: str, way: Callable[[], object], adapter: ModelAdapter) -> None:
    others = {BARE: floor.NAME, "the plain way's step": "eager"}
    with floor.attention(adapter, others[name]) if name in others else nullcontext():
        for _ in range(TIMES):
            way()


def _mapped(weights: list[Tensor]) -> None:
    for weight in weights:
        nn.functional.linear(weight.new_ones(1, weight.shape[1]), weight)


def _bare(adapter: ModelAdapter) -> Callable[[], object]:
    cache = floor.FloorCache(adapter.layers, STATES + TIMES * (ROUNDS + 1))
    with floor.attention(adapter, floor.NAME):
        hidden = floor.forward(adapter, cache, floor.prompt(adapter, 1, STATES))
    return lambda: floor.forward(adapter, cache, hidden)


def _ours(adapter: ModelAdapter, *, mass: bool = False) -> Callable[[], object]:
    cache = LiveCache(adapter.layers, 1)
    cache.reserve(STATES + TIMES * (ROUNDS + 1))
    hidden = prefill(adapter, cache, [TOKENS])
    if mass:
        cache.track_mass()
    return lambda: step(adapter, cache, hidden)


def _plain(adapter: ModelAdapter) -> Callable[[], object]:
    chain = PlainChain(adapter, latent_steps=0, kv_budget=0, sink_size=0)
    with floor.attention(adapter, "eager"):
        batch = chain.begun(1)
        hidden = chain.read(batch, [TOKENS]).hidden_states[-1][:, -1:]
    one = torch.ones(1, 1, dtype=torch.long)
    return lambda: batch.stored.append(chain.forward(batch, one, inputs_embeds=hidden).attentions)


if __name__ == "__main__":
    print(run(models.embedded(None)))
