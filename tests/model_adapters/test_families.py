"""The config chooses the adapter, never a name; ends and chat formats follow tokenizer and family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from families import FAMILIES, config
from tiny import byte_tokenizer, llama_config, saved_model, tiny_model
from transformers import AutoConfig

from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class
from lm_eval_latentmas.model_adapters.families import FAMILIES as ADAPTERS
from lm_eval_latentmas.model_adapters.gpt_oss import GptOss

TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_config_chooses_the_adapter(name):
    assert adapter_class(config(name)) is ADAPTERS[FAMILIES[name]["model_type"]]


def test_the_page_names_every_family_and_its_class():
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `") and line.count("|") == 4]
    named = {kind: row[2] for row in rows for kind in re.findall(r"`(\w+)`", row[1])}
    assert set(named) == set(ADAPTERS)
    for kind, adapter in ADAPTERS.items():
        assert f"`{adapter.__name__}`" in named[kind]


def test_a_folders_name_says_nothing(tmp_path):
    saved_model(tmp_path / "llama-by-name", config("gemma2"))
    assert adapter_class(AutoConfig.from_pretrained(tmp_path / "llama-by-name")) is ADAPTERS["gemma2"]
    saved_model(tmp_path / "model", config("qwen3"))
    assert adapter_class(AutoConfig.from_pretrained(tmp_path / "model")) is ADAPTERS["qwen3"]


def test_ends_come_from_everywhere():
    tokenizer = byte_tokenizer()
    model = tiny_model(llama_config(eos_token_id=[7, 8]))
    model.generation_config.eos_token_id = 9
    own = tokenizer.convert_tokens_to_ids(["<|end|>", "<|stop|>"])
    assert ModelAdapter(model, tokenizer).eos_ids == {7, 8, 9, own[0]}

    class Ends(ModelAdapter):
        turn_ends = ("<|stop|>", "<|unknown|>")

    assert Ends(model, tokenizer).eos_ids == {7, 8, 9, *own}
    # without a chat there are no turns to end
    assert Ends(model, byte_tokenizer(chat=False)).eos_ids == {7, 8, 9, own[0]}


def adapter(template):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return ModelAdapter(tiny_model(), tokenizer)


def test_a_template_with_a_system_role_gets_the_system_line():
    text = adapter(byte_tokenizer().chat_template).render(TURNS)
    assert text == "<|system|>Be brief.<|end|><|user|>Why?<|end|><|assistant|>"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "[{{ m['role'] }}] {{ m['content'] }}{% endfor %}",
        "{% for m in messages if m['role'] != 'system' %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}",
    ],
    ids=["refuses", "drops"],
)
def test_without_a_system_role_the_line_moves_into_the_message(template):
    assert adapter(template).render(TURNS) == "[user] Be brief.\n\nWhy?"


def test_an_error_that_is_not_the_templates_is_not_swallowed(monkeypatch):
    broken = adapter(byte_tokenizer().chat_template)

    def fails(*_, **__):
        raise KeyError("tokenizer")

    monkeypatch.setattr(broken.tokenizer, "apply_chat_template", fails)
    with pytest.raises(KeyError):
        broken.render(TURNS)


def test_a_model_without_a_template_gets_a_plain_chat():
    plain = ModelAdapter(tiny_model(), byte_tokenizer(chat=False))
    assert plain.render(TURNS) == "Be brief.\n\nUser: Why?\n\nAssistant:"


def test_a_gpt_oss_thought_is_found_in_decoded_text():
    """Special tokens, which decoding leaves out, stand between the words of a message's header."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|channel|>", "<|message|>"]})
    raw = "<|channel|>analysis<|message|>4?<|end|><|start|>assistant<|channel|>final<|message|>4."
    text = tokenizer.decode(tokenizer(raw)["input_ids"], skip_special_tokens=True)
    opening, closing = GptOss.thought
    assert text.startswith(opening)
    assert text.partition(closing)[2] == "4."
