"""Agents that hand on text: what each is shown, capped and counted; the same whatever the batch."""

import pytest
from chains import CHAIN, HIERARCHY, TEXTS, answers, asked, make_chain, prompt_set
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.decoding import Decoder, Job
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.sampling import Draws

SETS = pytest.mark.parametrize("prompts", [CHAIN, HIERARCHY], ids=["sequential", "hierarchical"])


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def text_chain(adapter, prompts=CHAIN, **settings):
    return make_chain(adapter, prompts, mode="text", **({"text_tokens": 6} | settings))


def answered(chain, **generation):
    ((plan, record),) = chain.answer([chain.plan(asked(**generation)[0])], 1)
    return [chain.adapter.tokenizer.decode(list(prompt)) for prompt in plan.prompts], record


def content(prompt):
    """What stands in the user's turn of a rendered prompt."""
    return prompt.split("<|user|>")[1].split("<|end|>")[0]


@SETS
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_p": 0.95}])
def test_texts_and_messages_are_the_same_at_every_batch_size(adapter, prompts, sampling):
    def run(batch):
        chain = text_chain(adapter, prompts)
        plans = [chain.plan(question) for question in asked(**sampling)]
        return {plan.question.doc_id: (record.text, record.messages) for plan, record in chain.answer(plans, batch)}

    alone = run(1)
    assert len(set(alone.values())) == len(TEXTS)
    assert run(3) == alone
    assert run(8) == alone


def test_every_agent_is_shown_the_messages_of_those_before_it(adapter):
    prompts, record = answered(text_chain(adapter))
    first, second, third = (f"Agent{n}:\n{text}" for n, text in enumerate(record.messages, 1))
    assert [content(prompt) for prompt in prompts] == [
        f"Plan: {TEXTS[0]} ",
        f"Review the plan for {TEXTS[0]} now {first}",
        f"Refine: {TEXTS[0]} {first}\n\n{second}",
        f"{first}\n\n{second}\n\n{third} Answer {TEXTS[0]} Say it.",
    ]


def test_side_by_side_only_the_last_agent_is_shown_messages(adapter):
    prompts, record = answered(text_chain(adapter, HIERARCHY))
    assert all("Agent" not in prompt for prompt in prompts[:-1])
    assert content(prompts[-1]).startswith("\n\n".join(f"Agent{n}:\n{t}" for n, t in enumerate(record.messages, 1)))


def test_an_agents_message_is_what_the_model_writes_for_its_prompt(adapter):
    chain = text_chain(adapter)
    plan = chain.plan(asked()[0])
    (left,) = chain.think([plan])
    for prompt, message in zip(left.plan.prompts[:-1], left.messages, strict=True):
        generation = plan.question.generation.__class__(max_gen_toks=6)
        decoder, job = Decoder(adapter, 1), Job("", None, list(prompt), 0, generation, Draws(0))
        done = decoder.admit([job]) or decoder.run()
        assert done[0].text.strip() == message


@SETS
def test_the_records_count_tokens_and_bytes_of_what_was_handed_on(adapter, prompts):
    rendered, record = answered(text_chain(adapter, prompts))
    labelled = [f"Agent{n}:\n{text}" for n, text in enumerate(record.messages, 1)]
    if prompts is CHAIN:
        labelled = ["\n\n".join(labelled[: n + 1]) for n in range(3)]
    assert record.relay_bytes == tuple(len(text.encode()) for text in labelled)
    assert record.message_tokens == (6, 6, 6)
    assert record.messages_truncated == 3
    assert record.prompt_tokens == sum(len(adapter.encode(text)) for text in rendered[:-1])
    assert record.judger_tokens == len(adapter.encode(rendered[-1]))
    assert (record.latent_passes, record.kept_states, record.relay_states) == (0, 0, ())
    assert set(record.seconds) == {"messages", "decoding"}


def test_the_answers_stop_strings_do_not_stop_a_message(adapter):
    _, free = answered(text_chain(adapter))
    letter = next(letter for letter in free.messages[0] if letter.isprintable())
    _, stopped = answered(text_chain(adapter), until=(letter,))
    assert stopped.messages == free.messages


def test_the_cap_and_the_seed_change_the_messages(adapter):
    _, six = answered(text_chain(adapter))
    _, three = answered(text_chain(adapter, text_tokens=3))
    assert three.message_tokens == (3, 3, 3)
    assert three.messages[0] != six.messages[0]
    hot = {"temperature": 1.5}
    assert answered(text_chain(adapter, seed=1), **hot)[1].messages != answered(text_chain(adapter), **hot)[1].messages


def test_room_is_kept_for_the_longest_messages(adapter):
    plan = text_chain(adapter).plan(asked()[0])
    used = len(plan.prompts[-1]) + 3 * 6
    with pytest.raises(
        ValueError, match=rf"the fullest of prompts .*at most 6 tokens each.* need {used} positions, .* text_tokens"
    ):
        text_chain(adapter, max_length=used).plan(asked()[0])
    assert text_chain(adapter, max_length=used + 5).plan(asked()[0]).generation.max_gen_toks == 5


def test_messages_take_room_from_the_answer_by_their_real_length(adapter):
    chain = text_chain(adapter, max_length=200)
    (left,) = chain.think([chain.plan(asked(max_gen_toks=500)[0])])
    assert left.plan.clamped
    assert left.plan.generation.max_gen_toks == 200 - len(left.plan.prompts[-1])


def test_a_message_is_what_follows_the_thought(adapter):
    chain = text_chain(adapter)
    job = Job("", None, [1], 0, asked()[0].generation, Draws(0))
    for text, message in (("<think>no</think> yes ", "yes"), ("<think>no", "<think>no"), (" plain\n", "plain")):
        job.text = text
        assert chain._message(job) == message


@pytest.mark.parametrize("relay", ["none", "shuffled"])
def test_the_controls_apply_to_messages_too(adapter, relay):
    chain = text_chain(adapter, relay=relay)
    questions = asked()
    plans = [chain.plan(q, thinking_about=o) for q, o in zip(questions, chain.thought_about(questions), strict=True)]
    for left in chain.think(plans):
        said = content(adapter.tokenizer.decode(list(left.plan.prompts[-1])))
        if relay == "none":
            assert said == f" Answer {left.plan.question.text} Say it."
            assert left.messages == ()
        else:
            thought = adapter.tokenizer.decode(list(left.plan.prompts[0]))
            assert left.plan.question.text not in thought
            assert left.plan.question.text in said


@pytest.mark.parametrize("thinkers", [0, 1, 7])
def test_any_number_of_agents_is_valid(adapter, thinkers):
    prompts = prompt_set(*(f"{number} {{question}}" for number in range(thinkers)))
    _, record = answered(text_chain(adapter, prompts))
    assert len(record.messages) == len(record.relay_bytes) == thinkers


def test_alone_the_judger_wastes_no_pass_and_says_what_it_would_without_agents(adapter):
    single = make_chain(adapter, mode="single")
    alone = prompt_set()
    assert answers(single, 3) == answers(make_chain(adapter, alone), 3)
    _, record = answered(single)
    assert (record.prompt_tokens, record.latent_passes, record.relay_bytes) == (0, 0, ())
    assert set(record.seconds) == {"decoding"}
    assert record.as_dict()["rho"] is None
