"""The models that are measured: the embedded one, and random ones of the published backbones' shapes."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from lm_eval_latentmas import attention
from lm_eval_latentmas.embedded import embedded_model
from lm_eval_latentmas.model_adapters import ModelAdapter

#: Published shapes: hidden, intermediate, layers, query heads. All have 8 KV heads of size 128 and one vocabulary.
QWEN3 = {
    "0.6B": (1024, 3072, 28, 16),
    "4B": (2560, 9728, 36, 32),
    "8B": (4096, 12288, 36, 32),
    "14B": (5120, 17408, 40, 40),
}


class Endless(ModelAdapter):
    """An adapter whose answers end only at their own length, so that every variant decodes equally much."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """No id ends a turn."""
        return frozenset()


def embedded(layers: int | None = None) -> Endless:
    """SmolLM2-135M-Instruct in float32, all its layers or the first few."""
    attention.register()
    arguments = embedded_model()
    folder, file = arguments["pretrained"], arguments["gguf_file"]
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation=attention.NAMES["sdpa"]
    )
    if layers is not None:
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
    return Endless(model.eval(), embedded_tokenizer())


def embedded_tokenizer() -> Any:
    """The embedded model's tokenizer; its 49,152 tokens are ids of any larger vocabulary too."""
    arguments = embedded_model()
    return AutoTokenizer.from_pretrained(arguments["pretrained"], gguf_file=arguments["gguf_file"])


def qwen3(size: str, *, layers: int | None = None, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Endless:
    """A random model of a Qwen3 shape, all its layers or the first few."""
    hidden, intermediate, all_layers, heads = QWEN3[size]
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers or all_layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=size in ("0.6B", "4B"),
    )
    return _random(config, embedded_tokenizer(), dtype, device)


def toy() -> Endless:
    """A model that any step of a benchmark runs through in milliseconds."""
    config = LlamaConfig(
        vocab_size=262,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=16_384,
    )
    return _random(config, _bytes(), torch.float32, "cpu")


def _random(config: Any, tokenizer: Any, dtype: torch.dtype, device: str) -> Endless:
    attention.register()
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAMES["sdpa"])
    return Endless(model.eval(), tokenizer)


def _bytes() -> PreTrainedTokenizerFast:
    """One token a byte, no chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, clean_up_tokenization_spaces=False)
