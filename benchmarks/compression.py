"""(a) Compression: the hand-offs of one rollout at the shapes of Qwen3, exact and fast, against a loop over heads."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Spread, Table, interleaved, ratio
from benchmarks.perhead import relay_layer
from benchmarks.sizes import Shape, Sizes
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import HEADWISE_RANK, RelaySettings

TITLE = "(a) Compression of one rollout, seconds"
NOTE = (
    "Three hand-offs with h-obf; float32 states whose values decay like those of a real model. The loop does the same "
    "with `torch.linalg.qr` and `svd` per layer, row and head. Qwen3-4B and 8B have caches of one shape."
)
#: Relative difference of corrections to the loop's; both sides hold float32 states.
TOLERANCE = 1e-3


def run(sizes: Sizes) -> Table:
    """Measure every shape and batch of ``sizes``."""
    table = Table(TITLE, NOTE)
    worst = {"exact": float("inf"), "fast": float("inf")}
    for shape in sizes.shapes:
        for rows in shape.rows:
            seconds = _rollout(shape, rows, sizes)
            line = {"shape": shape.name, "layers": shape.layers, "batch": rows, "loop": Spread.of(seconds["loop"])}
            for way in worst:
                gain = ratio(seconds["loop"], seconds[way])
                worst[way] = min(worst[way], gain.median)
                line |= {way: Spread.of(seconds[way]), f"loop / {way}": gain}
            table.add(line)
    table.target("loop / exact, least over shapes", worst["exact"], least=4)
    table.target("loop / fast, least over shapes", worst["fast"], least=8)
    return table


def _rollout(shape: Shape, rows: int, sizes: Sizes) -> dict[str, list[float]]:
    """Seconds of every way over the hand-offs of a rollout, one sum a round."""
    total: dict[str, list[float]] = {}
    # one hand-off after the other, so that a single segment is in memory
    for hop in range(3):
        settings = RelaySettings(kv_budget=sizes.kv_budget)
        made = segment(shape, rows, hop, sizes)
        ways: dict[str, Callable[[], object]] = {"loop": partial(by_loop, made, sizes)}
        for svd in ("exact", "fast"):
            ways[svd] = partial(compressor(f"h-obf:svd={svd}", settings), made)
            check(ways[svd](), made, sizes)
        for way, seconds in interleaved(ways, sizes.rounds).items():
            total[way] = [a + b for a, b in zip(total.get(way, [0.0] * sizes.rounds), seconds, strict=True)]
    return total


def segment(shape: Shape, rows: int, hop: int, sizes: Sizes) -> Segment:
    """What the agent of a hop hands off: random states, ragged prompts, a history as h-obf leaves it."""
    draw, generator = random.Random(hop), torch.Generator().manual_seed(hop)
    prompts = [draw.randint(*sizes.prompt_lengths) for _ in range(rows)]
    sink = RelaySettings().sink_size
    history = 0 if hop == 0 else sink + hop * (sizes.kv_budget + sizes.latent_steps)
    slots = history + max(prompts) + sizes.latent_steps
    size = (rows, shape.kv_heads, slots)
    positions = torch.arange(slots, dtype=torch.int32, device=sizes.device).expand(rows, 1, slots)
    return Segment(
        keys=tuple(
            torch.randn(*size, shape.head_dim, generator=generator).to(sizes.device) for _ in range(shape.layers)
        ),
        values=tuple(decaying(size, shape.head_dim, generator).to(sizes.device) for _ in range(shape.layers)),
        mass=tuple((1.5 * torch.randn(size, generator=generator)).exp().to(sizes.device) for _ in range(shape.layers)),
        history=(history,) * rows,
        prompt=tuple(prompts),
        latent=(sizes.latent_steps,) * rows,
        sink=(sink,) * rows,
        cursors=(slots,) * rows,
        positions=(positions,) * shape.layers,
        origins=None
        if hop == 0
        else (torch.zeros(rows, 1, history, dtype=torch.bool, device=sizes.device),) * shape.layers,
    )


def decaying(size: tuple[int, ...], width: int, generator: torch.Generator) -> Tensor:
    """Values (*size, width) whose singular values fall off by a power law in a rotated basis of every head."""
    turn = torch.linalg.qr(torch.randn(size[1], width, width, generator=generator)).Q
    fall = torch.arange(1, width + 1).pow(-0.5)
    return (torch.randn(*size, width, generator=generator) * fall) @ turn


def by_loop(made: Segment, sizes: Sizes) -> list[tuple[Tensor, Tensor]]:
    """The relay's keys and values by layer, one head at a time."""
    history = made.history[0]
    return [
        relay_layer(
            *states,
            history=history,
            prompts=made.prompt,
            latent=[history + length for length in made.prompt],
            steps=sizes.latent_steps,
            sink=0 if history else made.sink[0],
            budget=sizes.kv_budget,
            rank=HEADWISE_RANK,
        )
        for states in zip(made.keys, made.values, made.mass, strict=True)
    ]


def check(relay: Relay, made: Segment, sizes: Sizes) -> None:
    """Raise where a relay's keys differ from the loop's, or its corrections by more than `TOLERANCE`."""
    plain = compressor("headwise", RelaySettings(kv_budget=sizes.kv_budget))(made)
    for index, (keys, values) in enumerate(by_loop(made, sizes)):
        ours, untouched = relay.layer(index), plain.layer(index)[1]
        expected = values - untouched
        error = (ours[1] - untouched - expected).norm() / expected.norm()
        if not torch.equal(ours[0], keys) or error > TOLERANCE:
            raise AssertionError(f"layer {index}: corrections differ by {error:.2e}")
