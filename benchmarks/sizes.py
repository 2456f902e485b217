"""How much a benchmark run does: in full, quick (an hour on two cores), toy (seconds), or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """A cache to compress, and the batches it is compressed in."""

    name: str
    layers: int
    rows: tuple[int, ...]
    kv_heads: int = 8
    head_dim: int = 128


@dataclass(frozen=True)
class Sizes:
    """Everything that sets the length of a run.

    models: name to layers (None for all). batches, new_tokens: of (b). skew: questions a row, mean and cap of the
    geometric answer lengths in (b). decoding: rows, answers, mean and cap in (c). documents: of (d). agents, compared:
    of (e). hops, linked, links, link_dtype: prompt tokens per hop, compressors, speeds in Gbit/s and states of (f).
    distractors: sentences that make a question longer.
    compile: measure the compiled step too.
    """

    name: str
    rounds: int
    shapes: tuple[Shape, ...]
    models: dict[str, int | None]
    batches: tuple[int, ...]
    new_tokens: int
    skew: tuple[int, int, int]
    decoding: tuple[int, int, int, int]
    documents: int
    agents: tuple[int, ...]
    compared: tuple[str, ...]
    agents_layers: int | None = None
    agents_rows: int = 4
    prompt_lengths: tuple[int, int] = (150, 350)
    latent_steps: int = 40
    kv_budget: int = 32
    distractors: int = 6
    device: str = "cpu"
    dtype: str = "float32"
    hops: tuple[int, ...] = (175, 175, 174)
    linked: tuple[str, ...] = ("full", "gen", "h-obf", "l-obf", "l-obf-int8")
    links: tuple[float, ...] = (0.1, 1, 10)
    link_dtype: str = "bfloat16"
    compile: bool = False


COMPARED = ("full", "gen", "headwise", "layerwise", "h-obf", "l-obf", "h-obf+int8")

FULL = Sizes(
    name="full",
    rounds=5,
    shapes=(Shape("Qwen3-4B, 8B", 36, (1, 4, 8)), Shape("Qwen3-14B", 40, (1, 4, 8))),
    models={"embedded": None, "Qwen3-0.6B": None},
    batches=(1, 4, 8),
    new_tokens=128,
    skew=(3, 150, 1024),
    decoding=(8, 64, 150, 1024),
    documents=200,
    agents=(4, 8, 16),
    compared=COMPARED,
)

QUICK = replace(
    FULL,
    name="quick",
    shapes=(Shape("Qwen3-4B, 8B", 9, (1, 4, 8)), Shape("Qwen3-14B", 10, (1, 4, 8))),
    models={"embedded": 10, "Qwen3-0.6B": 3},
    new_tokens=32,
    skew=(2, 40, 256),
    decoding=(8, 32, 150, 1024),
    agents_layers=6,
    agents_rows=2,
    compared=("full", "gen", "headwise", "h-obf", "l-obf"),
    latent_steps=20,
)

TOY = replace(
    FULL,
    name="toy",
    rounds=2,
    shapes=(Shape("toy", 2, (1, 2), kv_heads=2, head_dim=32),),
    models={"toy": None},
    batches=(1, 2),
    new_tokens=4,
    skew=(2, 4, 8),
    decoding=(2, 5, 4, 10),
    documents=4,
    agents=(4, 5),
    compared=("full", "h-obf"),
    agents_rows=2,
    prompt_lengths=(20, 40),
    latent_steps=3,
    kv_budget=8,
    distractors=0,
    compile=True,
    hops=(20, 20),
    links=(1, 10),
)

GPU = replace(
    FULL,
    name="gpu",
    shapes=(Shape("Qwen3-4B, 8B", 36, (1, 4)),),
    models={"Qwen3-4B": None},
    skew=(2, 150, 1024),
    agents_rows=8,
    device="cuda",
    dtype="bfloat16",
    compile=True,
)

BY_NAME = {sizes.name: sizes for sizes in (FULL, QUICK, TOY, GPU)}
