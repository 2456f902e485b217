"""The chain as a whole: lossless where it must be, and the same whatever the batch."""

import weakref
from dataclasses import replace

import chains
import pytest
import torch
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.chain import Chain, Question
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings
from lm_eval_latentmas.rollout import prefill
from lm_eval_latentmas.sampling import Generation

QUESTIONS = ["What is 2 + 2?", "Name a colour of the rainbow, please.", "Why?", "How long is a piece of string?"]


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


@pytest.fixture
def prompts(tmp_path):
    """Short prompts: a byte tokenizer makes the package's own ones long."""
    path = tmp_path / "prompts.yaml"
    path.write_text(
        "system: Be brief.\n"
        "agents:\n"
        "  - {name: planner, prompt: 'Plan: {question}'}\n"
        "  - {name: critic, prompt: 'Review the plan for {question} now'}\n"
        "  - {name: refiner, prompt: 'Refine: {question}'}\n"
        "  - {name: judger, prompt: 'Answer {question} {answer_form}'}\n"
        "answer_styles: {free: 'Say it.'}\n"
        "tasks: {'*': free}\n"
    )
    return load_prompts(str(path))


def chain(adapter, prompts, spec="full", *, max_length=4096, seed=7, **settings):
    relay = {k: settings.pop(k) for k in ("kv_budget", "sink_size", "pca_rank", "svd") if k in settings}
    settings = ChainSettings(compressor=spec, hand_off=RelaySettings(**relay), **({"latent_steps": 4} | settings))
    return Chain(adapter, compressor(spec, settings.hand_off), prompts, settings, max_length=max_length, seed=seed)


def questions(**generation):
    generation = Generation(**({"max_gen_toks": 12} | generation))
    return [Question("demo", i, 0, text, generation) for i, text in enumerate(QUESTIONS)]


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 4])
def test_full_relay_without_latent_steps_equals_one_dense_forward(adapter, prompts, batch):
    made = chain(adapter, prompts, latent_steps=0)
    plans = [made.plan(question) for question in questions()][:batch]
    handed = made.think(plans)
    for plan, left in zip(plans, handed, strict=True):
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
        logits = adapter.logits(prefill(adapter, cache, [plan.prompts[-1]]))[0]
        tokens = torch.tensor([[token for prompt in plan.prompts for token in prompt]])
        torch.testing.assert_close(logits, adapter.model(tokens).logits[0, -1], atol=1e-4, rtol=1e-4)


def answers(made, batch, **generation):
    plans = [made.plan(question) for question in questions(**generation)]
    return {plan.question.doc_id: record.text for plan, record in made.answer(plans, batch)}


