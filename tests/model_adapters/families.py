"""A tiny configuration of every family: 8 query heads on 2 KV heads, and a window of 8 where the family has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tiny import byte_tokenizer, tiny_model
from transformers import AutoConfig

from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class

COMMON = {
    "vocab_size": 262,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": 259,
    "pad_token_id": 260,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,
}
WINDOW = {"sliding_window": 8}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], **WINDOW}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, **MIXED}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.5, 2.0, 3.0, 4.0]}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

FAMILIES: dict[str, dict] = {
    "cohere": {"model_type": "cohere", "logit_scale": 0.25},
    "cohere2": {"model_type": "cohere2", "logit_scale": 0.25, **MIXED},
    "gemma": {"model_type": "gemma", "head_dim": 16},
    "gemma2": {"model_type": "gemma2", "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, **GEMMA},
    "gemma3": {
        "model_type": "gemma3",
        "text_config": COMMON | GEMMA,
        "vision_config": VISION,
        "mm_tokens_per_image": 4,
        "image_token_index": 261,
        "initializer_range": 0.1,
        "tie_word_embeddings": False,
    },
    "gemma3_text": {"model_type": "gemma3_text", **GEMMA},
    "gpt_neox": {"model_type": "gpt_neox"},
    "gpt_oss": {"model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, **MIXED},
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.5,
        "residual_multiplier": 0.7,
        "logits_scaling": 2.0,
    },
    "llama": {"model_type": "llama"},
    "smollm2": {
        "model_type": "llama",
        "hidden_size": 72,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    "mistral": {"model_type": "mistral", "head_dim": 16, **WINDOW},
    "olmo2": {"model_type": "olmo2"},
    "phi3": {"model_type": "phi3", **WINDOW},
    "phi3-longrope": {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 16},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-window": {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1, **WINDOW},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "qwen3_moe": {"model_type": "qwen3_moe", "head_dim": 16, "num_experts": 4, "norm_topk_prob": True, **EXPERTS},
}


def config(name: str) -> object:
    """The tiny configuration of a family."""
    values = dict(FAMILIES[name])
    kind = values.pop("model_type")
    return AutoConfig.for_model(kind, **(values if "text_config" in values else COMMON | values))


@dataclass(frozen=True)
class Family:
    """One family with a random model of it, on our attention function or on transformers' own."""

    name: str

    @cached_property
    def adapter(self) -> ModelAdapter:
        """The adapter that a user would get."""
        made = config(self.name)
        return adapter_class(made)(tiny_model(made), byte_tokenizer())

    def model(self, attention: str = "eager") -> object:
        """The same weights under another attention function."""
        return tiny_model(config(self.name), attention=attention)

    def window(self, layer: int) -> int | None:
        """The window of a layer, as the configuration above has it."""
        text = config(self.name).get_text_config()
        kinds = getattr(text, "layer_types", None) or ["sliding_attention"] * text.num_hidden_layers
        return getattr(text, "sliding_window", None) if kinds[layer] == "sliding_attention" else None
