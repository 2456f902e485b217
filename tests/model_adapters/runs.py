"""Short chains over a tiny model, and a look at all that goes through its decoder and its compressor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lm_eval_latentmas.agents import Agent, PromptSet
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.chain import Chain, Question
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings
from lm_eval_latentmas.sampling import Generation

PROMPTS = PromptSet(
    system="Be brief.",
    agents=(
        Agent("planner", "Plan: {question}"),
        Agent("critic", "Review the plan for {question} now"),
        Agent("refiner", "Refine: {question}"),
        Agent("judger", "Answer {question}"),
    ),
    answer_styles={"free": "Say it."},
    tasks=(("*", "free"),),
    source="test",
)
#: The longest first agent's prompt has 56 tokens, the shortest 29.
TEXTS = ["What is 2 + 2, and why?", "Why?", "Name a colour of the rainbow."]


def make_chain(adapter: Any, spec: str, *, latent_steps: int = 3, positions: str = "timeline", **relay: Any) -> Chain:
    """A chain of four agents with a budget so small that it drops what a window of 8 still sees."""
    relay = RelaySettings(**({"kv_budget": 2, "sink_size": 2} | relay))
    settings = ChainSettings(compressor=spec, latent_steps=latent_steps, positions=positions, hand_off=relay)
    return Chain(adapter, compressor(spec, relay), PROMPTS, settings, max_length=4096, seed=7)


def questions(new_tokens: int = 8) -> list[Question]:
    """One question per text, decoded greedily."""
    return [Question("demo", i, 0, text, Generation(max_gen_toks=new_tokens)) for i, text in enumerate(TEXTS)]


class Watched:
    """An adapter that remembers what its decoder read and said; for one row at a time, so that nothing is a pad."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self._adapter = adapter
        self.embeds: list[Tensor] = []
        self.positions: list[Tensor] = []
        self.states: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    @property
    def tokens(self) -> int:
        """Tokens that went through so far, latent steps included."""
        return sum(len(positions) for positions in self.positions)

    def forward(self, embeds: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """As the adapter's own."""
        states = self._adapter.forward(embeds, positions, cache)
        for kept, tensor in ((self.embeds, embeds), (self.positions, positions), (self.states, states)):
            kept.append(tensor[0].clone())
        return states


@dataclass
class WatchedCompressor:
    """A compressor that remembers every segment's mass, and which tokens were dropped for whom, numbered as read.

    dropped: per hand-off, the number of tokens read so far, and per layer (kv_heads, tokens read so far) bool.
    """

    inner: Any
    adapter: Watched
    segments: list[Segment] = field(default_factory=list)
    dropped: list[tuple[int, list[Tensor]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, segment: Segment) -> Relay:
        read = self.adapter.tokens
        gone = [torch.zeros(keys.shape[1], read, dtype=torch.bool) for keys in segment.keys]
        sink = 0 if segment.history[0] else segment.sink[0]
        first = read - segment.latent[0] - segment.prompt[0] + sink

        def probe(region: str, block: Any, selection: Any, values: Tensor) -> None:
            assert region == "prompt"
            for layer, lost in zip(block.layers, selection.dropped[:, 0], strict=True):
                gone[layer][:, first : first + lost.shape[-1]] = lost

        self.segments.append(segment)
        relay = self.inner(segment, probe)
        self.dropped.append((read, gone))
        return relay
