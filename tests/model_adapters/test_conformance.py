"""What every family must show, on a tiny random model of it; a family is supported when it passes here."""

from __future__ import annotations

import pytest
import torch
from dense import NAME, dense
from families import FAMILIES, Family
from runs import Watched, WatchedCompressor, make_chain, questions
from tiny import byte_tokenizer

from lm_eval_latentmas.decoding import Decoder, Job
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters.families import FAMILIES as ADAPTERS
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.rollout import LatentSpace, prefill, step
from lm_eval_latentmas.sampling import Draws, Generation

# longer than the window of 8, and than the 16 positions after which one family's frequencies change
PROMPTS = [torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(size)).tolist() for size in (40, 21)]
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return Family(request.param)


def test_every_listed_family_is_tried_here():
    assert {values["model_type"] for values in FAMILIES.values()} == set(ADAPTERS)


@torch.no_grad()
def test_lossless_relay_equals_a_dense_forward(family):
    made = make_chain(family.adapter, "full", latent_steps=0)
    plans = [made.plan(question) for question in questions()]
    model = family.model()
    for plan, left in zip(plans, made.think(plans), strict=True):
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
        logits = family.adapter.logits(prefill(family.adapter, cache, [plan.prompts[-1]]))[0]
        tokens = torch.tensor([[token for prompt in plan.prompts for token in prompt]])
        torch.testing.assert_close(logits, model(tokens).logits[0, -1], **CLOSE)


@torch.no_grad()
def test_mass_equals_eager_attention(family):
    adapter = family.adapter
    space, cache = LatentSpace.of(adapter, realign=False), LiveCache(adapter.layers, len(PROMPTS))
    hidden, fed = prefill(adapter, cache, PROMPTS), []
    cache.track_mass()
    for _ in range(4):
        fed.append(space.to_input(hidden))
        hidden = step(adapter, cache, fed[-1])
    model = family.model()
    for row, prompt in enumerate(PROMPTS):
        embeds = torch.cat([adapter.embed(torch.tensor(prompt)), *(vector[row : row + 1] for vector in fed)])
        weights = model(inputs_embeds=embeds[None], output_attentions=True).attentions
        assert len(weights) == adapter.layers
        for layer, spent in enumerate(weights):
            heads = cache.keys[layer].shape[1]
            expected = spent[0, :, len(prompt) :].unflatten(0, (heads, -1)).sum(dim=(1, 2))
            torch.testing.assert_close(cache.mass[layer][row][:, : expected.shape[-1]], expected, **CLOSE)


@pytest.mark.parametrize("positions", ["timeline", "compact"])
def test_texts_are_the_same_at_every_batch_size(family, positions):
    def texts(rows):
        made = make_chain(family.adapter, "h-obf", positions=positions)
        plans = [made.plan(question) for question in questions()]
        return {plan.question.doc_id: record.text for plan, record in made.answer(plans, rows)}

    assert texts(3) == texts(1)


@pytest.mark.parametrize("positions", ["timeline", "compact"])
@pytest.mark.parametrize("selector", ["headwise", "layerwise"])
def test_eviction_equals_the_dense_model_with_the_dropped_keys_masked(family, selector, positions):
    adapter = Watched(family.adapter)
    made = make_chain(adapter, selector, positions=positions)
    made.compressor = watched = WatchedCompressor(made.compressor, adapter)
    list(made.answer([made.plan(questions()[0])], 1))
    places, states = torch.cat(adapter.positions), torch.cat(adapter.states)
    assert torch.equal(places, torch.arange(len(places))) == (positions == "timeline")

    reference = type(family.adapter)(family.model(NAME), byte_tokenizer())
    visible = _visible(family, watched, places)
    expected, weights = dense(reference, torch.cat(adapter.embeds), places, visible)
    torch.testing.assert_close(states, expected, **CLOSE)
    _assert_masses(watched, weights)

    # the comparison bites: with nothing dropped the judger reads something else
    whole, _ = dense(reference, torch.cat(adapter.embeds), places, _visible(family, watched, places, all_seen=True))
    first = watched.dropped[0][0]
    torch.testing.assert_close(states[:first], whole[:first], **CLOSE)
    assert (states[first:] - whole[first:]).abs().max() > 0.01
    per_head = any(not torch.equal(gone[0], gone[1]) for _, layers in watched.dropped for gone in layers)
    assert per_head == (selector == "headwise")


def _visible(family, watched, places, *, all_seen=False):
    """Per layer, which keys a query sees, (kv_heads, queries, keys): what came before, in the window, not dropped."""
    order = torch.arange(len(places))
    before = order[:, None] >= order
    visible = []
    for layer in range(family.adapter.layers):
        window = family.window(layer)
        seen = before if window is None else before & (places[:, None] - places < window)
        seen = seen.expand(watched.segments[0].keys[layer].shape[1], -1, -1).clone()
        for read, gone in () if all_seen else watched.dropped:
            seen[:, read:, :read] &= ~gone[layer][:, None]
        visible.append(seen)
    return visible


def _assert_masses(watched, weights):
    """Every agent's mass on its own prompt and latent states is the dense model's, from behind what was dropped."""
    for segment, (read, _) in zip(watched.segments, watched.dropped, strict=True):
        latent, own = segment.latent[0], segment.prompt[0] + segment.latent[0]
        for mass, spent in zip(segment.mass, weights, strict=True):
            expected = spent[:, read - latent : read, read - own : read].unflatten(0, (mass.shape[1], -1)).sum((1, 2))
            torch.testing.assert_close(mass[0, :, segment.history[0] :], expected, **CLOSE)


@torch.no_grad()
def test_a_relay_survives_the_wire(family):
    made = make_chain(family.adapter, "l-obf")
    plan = made.plan(questions()[0])
    relay = made.think([plan])[0].relay
    received = wire.decode(wire.encode(relay, fingerprint="tiny"), fingerprint="tiny")
    logits = []
    for held in (relay, received):
        cache = LiveCache.from_relay(held, held.cursors, reserve=len(plan.prompts[-1]))
        logits.append(family.adapter.logits(prefill(family.adapter, cache, [plan.prompts[-1]])))
    assert torch.equal(*logits)


def test_one_agent_decodes_what_generate_does(family):
    jobs = [Job(row, None, prompt, 0, Generation(max_gen_toks=12), Draws(0)) for row, prompt in enumerate(PROMPTS)]
    decoder = Decoder(family.adapter, len(jobs))
    done = decoder.admit(jobs)
    while len(done) < len(jobs):
        done += decoder.run()
    model = family.model()
    for prompt, job in zip(PROMPTS, jobs, strict=True):
        written = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=sorted(family.adapter.eos_ids)
        )
        assert job.tokens == written[0, len(prompt) :].tolist()


@torch.no_grad()
def test_a_pass_without_a_relay_is_transformers_own(family):
    """Plain scoring of padded rows, under our attention function and under eager attention."""
    rows, width = PROMPTS, max(map(len, PROMPTS))
    tokens = torch.tensor([row + row[-1:] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    ours, dense = (model(tokens, attention_mask=mask).logits for model in (family.adapter.model, family.model()))
    for row, prompt in enumerate(rows):
        torch.testing.assert_close(ours[row, : len(prompt)], dense[row, : len(prompt)], **CLOSE)


def test_bytes_per_state_are_those_of_the_cache(family):
    cache = LiveCache(family.adapter.layers, 1)
    prefill(family.adapter, cache, [PROMPTS[0]])
    assert cache.nbytes == len(PROMPTS[0]) * family.adapter.bytes_per_state
