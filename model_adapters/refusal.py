"""Why a model cannot run the chain, told from its config alone, before weights load."""

from __future__ import annotations

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

#: Layers that attend to keys and values of their own, one state a token.
ATTENTION = {"full_attention", "sliding_attention"}
#: Families whose positions are a table of learned embeddings.
LEARNED_POSITIONS = {
    "bert-generation",
    "biogpt",
    "gpt-sw3",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "imagegpt",
    "openai-gpt",
    "opt",
}


def refusal(config: Any) -> str | None:
    """The reason in one line, or None where nothing in the config speaks against the chain."""
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder, and the chain needs a decoder-only causal LM"
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:
        return "it is an encoder, and the chain needs a decoder-only causal LM"
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not getattr(config, "auto_map", None):
        return "this transformers release knows no causal LM of that type"
    try:
        text = config.get_text_config(decoder=True)
        return _layers(text) or _positions(text) or _code(config)
    except (
        RuntimeError,
        ValueError,
    ) as error:  # a composite config that is ambiguous about its text part or its layers
        return f"its config does not describe one decoder ({error})"


def _layers(config: Any) -> str | None:
    """What a layer remembers must be keys and values of its own, one a token and KV head."""
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION
    if other:
        return f"it has layers of the kind {', '.join(sorted(other))}; a relay carries full and sliding attention only"
    if getattr(config, "layers_block_type", None) or getattr(config, "block_types", None):
        return "some of its layers are recurrent; a relay carries full and sliding attention only"
    if getattr(config, "kv_lora_rank", None):
        return "its keys and values are one compressed latent (MLA), for which there is no adapter"
    if getattr(config, "num_kv_shared_layers", None):
        return "some of its layers have no keys and values of their own (num_kv_shared_layers)"
    if getattr(config, "use_bidirectional_attention", None) in (True, "all"):
        return "its attention is not causal (use_bidirectional_attention)"
    return None


def _positions(config: Any) -> str | None:
    if config.model_type not in LEARNED_POSITIONS:
        return None
    return (
        f"its positions are a learned table of {config.max_position_embeddings}; the agents' prompts, latent steps and "
        "answer share one timeline that outgrows it"
    )


def _code(config: Any) -> str | None:
    """What transformers' class for the config says of itself; remote code is left to the self-check."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model = found[-1] if isinstance(found, tuple) else found
    if getattr(model, "_is_stateful", False):
        return "it is recurrent; a relay carries full and sliding attention only"
    if not model._supports_attention_backend:
        return "in this transformers release its attention does not go through the attention interface"
    return None