@pytest.mark.parametrize("spec", ["full", "gen", "headwise", "layerwise", "h-obf", "l-obf"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_p": 0.95}])
@pytest.mark.parametrize("positions", ["timeline", "compact"])
def test_texts_are_the_same_at_every_batch_size(adapter, prompts, spec, sampling, positions):
    made = chain(adapter, prompts, spec, kv_budget=8, positions=positions)
    alone = answers(made, 1, **sampling)
    assert answers(made, 3, **sampling) == alone
    assert answers(made, 8, **sampling) == alone


def test_compressors_change_what_the_judger_reads(adapter, prompts):
    relays = {}
    for spec in ("full", "gen", "headwise", "layerwise", "h-obf", "l-obf"):
        made = chain(adapter, prompts, spec, kv_budget=8)
        relays[spec] = made.think([made.plan(questions()[0])])[0].relay
    assert relays["gen"].lengths[0] == 4 + 3 * 4
    assert relays["headwise"].lengths[0] == relays["l-obf"].lengths[0] == 4 + 3 * (8 + 4)
    assert relays["full"].lengths[0] > relays["headwise"].lengths[0]
    for plain, filled in (("headwise", "h-obf"), ("layerwise", "l-obf")):
        first = slice(0, 4 + 8 + 4)  # what the first agent left; later agents read different values already
        (plain_keys, plain_values), (keys, values) = relays[plain].layer(0), relays[filled].layer(0)
        torch.testing.assert_close(plain_keys[:, :, first], keys[:, :, first])
        assert not torch.allclose(plain_values[:, :, first], values[:, :, first])


def test_the_records_count_what_travelled(adapter, prompts):
    made = chain(adapter, prompts, "headwise", kv_budget=8)
    plan = made.plan(questions()[0])
    ((_, record),) = made.answer([plan], 1)
    assert record.prompt_tokens == sum(len(prompt) for prompt in plan.prompts[:3])
    assert record.kept_states == 4 + 3 * 8
    assert record.relay_states == (4 + 8 + 4, 4 + 2 * 12, 4 + 3 * 12)
    assert record.latent_passes == 12
    assert record.as_dict()["rho"] == record.kept_states / record.prompt_tokens
    assert all(size > 0 for size in record.relay_bytes)
    assert set(record.seconds) == {"latent", "compression", "decoding"}


def test_a_relay_read_twice_gives_the_same_text(adapter, prompts):
    made = chain(adapter, prompts, "h-obf", kv_budget=8)
    plan = made.plan(questions()[0])
    relay = made.think([plan])[0].relay
    before = [tensor.clone() for index in range(relay.layers) for tensor in relay.layer(index)]
    logits = []
    for _ in range(2):
        cache = LiveCache.from_relay(relay, relay.cursors, reserve=200)
        with torch.inference_mode():
            logits.append(adapter.logits(prefill(adapter, cache, [plan.prompts[-1]])))
    assert torch.equal(*logits)
    after = [tensor for index in range(relay.layers) for tensor in relay.layer(index)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_new_tokens_are_clamped_and_a_question_that_cannot_fit_is_refused(adapter, prompts):
    used = sum(map(len, chain(adapter, prompts).plan(questions()[0]).prompts)) + 12
    plan = chain(adapter, prompts, max_length=used + 5).plan(questions(max_gen_toks=50)[0])
    assert plan.clamped
    assert plan.generation.max_gen_toks == 5
    with pytest.raises(ValueError, match=rf"document 0: prompts .* need {used} positions, and the model has {used}"):
        chain(adapter, prompts, max_length=used).plan(questions()[0])


@pytest.mark.parametrize("budget", [0, 1, 10_000])
@pytest.mark.parametrize("spec", ["headwise", "layerwise", "h-obf", "l-obf"])
def test_extreme_budgets_run(adapter, prompts, spec, budget):
    made = chain(adapter, prompts, spec, kv_budget=budget)
    texts = answers(made, 4)
    if budget == 0:
        assert texts == answers(chain(adapter, prompts, "gen"), 4)
    if budget == 10_000:
        assert texts == answers(chain(adapter, prompts, "full"), 4)


def test_a_chain_of_one_agent_relays_nothing(adapter, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("agents:\n  - {name: judger, prompt: 'Answer {question}'}\n")
    made = chain(adapter, load_prompts(str(path)))
    (plan,) = [made.plan(question) for question in questions()[:1]]
    ((_, record),) = made.answer([plan], 1)
    expected = tiny_model(attention="sdpa").generate(
        torch.tensor([plan.prompts[0]]), max_new_tokens=12, do_sample=False, eos_token_id=sorted(adapter.eos_ids)
    )[0, len(plan.prompts[0]) :]
    assert record.text == adapter.tokenizer.decode(expected, skip_special_tokens=True)
    assert record.relay_bytes == ()


def test_a_non_finite_state_names_task_document_agent_and_step(prompts):
    broken = ModelAdapter(tiny_model(), byte_tokenizer())
    with torch.no_grad():
        broken.model.model.norm.weight[:] = float("inf")
    made = chain(broken, prompts)
    with pytest.raises(RuntimeError, match="task demo, document 0, agent planner: non-finite state at step 0"):
        made.think([made.plan(questions()[0])])


@torch.no_grad()
def test_the_lossless_relay_also_goes_through_messages(adapter, prompts):
    made = chain(adapter, prompts, latent_steps=0, transport="wire")
    plans = [made.plan(question) for question in questions()]
    for plan, left in zip(plans, made.think(plans), strict=True):
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
        logits = adapter.logits(prefill(adapter, cache, [plan.prompts[-1]]))[0]
        tokens = torch.tensor([[token for prompt in plan.prompts for token in prompt]])
        torch.testing.assert_close(logits, adapter.model(tokens).logits[0, -1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("spec", ["full", "h-obf", "layerwise+obf+int8", "full+int4", "layerwise+merge"])
def test_texts_and_bytes_are_the_same_through_messages(adapter, prompts, spec):
    def run(transport):
        made = chain(adapter, prompts, spec, kv_budget=8, transport=transport)
        return {
            plan.question.doc_id: (record.text, record.relay_bytes)
            for plan, record in made.answer([made.plan(question) for question in questions()], 3)
        }

    assert run("wire") == run("memory")


def test_no_relay_is_the_judger_alone(adapter, prompts):
    made = chain(adapter, prompts, relay="none")
    plans = [made.plan(question) for question in questions()]
    assert [len(plan.prompts) for plan in plans] == [1] * 4
    records = {plan.question.doc_id: record for plan, record in made.answer(plans, 2)}
    for plan in plans:
        expected = tiny_model(attention="sdpa").generate(
            torch.tensor([plan.prompts[0]]), max_new_tokens=12, do_sample=False, eos_token_id=sorted(adapter.eos_ids)
        )[0, len(plan.prompts[0]) :]
        record = records[plan.question.doc_id]
        assert record.text == adapter.tokenizer.decode(expected, skip_special_tokens=True)
        assert (record.prompt_tokens, record.latent_passes, record.relay_bytes) == (0, 0, ())


def test_shuffled_relays_come_from_another_document(adapter, prompts):
    made, asked = chain(adapter, prompts, relay="shuffled"), questions()
    partners = made.thought_about(asked)
    assert sorted(partner.doc_id for partner in partners) == [0, 1, 2, 3]
    assert all(partner.doc_id != question.doc_id for partner, question in zip(partners, asked, strict=True))
    assert made.thought_about(asked[::-1])[::-1] == partners
    plan, own = made.plan(asked[0], thinking_about=partners[0]), made.plan(asked[0])
    assert plan.prompts[-1] == own.prompts[-1]
    assert plan.prompts[:-1] == made.plan(partners[0]).prompts[:-1] != own.prompts[:-1]
    assert chain(adapter, prompts).thought_about(asked) == asked
    with pytest.raises(ValueError, match="it takes at least two"):
        made.thought_about(asked[:1])


def test_a_marked_text_is_shown_in_parts(adapter, prompts):
    from lm_eval_latentmas.relay_probe import UPSTREAM_MARK

    made = chain(adapter, prompts)
    question = Question("probe", 0, 0, f"The door is red.{UPSTREAM_MARK}Which colour?", Generation())
    *thinkers, judger = [adapter.tokenizer.decode(prompt) for prompt in made.plan(question).prompts]
    assert all("The door is red." in text and "Which colour?" not in text for text in thinkers)
    assert "Which colour?" in judger
    assert "The door is red." not in judger


@torch.no_grad()
def test_the_oracle_mass_is_the_next_prompts_attention(adapter, prompts):
    made = chain(adapter, prompts, "oracle", kv_budget=8)
    seen = []
    compress = made.compressor

    class Spy:
        mass = compress.mass

        def __call__(self, segment):
            seen.append(segment)
            return compress(segment)

    made.compressor = Spy()
    plans = [made.plan(question) for question in questions()][:2]
    made.think(plans)
    eager = tiny_model(attention="eager")
    fed = made.seats[0].space
    for row, plan in enumerate(plans):
        first, second = plan.prompts[:2]
        cache = LiveCache(adapter.layers, 1)
        hidden = prefill(adapter, cache, [first])
        vectors = []
        for _ in range(4):
            vectors.append(fed.to_input(hidden))
            with cache.writing([1], 1, adapter.device) as positions:
                hidden = adapter.forward(vectors[-1][:, None], positions, cache)[:, -1]
        embeds = torch.cat([adapter.embed(torch.tensor(first)), *vectors, adapter.embed(torch.tensor(second))])
        weights = eager.model(inputs_embeds=embeds[None], output_attentions=True).attentions
        held = len(first) + 4
        for layer, layer_weights in enumerate(weights):
            expected = layer_weights[0, :, held:, :held].reshape(2, 2, -1, held).sum(dim=(1, 2))
            torch.testing.assert_close(seen[0].mass[layer][row, :, :held], expected, atol=1e-4, rtol=1e-4)


def test_a_relay_is_let_go_of_once_the_judger_has_read_it(adapter, prompts):
    made, relays = chain(adapter, prompts), []
    think = made.think

    def noted(plans):
        handed = think(plans)
        relays.extend(weakref.ref(left.relay) for left in handed)
        return handed

    made.think = noted
    answers = made.answer([made.plan(question) for question in questions()], 1)
    next(answers)
    assert [relay() for relay in relays] == [None]


class Elsewhere(Chain):
    """Thoughts come from elsewhere, after they were looked for a few times."""

    looks = 0

    @property
    def has_thought(self):
        self.looks += 1
        return self.looks > 5


def test_a_thought_that_comes_while_others_decode_is_taken_in_before_they_end(adapter):
    lengths = [2, 60, 4, 4]
    questions = [
        replace(question, generation=Generation(max_gen_toks=length))
        for question, length in zip(chains.asked(), lengths, strict=True)
    ]

    def told(kind):
        chain = chains.make_chain(adapter, kind=kind)
        events, texts = [], {}
        plans = [chain.plan(question) for question in questions]
        for plan, record in chain.answer(plans, 2, progress=events.append):
            events.append(plan.question.doc_id)
            texts[plan.question.doc_id] = record.text
        return events, texts

    events, texts = told(Elsewhere)
    assert texts == told(Chain)[1]
    # the first answer ends and leaves a row free, for which a thought comes before the long one has ended
    assert events == ["thinking", "answering", 0, "thinking", "answering", 2, "answering", 3, 1]
