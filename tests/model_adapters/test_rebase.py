"""Keys at other positions: the hierarchy equals its dense construction in every family, or is refused."""

from __future__ import annotations

import pytest
import torch
from chains import HIERARCHY, asked, make_chain
from dense import NAME, dense
from families import FAMILIES, Family
from tiny import byte_tokenizer, tiny_model
from transformers import GPT2Config

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.model_adapters.rebase import Rotation
from lm_eval_latentmas.rollout import prefill, read

CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return Family(request.param)


@torch.no_grad()
def test_the_joined_relay_equals_a_dense_model_in_which_the_agents_do_not_see_each_other(family):
    adapter = family.adapter
    chain = make_chain(adapter, HIERARCHY, latent_steps=0)
    reference = type(adapter)(family.model(NAME), byte_tokenizer())
    plans = [chain.plan(question) for question in asked()]
    for plan, left in zip(plans, chain.think(plans), strict=True):
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
        states = read(adapter, cache, [plan.prompts[-1]])[0]
        embeds = adapter.embed(torch.tensor([token for prompt in plan.prompts for token in prompt]))
        heads = [keys.shape[1] for keys in cache.keys]
        expected, _ = dense(reference, embeds, torch.arange(len(embeds)), _visible(family, plan.prompts, heads))
        torch.testing.assert_close(states, expected[-len(states) :], **CLOSE)
        seen, _ = dense(reference, embeds, torch.arange(len(embeds)), _visible(family, [sum(plan.prompts, ())], heads))
        assert (expected - seen).abs().max() > 0.01


def _visible(family, prompts, heads):
    """Per layer, (kv_heads, queries, keys): each agent sees its own prompt, the last one everything."""
    agent = torch.tensor([number for number, prompt in enumerate(prompts) for _ in prompt])
    order = torch.arange(len(agent))
    before = order[:, None] >= order
    seen = before & ((agent[:, None] == agent) | (agent[:, None] == len(prompts) - 1))
    windows = [family.window(layer) for layer in range(len(heads))]
    return [
        (seen if window is None else seen & (order[:, None] - order < window)).expand(count, -1, -1)
        for window, count in zip(windows, heads, strict=True)
    ]


@torch.inference_mode()
@pytest.mark.parametrize("by", [1, 37, 2000])
def test_moved_keys_are_those_of_the_later_positions(family, by):
    adapter, rotation = family.adapter, Rotation.of(family.adapter)

    def keys(start):
        cache = LiveCache(adapter.layers, 1)
        cache.cursors = [start]
        prefill(adapter, cache, [[5, 6, 7, 8, 9, 10, 11]])
        return cache.keys

    for layer, (here, there) in enumerate(zip(keys(3), keys(3 + by), strict=True)):
        torch.testing.assert_close(rotation.moved(here, layer, by), there, atol=1e-3, rtol=1e-3)
        assert rotation.moved(here, layer, 0) is here


def test_a_family_without_rotary_keys_is_refused():
    config = GPT2Config(vocab_size=262, n_embd=32, n_layer=2, n_head=2, n_positions=2048, eos_token_id=259)
    adapter = ModelAdapter(tiny_model(config), byte_tokenizer())
    with pytest.raises(ValueError, match=r"model_type 'gpt2': keys of layer 0 cannot be moved .* a sequential"):
        make_chain(adapter, HIERARCHY)
    make_chain(adapter)
