"""Agents side by side: they never see each other, and the last one gets all their states at positions of their own."""

import pytest
import torch
from chains import HIERARCHY, answers, asked, make_chain, prompt_set
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.model_adapters.rebase import Rotation
from lm_eval_latentmas.topology import side_by_side

SPECS = ["full", "gen", "h-obf", "l-obf", "headwise+int8"]


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def relays(chain, question):
    """What each thinking agent hands on, before anything is joined."""
    plan = chain.plan(question)
    chain._gathered = lambda relay, rows: relay.row(rows[0])
    handed = []
    compress = chain.compressor
    chain.compressor = Recorder(compress, handed)
    chain.think([plan])
    return [made.row(row) for made in handed for row in range(made.rows)]


class Recorder:
    def __init__(self, inner, made):
        self.inner, self.made, self.mass = inner, made, inner.mass

    def __call__(self, segment):
        self.made.append(self.inner(segment))
        return self.made[-1]


def same(one, other):
    return one.lengths == other.lengths and all(
        torch.equal(a, b)
        for layer in range(one.layers)
        for a, b in zip(one.layer(layer), other.layer(layer), strict=True)
    )


@pytest.mark.parametrize("spec", SPECS)
def test_another_prompt_for_one_agent_leaves_the_states_of_the_others_alone(adapter, spec):
    def handed(topology, first):
        prompts = prompt_set(first, "Recall what {question} needs", "Run {question}", topology=topology)
        return relays(make_chain(adapter, prompts, spec, kv_budget=8), asked()[0])

    before, after = (handed("hierarchical", first) for first in ("Count: {question}", "Add up: {question}"))
    assert [same(a, b) for a, b in zip(before, after, strict=True)] == [False, True, True]
    before, after = (handed("sequential", first) for first in ("Count: {question}", "Add up: {question}"))
    assert [same(a, b) for a, b in zip(before, after, strict=True)] == [False, False, False]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("positions", ["timeline", "compact"])
def test_texts_are_the_same_at_every_batch_size_and_through_messages(adapter, spec, positions):
    chain = make_chain(adapter, HIERARCHY, spec, kv_budget=8, positions=positions)
    alone = answers(chain, 1)
    assert len(set(alone.values())) > 1
    assert answers(chain, 3) == alone
    wired = make_chain(adapter, HIERARCHY, spec, kv_budget=8, positions=positions, transport="wire")
    assert answers(wired, 4) == alone


def test_the_topology_and_the_other_agents_change_what_is_said(adapter):
    thinkers = [agent.prompt for agent in HIERARCHY.thinkers]
    texts = [
        answers(make_chain(adapter, prompts), 4)
        for prompts in (HIERARCHY, prompt_set(*thinkers), prompt_set(*thinkers[1:], topology="hierarchical"))
    ]
    assert texts[0] != texts[1] != texts[2] != texts[0]


@pytest.mark.parametrize("positions", ["timeline", "compact"])
@pytest.mark.parametrize("spec", SPECS)
def test_the_joined_relay_holds_every_state_at_its_new_position(adapter, spec, positions):
    chain = make_chain(adapter, HIERARCHY, spec, kv_budget=8, positions=positions)
    parts = relays(chain, asked()[0])
    before = [[tensor.clone() for layer in range(3) for tensor in part.layer(layer)] for part in parts]
    joined = side_by_side(parts, Rotation.of(adapter), compact=positions == "compact")
    sizes = [part.lengths[0] if positions == "compact" else part.cursors[0] for part in parts]
    assert joined.lengths == (sum(part.lengths[0] for part in parts),)
    assert joined.cursors == (sum(part.cursors[0] for part in parts),)
    assert joined.prompt_states(0) == sum(part.prompt_states(0) for part in parts)
    start = 0
    for number, part in enumerate(parts):
        held = slice(start, start + part.lengths[0])
        shift = sum(sizes[:number])
        for layer in range(joined.layers):
            keys, values = joined.layer(layer)
            assert torch.equal(joined.positions[layer][:, :, held], part.positions[layer] + shift)
            assert torch.equal(values[:, :, held], part.layer(layer)[1])
            assert torch.equal(keys[:, :, held], part.layer(layer)[0]) == (shift == 0)
            # a turn keeps the length of every key
            torch.testing.assert_close(keys[:, :, held].norm(dim=-1), part.layer(layer)[0].norm(dim=-1))
        start = held.stop
    after = [[tensor for layer in range(3) for tensor in part.layer(layer)] for part in parts]
    assert all(torch.equal(a, b) for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=True))


def test_every_agents_message_is_counted_by_itself(adapter):
    chain = make_chain(adapter, HIERARCHY, "headwise", kv_budget=8)
    plan = chain.plan(asked()[0])
    ((_, record),) = chain.answer([plan], 1)
    assert record.relay_states == (4 + 8 + 4,) * 3
    assert record.kept_states == 3 * (4 + 8)
    assert record.latent_passes == 12
    alone = [
        next(
            make_chain(adapter, prompt_set(agent.prompt), "headwise", kv_budget=8).answer([plan_of(adapter, agent)], 1)
        )[1]
        for agent in HIERARCHY.thinkers
    ]
    assert record.relay_bytes == tuple(other.relay_bytes[0] for other in alone)


def plan_of(adapter, agent):
    return make_chain(adapter, prompt_set(agent.prompt), "headwise", kv_budget=8).plan(asked()[0])


@pytest.mark.parametrize("topology", ["sequential", "hierarchical"])
@pytest.mark.parametrize("thinkers", [0, 1, 2, 7])
def test_any_number_of_agents_is_valid(adapter, topology, thinkers):
    prompts = prompt_set(*(f"{number} {{question}}" for number in range(thinkers)), topology=topology)
    chain = make_chain(adapter, prompts, "h-obf", kv_budget=6)
    (plan,) = [chain.plan(question) for question in asked()[:1]]
    ((_, record),) = chain.answer([plan], 1)
    assert len(record.relay_bytes) == thinkers
    assert record.kept_states == ((4 * thinkers if topology == "hierarchical" else min(thinkers, 1) * 4) + 6 * thinkers)


def test_with_one_thinking_agent_the_topologies_are_one(adapter):
    one = [
        answers(make_chain(adapter, prompt_set("Plan {question}", topology=t)), 2)
        for t in ("sequential", "hierarchical")
    ]
    assert one[0] == one[1]


def test_an_oracle_looks_at_the_last_agent_that_reads(adapter):
    chain = make_chain(adapter, HIERARCHY, "headwise")
    plan = chain.plan(asked()[0])
    assert [chain._following(plan, index) for index in range(3)] == [plan.prompts[-1]] * 3
