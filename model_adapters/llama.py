"""Llama: since version 3 a turn ends with a token that is not the end of a text."""

from __future__ import annotations

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class Llama(ModelAdapter):
    """Llama 1 to 3 and what shares their architecture, SmolLM2 among them."""

    turn_ends = ("<|eot_id|>", "<|eom_id|>")
