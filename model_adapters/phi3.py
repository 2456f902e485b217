"""Phi-3 and Phi-4: a turn ends with a token that is not the end of a text."""

from __future__ import annotations

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class Phi3(ModelAdapter):
    """Queries, keys and values come from one projection, which the chain never sees."""

    turn_ends = ("<|end|>",)
