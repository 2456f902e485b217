"""What differs between backbone families, one small class each, chosen from the model's config."""

from __future__ import annotations

from typing import Any

from lm_eval_latentmas.model_adapters.base import ModelAdapter, plain_chat

__all__ = ["ModelAdapter", "adapter_class", "plain_chat"]


def adapter_class(config: Any) -> type[ModelAdapter]:
    """The adapter class for a model config; raises ValueError with the reason where the chain cannot run."""
    chosen = ModelAdapter
    if reason := chosen.refuse(config):
        raise ValueError(f"model_type '{config.model_type}' cannot run the latent chain: {reason}")
    return chosen
