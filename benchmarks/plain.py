"""The chain written the plain way, kept as a reference: logits for every token, all attention weights stored, a cache
that is copied whole at every token, one QR and one SVD per head, and a batch that waits for its longest answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.floor import attention
from benchmarks.perhead import relay_layer
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.relay.settings import HEADWISE_RANK


@dataclass
class Batch:
    """Rows with one prompt after the other, padded on the right; pads stay in the cache, masked."""

    cache: DynamicCache
    mask: Tensor
    cursors: Tensor
    stored: list[tuple[Tensor, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class PlainChain:
    """h-obf over a batch; ``answer`` returns as many tokens a row as the longest answer needs."""

    adapter: ModelAdapter
    latent_steps: int
    kv_budget: int
    sink_size: int

    @torch.inference_mode()
    def answer(self, prompts: Sequence[Sequence[Sequence[int]]], new_tokens: int) -> Tensor:
        """prompts: by agent and row. Returns greedy tokens, (rows, new_tokens)."""
        with attention(self.adapter, "eager"):
            batch = self.begun(len(prompts[0]))
            for place, own in enumerate(prompts[:-1]):
                batch = self._think(batch, own, first=place == 0)
            return self._decode(batch, prompts[-1], new_tokens)

    def begun(self, rows: int) -> Batch:
        """Rows that have read nothing."""
        return Batch(DynamicCache(), self._integers(rows, 0), self._integers(rows))

    def _think(self, batch: Batch, prompts: Sequence[Sequence[int]], *, first: bool) -> Batch:
        history, lengths = batch.mask.shape[1], [len(prompt) for prompt in prompts]
        hidden = self.read(batch, prompts).hidden_states[-1]
        hidden = torch.stack([row[length - 1] for row, length in zip(hidden, lengths, strict=True)])
        norm = self.adapter.embeddings.weight.norm(dim=-1).mean()
        for _ in range(self.latent_steps):
            embeds = (hidden * (norm / hidden.norm(dim=-1, keepdim=True)))[:, None]
            out = self.forward(batch, self._integers(len(prompts), 1) + 1, inputs_embeds=embeds)
            batch.stored.append(out.attentions)
            hidden = out.hidden_states[-1][:, -1]
        return self._handed(batch, lengths, history, history + max(lengths), first=first)

    def _handed(self, batch: Batch, lengths: list[int], history: int, latent: int, *, first: bool) -> Batch:
        relay = DynamicCache()
        slots = batch.mask.shape[1]
        for index, (keys, values) in enumerate(_states(batch.cache)):
            mass = torch.zeros(*keys.shape[:2], slots, device=keys.device)
            for step in batch.stored:
                weights = step[index].float()  # (rows, heads, 1, slots so far)
                mass[..., : weights.shape[-1]] += weights.view(*keys.shape[:2], -1, weights.shape[-1]).sum(dim=2)
            layer = relay_layer(
                keys,
                values,
                mass,
                history=history,
                prompts=lengths,
                latent=[latent] * len(lengths),
                steps=self.latent_steps,
                sink=self.sink_size if first else 0,
                budget=self.kv_budget,
                rank=HEADWISE_RANK,
            )
            relay.update(*layer, index)
        return Batch(relay, self._integers(len(lengths), relay.get_seq_length()) + 1, batch.cursors)

    def _decode(self, batch: Batch, prompts: Sequence[Sequence[int]], new_tokens: int) -> Tensor:
        logits = self.read(batch, prompts).logits
        last = torch.stack([row[len(prompt) - 1] for row, prompt in zip(logits, prompts, strict=True)])
        tokens = [last.argmax(dim=-1, keepdim=True)]
        for _ in range(new_tokens - 1):
            out = self.forward(batch, torch.ones_like(tokens[-1]), input_ids=tokens[-1])
            tokens.append(out.logits[:, -1].argmax(dim=-1, keepdim=True))
        return torch.cat(tokens, dim=1)

    def read(self, batch: Batch, prompts: Sequence[Sequence[int]]):
        """One prompt a row, and everything that the model returns of it."""
        width = max(map(len, prompts))
        ids = torch.tensor([[*prompt, *[prompt[-1]] * (width - len(prompt))] for prompt in prompts])
        real = torch.tensor([[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in prompts])
        return self.forward(batch, real.to(self.adapter.device), input_ids=ids.to(self.adapter.device))

    def _integers(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.long, device=self.adapter.device)

    def forward(self, batch: Batch, real: Tensor, **inputs: Tensor):
        """One pass of the whole model, with everything it can return."""
        positions = batch.cursors[:, None] + torch.arange(real.shape[1], device=real.device)
        batch.mask = torch.cat([batch.mask, real], dim=1)
        batch.cursors = batch.cursors + real.sum(dim=1)
        # transformers 5 renames the argument
        known = inspect.signature(self.adapter.model.forward).parameters
        return self.adapter.model(
            **inputs,
            **{"cache" if "cache" in known else "past_key_values": batch.cache},
            attention_mask=batch.mask,
            position_ids=positions,
            use_cache=True,
            output_attentions=True,
            output_hidden_states=True,
        )


def _states(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]
