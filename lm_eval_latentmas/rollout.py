"""An agent's two ways of reading and thinking: prefill of its prompt, and the latent rollout (method, section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter

# Tokens that one forward pass reads, over all rows: activations of more would take more memory than the cache that they
# fill, and a CPU is no faster with them.
TOKENS = 256
TOKENS_ON_A_DEVICE = 8192
# but at least so many of every row, as each pass goes through the whole cache; 3 or more, so that no part is a step
WIDTH = 64


class NonFiniteState(RuntimeError):
    """A state became NaN or infinite. row: in the batch; step: of the rollout (0 is the seed state) or of decoding."""

    def __init__(self, row: int, step: int, where: str = "") -> None:
        place = where or f"row {row}"
        super().__init__(f"{place}: non-finite state at step {step}; try dtype=float32 or fewer latent_steps")
        self.row, self.step = row, step

    def at(self, where: object) -> NonFiniteState:
        """The same error, saying where it happened."""
        return NonFiniteState(self.row, self.step, str(where))


@dataclass(frozen=True)
class LatentSpace:
    """How a final hidden state is fed back: e = h W, rescaled to the mean norm of the input embeddings.

    norm: scalar float32. realign: W, (hidden, hidden) float32, or None for the identity.
    """

    norm: Tensor
    realign: Tensor | None = None

    @classmethod
    def of(cls, adapter: ModelAdapter, *, realign: bool) -> LatentSpace:
        """The latent space of a model; ``realign`` solves the ridge map once."""
        return cls(adapter.embedding_norm(), adapter.realignment() if realign else None)

    def to_input(self, hidden: Tensor) -> Tensor:
        """Final hidden states (rows, hidden) as input embeddings of the same shape and dtype."""
        vector = hidden.float()
        if self.realign is not None:
            vector = vector @ self.realign.to(vector.device)
        norm = vector.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        return (vector * (self.norm.to(vector.device) / norm)).to(hidden.dtype)


def read(adapter: ModelAdapter, cache: LiveCache, tokens: Sequence[Sequence[int]]) -> Tensor:
    """Read the tokens of every row behind what the cache holds; return the states, (rows, width, hidden).

    Rows are padded on the right with their own last token: index 0 is always real, and pads never become states.
    """
    return torch.cat([hidden for _, hidden in _passes(adapter, cache, tokens)], dim=1)


def prefill(adapter: ModelAdapter, cache: LiveCache, prompts: Sequence[Sequence[int]]) -> Tensor:
    """Read one prompt per row; return each row's state at its last real token, (rows, hidden)."""
    last: dict[int, Tensor] = {}
    for start, hidden in _passes(adapter, cache, prompts):
        ends = {row: len(prompt) - 1 - start for row, prompt in enumerate(prompts)}
        last |= {row: hidden[row, end].clone() for row, end in ends.items() if 0 <= end < hidden.shape[1]}
    return torch.stack([last[row] for row in range(len(prompts))])


def _passes(adapter: ModelAdapter, cache: LiveCache, tokens: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
    """The passes that read the tokens: where each begins in the rows, and its states, (rows, its width, hidden)."""
    lengths, device = [len(row) for row in tokens], adapter.device
    width = max(lengths)
    padded = torch.tensor([[*row, *([row[-1]] * (width - len(row)))] for row in tokens], device=device)
    most = TOKENS if device.type == "cpu" else TOKENS_ON_A_DEVICE
    passes = -(-width // max(WIDTH, most // len(tokens)))
    for start, end in pairwise(width * place // passes for place in range(passes + 1)):
        real = [min(max(length - start, 0), end - start) for length in lengths]
        with cache.writing(real, end - start, device) as positions:
            hidden = adapter.forward(adapter.embed(padded[:, start:end]), positions, cache)
        yield start, hidden


def step(adapter: ModelAdapter, cache: LiveCache, embeds: Tensor) -> Tensor:
    """Feed one vector per row, (rows, hidden); return the final states, (rows, hidden)."""
    with cache.writing([1] * cache.rows, 1, adapter.device) as positions:
        return adapter.forward(embeds[:, None].to(adapter.device), positions, cache)[:, -1]


def think(adapter: ModelAdapter, cache: LiveCache, seed: Tensor, steps: int, space: LatentSpace) -> Tensor:
    """Take ``steps`` latent steps from the seed states (rows, hidden); return the norms, (steps + 1, rows).

    Raises NonFiniteState. The check waits until the end, so that no step waits for the device.
    """
    hidden, norms = seed, [seed.float().norm(dim=-1)]
    for _ in range(steps):
        hidden = step(adapter, cache, space.to_input(hidden))
        norms.append(hidden.float().norm(dim=-1))
    history = torch.stack(norms).cpu()
    bad = (~history.isfinite()).nonzero()
    if len(bad):
        raise NonFiniteState(row=int(bad[0, 1]), step=int(bad[0, 0]))
    return history
