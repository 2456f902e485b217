"""The config chooses the adapter, never a name; ends and chat formats follow tokenizer and family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chains import asked, make_chain
from families import FAMILIES, config
from tiny import byte_tokenizer, llama_config, saved_model, tiny_model
from transformers import AutoConfig

from lm_eval_latentmas.decoding import Decoder, Job
from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class
from lm_eval_latentmas.model_adapters.families import FAMILIES as ADAPTERS
from lm_eval_latentmas.model_adapters.gpt_oss import GptOss
from lm_eval_latentmas.sampling import Draws, Generation
from lm_eval_latentmas.underway import Handed

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


ANALYSIS = "<|channel|>analysis<|message|>4, or 5?<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I'll add, first.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


@pytest.fixture(scope="module")
def gpt_oss():
    """Over a tokenizer with the special tokens of its messages."""
    tokenizer = byte_tokenizer()
    names = ["<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names, "eos_token": "<|return|>"})
    return GptOss(tiny_model(llama_config(vocab_size=len(tokenizer), eos_token_id=None)), tokenizer)


@pytest.mark.parametrize("think_end_token", [None, "assistantfinal"])
@pytest.mark.parametrize("until", [(), (",",)])
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (f"{FINAL}Four, I think.<|return|>", "Four, I think."),
        (f"{ANALYSIS}{FINAL}Four, I think.<|return|>", "Four, I think."),
        (f"{ANALYSIS}{PREAMBLE}{ANALYSIS}{FINAL}Four, I think.<|return|>", "Four, I think."),
        (f"{FINAL}final answer, four<|return|>", "final answer, four"),
        (f"{ANALYSIS}{FINAL}The analysis, of assistantfinal<|return|>", "The analysis, of assistantfinal"),
        (ANALYSIS, ""),
        (f"{ANALYSIS}<|channel|>commentary to=functions.add<|message|>4, 5<|call|>", ""),
        ("Four, behind a prompt that ends with a header<|return|>", "Four, behind a prompt that ends with a header"),
        ("finally, four<|return|>", "finally, four"),
    ],
)
def test_the_text_of_gpt_oss_is_its_final_message_alone(gpt_oss, raw, text, until, think_end_token):
    chain = make_chain(gpt_oss, think_end_token=think_end_token)
    tokens = gpt_oss.encode(raw)
    job = chain._job(Handed(chain.plan(asked(until=until, max_gen_toks=len(tokens))[0]), None, 0))
    decoder = Decoder(gpt_oss, 1)
    while not job.stop:
        job.tokens.append(tokens[len(job.tokens)])
        decoder._is_done(job)
    assert chain._said(job, opened=False) == (text.partition(",")[0] if until else text)


def test_a_message_of_gpt_oss_holds_no_marks(gpt_oss):
    chain = make_chain(gpt_oss, mode="text")
    for raw, text in ((f"{ANALYSIS}{FINAL}Four.", "Four."), (ANALYSIS, "analysis4, or 5?assistant")):
        job = Job("", None, [], 0, Generation(), Draws(0), chain._thought, tokens=gpt_oss.encode(raw))
        job.text = Decoder(gpt_oss, 1)._text(job, job.tokens)
        assert chain._message(job) == text
