"""The few checks that want a real model: the embedded one, loaded once."""

import pytest
import torch
from lm_eval.api.instance import Instance

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.rollout import prefill

QUESTIONS = [
    "Tom has 3 boxes with 4 pens in each box. How many pens does he have?",
    "A train leaves at 9 o'clock and arrives 2 hours later. When does it arrive, and how long is the journey?",
    "What is 12 minus 5?",
]


@pytest.fixture(scope="module")
def lm():
    return LatentMASLM(compressor="full", latent_steps=4, device="cpu", batch_size=3)


def requests(max_gen_toks=16):
    arguments = {"until": [], "do_sample": False, "max_gen_toks": max_gen_toks}
    return [
        Instance("generate_until", {}, (text, dict(arguments)), 0, metadata=("gsm8k", index, 1))
        for index, text in enumerate(QUESTIONS)
    ]


def test_the_embedded_model_is_a_grouped_query_llama_with_a_chat_template(lm):
    assert lm.config.model_type == "llama"
    assert (lm.adapter.layers, lm.config.num_attention_heads, lm.config.num_key_value_heads) == (30, 9, 3)
    assert lm.tokenizer.decode(sorted(lm.adapter.eos_ids)) == "<|im_end|>"
    assert (lm.tokenizer.bos_token, lm.tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    prompt = lm.tokenizer.decode(lm.chain.plan(_question(lm)).prompts[0])
    assert prompt.startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n")
    assert prompt.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("text", ["It is .5 , she said ; isn 't it ?", "  x = [1 , 2]\n\tdef", "Café ▁ 日本 12345"])
def test_text_is_decoded_as_it_was_encoded(lm, text):
    tokens = lm.adapter.encode(text)
    assert lm.tokenizer.bos_token_id not in tokens
    assert lm.tokenizer.decode(tokens) == text


def test_words_are_split_as_the_model_learnt_them(lm):
    tokens = lm.adapter.encode("Tom has 30 boxes.\nx=3")
    expected = ["Tom", "Ġhas", "Ġ", "3", "0", "Ġboxes", ".", "Ċ", "x", "=", "3"]
    assert lm.tokenizer.convert_ids_to_tokens(tokens) == expected


def _question(lm):
    from lm_eval_latentmas.instances import written

    return written(requests()[:1], 16)[0]


@torch.no_grad()
def test_the_full_relay_without_latent_steps_equals_one_dense_forward(lm):
    chain = lm.with_settings(compressor="full", latent_steps=0).chain
    plan = chain.plan(_question(lm))
    (left,) = chain.think([plan])
    cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
    logits = chain.adapter.logits(prefill(chain.adapter, cache, [plan.prompts[-1]]))[0]
    tokens = torch.tensor([[token for prompt in plan.prompts for token in prompt]])
    dense = lm.model(tokens, logits_to_keep=1).logits[0, -1]
    assert (logits - dense).abs().max() < 1e-4


@pytest.mark.parametrize("compressor", ["full", "h-obf"])
def test_texts_do_not_depend_on_the_batch(lm, compressor):
    def texts(batch_size):
        made = lm.with_settings(compressor=compressor, latent_steps=4)
        made.batch_size_per_gpu = batch_size
        return made.generate_until(requests(), disable_tqdm=True)

    alone = texts(1)
    assert len(set(alone)) == 3
    assert texts(3) == alone


def test_prompts_are_about_as_long_as_the_published_ones(lm):
    """GSM8K: L = 524 on average with Qwen3's tokenizer, of which about 3 x 60 tokens are the question."""
    question = "x " * 60  # 60 tokens
    plan = lm.chain.plan(_replace(_question(lm), text=question))
    assert 420 <= plan.thinker_tokens <= 630


def _replace(question, **changes):
    from dataclasses import replace

    return replace(question, **changes)
