"""The self-check of families that no test covers: our way through the model against the model's own forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lm_eval_latentmas.attention import sdpa_attention
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters.base import ModelAdapter
from lm_eval_latentmas.model_adapters.families import is_proved

_WATCHED = "latentmas_watched"
_ROWS = ((16, 8), (9, 6))  # tokens of the two passes, per row: padded, and continued at unequal lengths
# Allowed differences, relative to the size of what is compared: of states, of states in half precision (SDPA and eager
# attention round differently), and of logits that come from the very same states
_STATES, _HALF_STATES, _LOGITS = 1e-3, 0.1, 1e-5
#: What an attention module may hand to its attention function without changing what the function has to compute.
_HARMLESS = {
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_hidden_states",
    "position_ids",
    "relay_cache",
    "return_dict",
    "use_cache",
}
_SERVED = {"scaling", "sliding_window", "softcap", "s_aux"}


@torch.inference_mode()
def verify(adapter: ModelAdapter) -> None:
    """Run two short passes of a few random tokens through a model of an unproved family, and compare.

    Nothing is done for a family that the conformance suite covers. Raises ValueError where states, logits or windows
    differ from the model's own, or a pass fails.
    """
    if is_proved(adapter.model):
        return
    name = f"model_type '{adapter.model.config.model_type}' is not among the tested families"
    seen: dict[int, dict[str, Any]] = {}
    try:
        with _attention(adapter.model, _watching(seen)):
            ours = _relayed(adapter)
        with _attention(adapter.model, "eager"):
            dense = [_dense(adapter, row) for row in range(len(_ROWS))]
        problem = _calls_problem(adapter, seen) or _numbers_problem(adapter, ours, dense)
    except Exception as failure:
        raise ValueError(f"{name} and failed its self-check: {type(failure).__name__}: {failure}") from failure
    if problem:
        raise ValueError(f"{name} and its self-check says no: {problem}")


def _watching(seen: dict[int, dict[str, Any]]) -> str:
    """The name of our attention function with a note of what each layer called it with, None left out."""

    def watched(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rest: Any
    ) -> tuple[Tensor, None]:
        seen[module.layer_idx] = {name: given for name, given in rest.items() if given is not None}
        if attention_mask is not None and attention_mask.numel() > 1:  # not the stand-in that the adapter gave
            seen[module.layer_idx]["a mask of its own"] = attention_mask
        return sdpa_attention(module, query, key, value, attention_mask, **rest)

    AttentionInterface.register(_WATCHED, watched)
    AttentionMaskInterface.register(_WATCHED, sdpa_mask)
    return _WATCHED


@contextmanager
def _attention(model: Any, name: str) -> Iterator[None]:
    """Within, the model attends by the named function."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _tokens(adapter: ModelAdapter, row: int) -> Tensor:
    draws = torch.Generator().manual_seed(row)
    return torch.randint(adapter.embeddings.weight.shape[0], (sum(_ROWS[row]),), generator=draws).to(adapter.device)


def _relayed(adapter: ModelAdapter) -> list[Tensor]:
    """The final states of every row's second pass, (tokens, hidden) each, as the chain gets them."""
    cache = LiveCache(adapter.layers, len(_ROWS))
    tokens = [_tokens(adapter, row) for row in range(len(_ROWS))]
    for part in range(2):
        parts = [row.split(sizes)[part] for row, sizes in zip(tokens, _ROWS, strict=True)]
        padded = nn.utils.rnn.pad_sequence(parts, batch_first=True)
        with cache.writing([len(row) for row in parts], padded.shape[1], adapter.device) as positions:
            hidden = adapter.forward(adapter.embed(padded), positions, cache)
    return [hidden[row, : sizes[1]] for row, sizes in enumerate(_ROWS)]


def _dense(adapter: ModelAdapter, row: int) -> tuple[Tensor, Tensor]:
    """Final states and logits of a row, (tokens, ...), by the model's own forward pass over all of it."""
    tokens = _tokens(adapter, row)[None]
    states = adapter.decoder(input_ids=tokens, use_cache=False).last_hidden_state
    return states, adapter.model(input_ids=tokens, use_cache=False).logits


def _numbers_problem(adapter: ModelAdapter, ours: list[Tensor], dense: list[tuple[Tensor, Tensor]]) -> str | None:
    """What differs between the chain's way and the model's own, if anything."""
    allowed = _HALF_STATES if adapter.dtype in (torch.float16, torch.bfloat16) else _STATES
    for hidden, (states, logits) in zip(ours, dense, strict=True):
        if not (error := _error(hidden, states[0, -len(hidden) :])) <= allowed:
            return f"states over a relayed cache are off by {error:.1%} of their size"
        if not (error := _error(adapter.logits(states), logits)) <= _LOGITS:
            return f"its logits are not the head's output over the final states, they are off by {error:.2%}"
    return None


def _error(ours: Tensor, dense: Tensor) -> float:
    """The median over tokens of the relative error: a wrong path shows in most tokens, a flipped expert in one."""
    dense = dense.float()
    return float(((ours.to(dense.device).float() - dense).norm(dim=-1) / dense.norm(dim=-1)).median())


def _calls_problem(adapter: ModelAdapter, seen: dict[int, dict[str, Any]]) -> str | None:
    """What is wrong with how the layers called the attention function: what a few tokens cannot show in numbers."""
    silent = [layer for layer in range(adapter.layers) if "relay_cache" not in seen.get(layer, {})]
    if silent:
        return f"layer {silent[0]} does not hand its arguments on to transformers' attention interface"
    for layer, arguments in sorted(seen.items()):
        if unknown := set(arguments) - _HARMLESS - _SERVED:
            return f"layer {layer} asks its attention for {', '.join(sorted(unknown))}, which the chain does not know"
        if arguments.get("sliding_window") != (expected := _window(adapter.config, layer)):
            return f"layer {layer} has a window of {expected} that its attention does not ask for"
    return None


def _window(config: Any, layer: int) -> int | None:
    """A layer's sliding window by the config, in positions."""
    kinds = getattr(config, "layer_types", None)
    if kinds and kinds[layer] != "sliding_attention":
        return None
    return None if getattr(config, "use_sliding_window", True) is False else getattr(config, "sliding_window", None)
