"""The shared prefix: found over all prompts, read once, and without a trace in what is handed on."""

import pytest
import torch
from test_chain import chain, prompts, questions  # noqa: F401 - a fixture
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.prefix import SharedPrefix


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ([(1, 2, 3, 4), (1, 2, 5), (1, 2, 3)], (1, 2)),
        ([(1, 2, 3), (1, 2, 3)], (1, 2)),  # a token is left to read
        ([(1, 2), (1, 2, 3)], (1,)),
        ([(1, 2), (3, 4)], ()),
        ([(1, 2, 3)], ()),
        ([], ()),
    ],
)
def test_what_all_prompts_begin_with(given, shared):
    assert SharedPrefix(given).tokens == shared


@pytest.mark.parametrize("spec", ["full", "h-obf"])
def test_relays_are_the_same_with_and_without(adapter, prompts, spec):  # noqa: F811
    made = chain(adapter, prompts, spec, kv_budget=8)
    plans = [made.plan(question) for question in questions()]
    apart = made.think(plans)
    made.expect(plans)
    assert len(made._prefix.tokens) > 10
    for left, right in zip(apart, made.think(plans), strict=True):
        assert left.relay.lengths == right.relay.lengths
        assert left.relay.sinks == right.relay.sinks
        assert left.relay.cursors == right.relay.cursors
        assert left.kept_states == right.kept_states
        for layer in range(left.relay.layers):
            assert torch.equal(left.relay.positions[layer], right.relay.positions[layer])
            assert torch.equal(left.relay.origins[layer], right.relay.origins[layer])
            for one, other in zip(left.relay.layer(layer), right.relay.layer(layer), strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_the_shared_tokens_are_read_once(adapter, prompts, monkeypatch):  # noqa: F811
    made = chain(adapter, prompts, latent_steps=0)
    plans = [made.plan(question) for question in questions()]
    tokens = []
    forward = ModelAdapter.forward

    def counted(self, embeds, positions, cache):
        tokens.append(embeds.shape[0] * embeds.shape[1])
        return forward(self, embeds, positions, cache)

    monkeypatch.setattr(ModelAdapter, "forward", counted)
    made.expect(plans)
    shared = len(made._prefix.tokens)
    widest = max(len(plan.prompts[0]) for plan in plans)
    made.think(plans)
    assert tokens[:2] == [shared, len(plans) * (widest - shared)]
    before = len(tokens)
    made.think(plans)
    assert tokens[before] == len(plans) * (widest - shared)


def test_other_prompts_are_read_whole(adapter, prompts):  # noqa: F811
    made = chain(adapter, prompts)
    plans = [made.plan(question) for question in questions()]
    expected = made.think(plans[:1])[0].relay
    made._prefix = SharedPrefix([(1, 2, 3), (1, 2, 4)])
    found = made.think(plans[:1])[0].relay
    assert found.lengths == expected.lengths
    for layer in range(found.layers):
        assert all(map(torch.equal, found.layer(layer), expected.layer(layer)))
