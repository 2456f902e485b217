"""The head of first prompts: the same for every question, read once, and without a trace in what is handed on."""

from dataclasses import replace

import pytest
import torch
from test_chain import QUESTIONS, chain, prompts, questions  # noqa: F401 - a fixture
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.prefix import Prefixes, head


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def unshared(plans):
    return [replace(plan, heads=((),) * len(plan.heads)) for plan in plans]


def assert_same_relays(some, others):
    for left, right in zip(some, others, strict=True):
        assert left.relay.lengths == right.relay.lengths
        assert left.relay.sinks == right.relay.sinks
        assert left.relay.cursors == right.relay.cursors
        assert left.kept_states == right.kept_states
        for layer in range(left.relay.layers):
            assert torch.equal(left.relay.positions[layer], right.relay.positions[layer])
            assert torch.equal(left.relay.origins[layer], right.relay.origins[layer])
            for one, other in zip(left.relay.layer(layer), right.relay.layer(layer), strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_head_ends_where_questions_begin_to_differ():
    words = {"Read": 1, "it": 2, ":": 3}

    def tokens(question):
        # a tokenizer that joins the colon with what follows it
        return [words["Read"], words["it"], 100 + ord(question[0]), *map(ord, question[1:])]

    assert head(tokens) == (1, 2)
    assert head(lambda question: [*map(ord, question), 1]) == ()


def test_no_document_and_no_shard_changes_a_head(adapter, prompts):  # noqa: F811
    made = chain(adapter, prompts)
    heads = {made.plan(question).heads for question in questions()}
    assert heads == {made.plan(replace(questions()[0], text="Quite another one")).heads}
    (only,) = next(iter(heads))
    assert adapter.tokenizer.decode(only).endswith("Plan: ")


@pytest.mark.parametrize("spec", ["full", "h-obf"])
def test_relays_are_the_same_with_and_without(adapter, prompts, spec):  # noqa: F811
    made = chain(adapter, prompts, spec, kv_budget=8)
    plans = [made.plan(question) for question in questions()]
    assert all(len(plan.heads[0]) > 10 for plan in plans)
    assert_same_relays(made.think(plans), made.think(unshared(plans)))


def test_agents_side_by_side_have_heads_of_their_own(adapter, tmp_path):
    path = tmp_path / "side.yaml"
    path.write_text(
        "topology: hierarchical\n"
        "agents:\n"
        "  - {name: one, prompt: 'Think like a chemist of {question}'}\n"
        "  - {name: two, prompt: '{question} - think of it'}\n"
        "  - {name: last, prompt: 'Answer {question} {answer_form}'}\n"
        "answer_styles: {free: 'Say it.'}\n"
        "tasks: {'*': free}\n"
    )
    made = chain(adapter, load_prompts(str(path)))
    plans = [made.plan(question) for question in questions()]
    first, second = plans[0].heads
    assert len(first) > len(second)
    assert_same_relays(made.think(plans), made.think(unshared(plans)))


def test_a_head_is_read_once(adapter, prompts, monkeypatch):  # noqa: F811
    made = chain(adapter, prompts, latent_steps=0)
    plans = [made.plan(question) for question in questions()]
    tokens = []
    forward = ModelAdapter.forward

    def counted(self, embeds, positions, cache):
        tokens.append(embeds.shape[0] * embeds.shape[1])
        return forward(self, embeds, positions, cache)

    monkeypatch.setattr(ModelAdapter, "forward", counted)
    shared = len(plans[0].heads[0])
    widest = max(len(plan.prompts[0]) for plan in plans)
    made.think(plans)
    assert tokens[:2] == [shared, len(plans) * (widest - shared)]
    before = len(tokens)
    made.think(plans)
    assert tokens[before] == len(plans) * (widest - shared)


def test_a_prompt_that_begins_otherwise_is_read_whole(adapter):
    prefixes = Prefixes(adapter)
    cache = prefixes.begin([(1, 2, 3, 4), (1, 9), (1, 2)], [(1, 2), (1, 2), (1, 2)], reserve=4)
    assert cache.lengths == cache.cursors == [2, 0, 0]
    assert cache.history == [0, 0, 0]
    assert prefixes.begin([(5, 6)], [()], reserve=2).lengths == [0]


def test_only_the_latest_heads_are_kept(adapter):
    prefixes = Prefixes(adapter)
    for number in range(40):
        prefixes.begin([(number, 1, 2)], [(number, 1)], reserve=3)
    assert len(prefixes._read) == 16
