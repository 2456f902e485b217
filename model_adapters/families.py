"""The families that the conformance suite proves, by ``config.model_type``; most need nothing of their own."""

from __future__ import annotations

from typing import Any

from lm_eval_latentmas.model_adapters.base import ModelAdapter
from lm_eval_latentmas.model_adapters.gemma import Gemma, Gemma2
from lm_eval_latentmas.model_adapters.gpt_oss import GptOss
from lm_eval_latentmas.model_adapters.llama import Llama
from lm_eval_latentmas.model_adapters.phi3 import Phi3
from lm_eval_latentmas.model_adapters.refusal import refusal
from lm_eval_latentmas.model_adapters.scaled_logits import Cohere, Granite

FAMILIES: dict[str, type[ModelAdapter]] = {
    "cohere": Cohere,
    "cohere2": Cohere,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3": Gemma,
    "gemma3_text": Gemma,
    "gpt_neox": ModelAdapter,
    "gpt_oss": GptOss,
    "granite": Granite,
    "llama": Llama,
    "mistral": ModelAdapter,
    "olmo2": ModelAdapter,
    "phi3": Phi3,
    "qwen2": ModelAdapter,
    "qwen3": ModelAdapter,
    "qwen3_moe": ModelAdapter,
}


def adapter_class(config: Any) -> type[ModelAdapter]:
    """The adapter class for a model config; the common one for a family that is not listed (see `verify`).

    Raises ValueError with the reason, in one line, where the chain cannot run.
    """
    if reason := refusal(config):
        raise ValueError(f"model_type '{config.model_type}' cannot run the latent chain: {reason}")
    return FAMILIES.get(config.model_type, ModelAdapter)


def is_proved(model: Any) -> bool:
    """Whether the conformance suite covers the model: a listed family, in transformers' own code."""
    return model.config.model_type in FAMILIES and type(model).__module__.startswith("transformers.")
