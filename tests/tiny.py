"""Tiny random models and a byte tokenizer: every path of the package in milliseconds, offline."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIALS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>", "<|stop|>"]


def byte_tokenizer(*, chat: bool = True, pad: str | None = "<|pad|>") -> PreTrainedTokenizerFast:
    """One token a byte, six special tokens; ``chat=False`` has no template, ``pad=None`` no pad token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>", clean_up_tokenization_spaces=False)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIALS})
    tokenizer.pad_token = pad
    tokenizer.chat_template = TEMPLATE if chat else None
    return tokenizer


def llama_config(**changes: object) -> LlamaConfig:
    """Three layers, four query heads on two KV heads of size 16, with ends known to the config."""
    values = {
        "vocab_size": 262,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": 259,
        "tie_word_embeddings": False,
        "initializer_range": 0.1,  # lower: flat attention; higher: latent steps amplify rounding until texts differ
    }
    return LlamaConfig(**(values | changes))


def tiny_model(config: object | None = None, *, seed: int = 0, attention: str = "latentmas"):
    """A random model of a config, float32, on our attention function."""
    from lm_eval_latentmas.attention import register

    register()
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config or llama_config(), attn_implementation=attention).eval()
    torch.random.set_rng_state(state)
    return model


def saved_model(folder, config: object | None = None, *, seed: int = 0, **tokenizer: object) -> str:
    """A tiny model and its tokenizer in a folder, as ``pretrained=FOLDER`` loads them."""
    tiny_model(config, seed=seed, attention="eager").save_pretrained(folder)
    byte_tokenizer(**tokenizer).save_pretrained(folder)
    return str(folder)
