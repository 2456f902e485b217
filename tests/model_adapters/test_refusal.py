"""What cannot run the chain is refused from its config alone, in one line with the reason."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from lm_eval_latentmas.model_adapters import adapter_class

REFUSED = [
    ("t5", {}, "encoder-decoder"),
    ("bart", {}, "encoder-decoder"),
    ("bert", {}, "it is an encoder"),
    ("roberta", {"is_decoder": True}, "it is an encoder"),
    ("vit", {}, "knows no causal LM of that type"),
    ("gpt2", {}, "learned table of 1024"),
    ("gpt2", {"n_positions": 8192}, "learned table of 8192"),
    ("opt", {}, "learned table of 2048"),
    ("mamba", {}, "recurrent|linear_attention"),
    ("mamba2", {}, "recurrent|linear_attention"),
    ("jamba", {}, "recurrent|linear_attention"),
    ("recurrent_gemma", {}, "recurrent|linear_attention"),
    ("qwen3_next", {}, "linear_attention"),
    ("rwkv", {}, "recurrent"),
    ("llama4_text", {}, "chunked_attention"),
    ("lfm2", {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}, "layers of the kind conv"),
    ("deepseek_v2", {}, "MLA"),
    ("deepseek_v3", {}, "MLA"),
    ("gemma3n_text", {}, "num_kv_shared_layers"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "not causal"),
    ("bloom", {}, "does not go through the attention interface"),
    ("falcon", {}, "does not go through the attention interface"),
]


@pytest.mark.parametrize(("kind", "values", "reason"), REFUSED)
def test_refused_with_the_reason(kind, values, reason):
    with pytest.raises(ValueError, match=rf"^model_type '{kind}' cannot run the latent chain: .*({reason})") as error:
        adapter_class(AutoConfig.for_model(kind, **values))
    assert "\n" not in str(error.value)


def test_remote_code_is_left_to_the_self_check():
    config = AutoConfig.for_model("vit", auto_map={"AutoModelForCausalLM": "modeling.Model"})
    assert adapter_class(config)
