"""What the chain asks of a backbone: embed, run the decoder, read logits, render a chat, know the ends.

The base class serves every family whose decoder follows the common transformers interface; a family that differs
overrides just that (see ``docs/adapters.md``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor, nn

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import rope

Turn = dict[str, str]

_CHUNK = 8192  # embedding rows looked at together, to bound memory on large vocabularies


class ModelAdapter:
    """One frozen causal LM and its tokenizer, seen the way the chain needs them.

    template_arguments: for the chat template. max_length: positions that a chain may use, by default the model's own;
    rotary frequencies that depend on it are fixed for that length (`rope.pin`).
    Raises ValueError where embeddings or head are offloaded.
    """

    #: What a thought begins and ends with, special tokens included.
    thought: tuple[str, str] = ("<think>", "</think>")
    #: Whether an answer is a message of its own, which alone is the text, with or without a thought before it.
    answers_apart: bool = False
    #: Tokens that end the model's turn in a chat, where config and tokenizer may name others only.
    turn_ends: tuple[str, ...] = ()

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        template_arguments: dict[str, Any] | None = None,
        max_length: int | None = None,
    ) -> None:
        # A PEFT wrapper changes layers in place and hides the decoder; the model inside is what runs.
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.tokenizer = tokenizer
        self.template_arguments = template_arguments or {}
        self.config = self.model.config.get_text_config()
        self.decoder: nn.Module = self._decoder()
        self.head: nn.Module = self.model.get_output_embeddings()
        self.embeddings: nn.Module = self.model.get_input_embeddings()
        parameters = inspect.signature(self.decoder.forward).parameters
        # transformers 5 renames the argument; both names are served from this one place.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        rope.pin(self.decoder, self.config, max_length)
        for part, module in (("input embeddings", self.embeddings), ("output head", self.head)):
            if any(parameter.is_meta for parameter in module.parameters()):
                raise ValueError(
                    f"weights: the {part} are not on a device, and the chain needs them at every step; raise the "
                    "model's memory, or let device_map offload layers alone"
                )

    # -- running ------------------------------------------------------------------------------------

    def _decoder(self) -> nn.Module:
        decoder = self.model.get_decoder() if hasattr(self.model, "get_decoder") else None
        return decoder if decoder is not None and decoder is not self.model else self.model.base_model

    @property
    def layers(self) -> int:
        """Decoder layers, each with a cache of its own."""
        return self.config.num_hidden_layers

    @property
    def device(self) -> torch.device:
        """Where token ids and embeddings enter the model."""
        return self.embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the hidden states."""
        return self.embeddings.weight.dtype

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids to the vectors that enter the decoder, by the model's own embedding module."""
        return self.embeddings(ids)

    def forward(self, embeds: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """Run the decoder over (rows, width, hidden) inputs; return states after the final norm. No logits."""
        # A four-dimensional mask makes transformers build none of its own; the real one comes from the cache.
        mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=embeds.device)
        output = self.decoder(
            inputs_embeds=embeds,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            relay_cache=cache,
            **{self._cache_argument: cache},
        )
        return output.last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits in float32 for states after the final norm, (..., hidden) to (..., vocabulary)."""
        return self.head(hidden.to(self.head.weight.device)).float()

    @cached_property
    def bytes_per_state(self) -> int:
        """Bytes of one token's keys and values over all layers: layers may differ."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._one_state)

    @cached_property
    def layer_devices(self) -> tuple[torch.device, ...]:
        """Where each layer's keys and values lie."""
        return tuple(keys.device for keys, _ in self._one_state)

    @cached_property
    def _one_state(self) -> list[tuple[Tensor, Tensor]]:
        """One token's keys and values of every layer, each (1, kv_heads, 1, head_dim)."""
        cache = LiveCache(self.layers, 1)
        with torch.inference_mode(), cache.writing([1], 1, self.device) as positions:
            self.forward(self.embed(torch.zeros((1, 1), dtype=torch.long, device=self.device)), positions, cache)
        return list(zip(cache.keys, cache.values, strict=True))

    # -- latent space (method, section 1) -----------------------------------------------------------

    @torch.no_grad()
    def embedding_norm(self) -> Tensor:
        """Mean L2 norm of the input-embedding rows as they enter the decoder, scaled where the module scales them."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for rows in self._embedding_rows():
            total += rows.float().norm(dim=-1).sum(dtype=torch.float64)
        return (total / self.embeddings.weight.shape[0]).float()

    @torch.no_grad()
    def realignment(self) -> Tensor:
        """The ridge map from output to input embedding space, (hidden, hidden) float32: LatentMAS, method section 1."""
        size = self.head.weight.shape[1]
        gram = torch.zeros((size, size), device=self.device)
        cross = torch.zeros((size, self.embeddings.weight.shape[1]), device=self.device)
        for start, rows in zip(range(0, self.embeddings.weight.shape[0], _CHUNK), self._embedding_rows(), strict=True):
            out = self.head.weight[start : start + _CHUNK].to(self.device).float()
            gram += out.T @ out
            cross += out.T @ rows[: out.shape[0]].float()
        return torch.linalg.solve(gram + 1e-5 * torch.eye(size, device=self.device), cross)

    def _embedding_rows(self) -> Iterator[Tensor]:
        count = self.embeddings.weight.shape[0]
        for start in range(0, count, _CHUNK):
            yield self.embed(torch.arange(start, min(start + _CHUNK, count), device=self.device))

    # -- text ---------------------------------------------------------------------------------------

    def render(self, turns: Sequence[Turn]) -> str:
        """The prompt text of some chat turns, ending where the model's own turn begins."""
        if not self._templated:
            return plain_chat(turns)
        return self.tokenizer.apply_chat_template(
            self._turns(turns), tokenize=False, add_generation_prompt=True, **self.template_arguments
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered prompt; the template wrote the special tokens, so none is added."""
        return self.tokenizer(text, add_special_tokens=not self._templated)["input_ids"]

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends the model's turn: of generation config, model config, tokenizer and family together."""
        ids: set[int] = set()
        generation = getattr(self.model, "generation_config", None)
        for source in (generation, self.config, self.tokenizer):
            value = getattr(source, "eos_token_id", None)
            ids.update(value if isinstance(value, (list, tuple, set)) else [] if value is None else [value])
        found = self.tokenizer.convert_tokens_to_ids(list(self.turn_ends)) if self._templated else []
        return frozenset(ids.union(i for i in found if i not in (None, self.tokenizer.unk_token_id)))

    @property
    def _templated(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    def _turns(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns as the family's template takes them; without a system role the line moves into the message."""
        turns = list(turns)
        if len(turns) > 1 and turns[0]["role"] == "system" and not self._knows_system:
            first, second, *rest = turns
            turns = [{"role": second["role"], "content": f"{first['content']}\n\n{second['content']}"}, *rest]
        return turns

    @cached_property
    def _knows_system(self) -> bool:
        """Whether a system line gets through the template: some refuse the role, some leave it out."""
        probe = "a system line that no template contains by itself"
        turns = [{"role": "system", "content": probe}, {"role": "user", "content": "question"}]
        try:
            return probe in self.tokenizer.apply_chat_template(turns, tokenize=False, **self.template_arguments)
        except TemplateError:
            return False


def plain_chat(turns: Sequence[Turn]) -> str:
    """A chat for models without a template: the system line, then ``Role: message`` blocks, then ``Assistant:``."""
    blocks = [t["content"] if t["role"] == "system" else f"{t['role'].capitalize()}: {t['content']}" for t in turns]
    return "\n\n".join([*blocks, "Assistant:"])
