"""What differs between backbone families, one small class each, chosen from the model's config."""

from __future__ import annotations

from lm_eval_latentmas.model_adapters.base import ModelAdapter, plain_chat
from lm_eval_latentmas.model_adapters.families import adapter_class
from lm_eval_latentmas.model_adapters.verification import verify

__all__ = ["ModelAdapter", "adapter_class", "plain_chat", "verify"]
