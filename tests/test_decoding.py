"""Decoding: equal to ``generate``, independent of neighbours, stopped where it should."""

import pytest
import torch
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.decoding import Decoder, Job, Thought
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.sampling import Draws, Generation

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [40, 41, 42], [99, 98, 97, 96, 95], [17, 18], [70, 71, 72, 73, 74, 75]]


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def job(prompt, *, seed=0, thought=None, **generation):
    generation = {"max_gen_toks": 20, **generation}
    return Job(prompt, None, list(prompt), 0, Generation(**generation), Draws(seed), thought or Thought())


def decoded(adapter, jobs, rows, *, stride=None):
    decoder, waiting, done = Decoder(adapter, rows, stride=stride), list(jobs), []
    while waiting or decoder.busy:
        finished = []
        if waiting and decoder.free:
            admitted, waiting = waiting[: decoder.free], waiting[decoder.free :]
            finished = decoder.admit(admitted)
        done += finished or decoder.run()
    assert {id(j) for j in done} == {id(j) for j in jobs}
    assert len(done) == len(jobs)
    return jobs


def test_greedy_equals_generate(adapter):
    for prompt, out in zip(PROMPTS, decoded(adapter, [job(p) for p in PROMPTS], 3), strict=True):
        expected = tiny_model(attention="sdpa").generate(
            torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=sorted(adapter.eos_ids)
        )[0, len(prompt) :]
        assert out.tokens == expected.tolist()


@pytest.mark.parametrize("stride", [2, 5, 50])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.9}])
def test_texts_do_not_depend_on_how_often_tokens_are_looked_at(adapter, stride, sampling):
    (plain,) = decoded(adapter, [job(PROMPTS[1], max_gen_toks=30)], 1)
    stops = {"until": (plain.text[6:8],)}

    def run(stride):
        jobs = [job(prompt, seed=i, max_gen_toks=6 + 8 * i, **sampling, **stops) for i, prompt in enumerate(PROMPTS)]
        return [(j.tokens, j.text, j.stop) for j in decoded(adapter, jobs, 3, stride=stride)]

    assert run(stride) == run(1)


def test_rows_that_are_done_cost_nothing(adapter, monkeypatch):
    slots = []
    forward = ModelAdapter.forward

    def counted(self, embeds, positions, cache):
        slots.append(tuple(embeds.shape[:2]))
        return forward(self, embeds, positions, cache)

    monkeypatch.setattr(ModelAdapter, "forward", counted)
    lengths = [4, 9, 14, 19, 24]
    decoded(adapter, [job(p, max_gen_toks=n) for p, n in zip(PROMPTS, lengths, strict=True)], 3)
    # the first token of an answer comes from its prompt's pass, every other one from a slot of its own
    assert sum(rows for rows, width in slots if width == 1) == sum(lengths) - len(lengths)


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.9}])
def test_texts_do_not_depend_on_rows_or_order(adapter, rows, sampling):
    def run(order, rows):
        # budgets differ, so that rows finish and are refilled at different times
        jobs = {i: job(PROMPTS[i], seed=i, max_gen_toks=4 + 5 * i, **sampling) for i in order}
        decoded(adapter, list(jobs.values()), rows)
        return {i: (j.tokens, j.text, j.stop) for i, j in jobs.items()}

    assert run([3, 1, 4, 0, 2], rows) == run([0, 1, 2, 3, 4], 1)


def test_every_end_token_stops(adapter):
    (plain,) = decoded(adapter, [job(PROMPTS[0])], 1)
    for position in (0, 3):
        adapter_eos = Decoder(adapter, 1)
        adapter_eos._eos = frozenset({plain.tokens[position], 999})
        one = job(PROMPTS[0])
        done = adapter_eos.admit([one])
        while not done:
            done = adapter_eos.run()
        first = plain.tokens.index(plain.tokens[position])
        assert one.stop == "eos"
        assert one.tokens == plain.tokens[: first + 1]
        assert one.text == adapter.tokenizer.decode(plain.tokens[:first], skip_special_tokens=True)


def test_until_cuts_the_text_and_the_budget_truncates(adapter):
    (plain,) = decoded(adapter, [job(PROMPTS[1], max_gen_toks=30)], 1)
    assert plain.stop == "length"
    text = plain.text
    stop = text[6:8]
    (cut,) = decoded(adapter, [job(PROMPTS[1], max_gen_toks=30, until=(stop,))], 1)
    assert cut.stop == "until"
    assert cut.text == text[: text.index(stop)]
    assert len(cut.tokens) < 30


def test_until_waits_for_the_end_of_the_thought(adapter):
    (plain,) = decoded(adapter, [job(PROMPTS[1], max_gen_toks=40)], 1)
    text = plain.text
    stop, close = text[3], text[12:15]
    assert stop in text[: text.index(close)]
    (cut,) = decoded(
        adapter,
        [job(PROMPTS[1], max_gen_toks=40, until=(stop,), thought=Thought(close=close, expected=True))],
        1,
    )
    end = text.index(close) + len(close)
    expected = text.find(stop, end)
    assert cut.text == (text if expected < 0 else text[:expected])
    assert len(cut.text) >= end


def test_a_non_finite_logit_names_the_sample(adapter):
    broken = ModelAdapter(tiny_model(), byte_tokenizer())
    with torch.no_grad():
        broken.model.lm_head.weight[:] = float("nan")
    with pytest.raises(RuntimeError, match=r"sample 7, agent judger: .*step 0"):
        Decoder(broken, 2).admit([Job("sample 7", None, [1, 2], 0, Generation(), Draws(0))])


@pytest.mark.parametrize("close", ["<|stop|>", 261])
@pytest.mark.parametrize("end", ["until", "eos"])
def test_special_tokens_may_part_thought_and_answer(adapter, close, end):
    rest = {"until": ", too", "eos": "<|end|>"}[end]
    written = adapter.encode("<|user|>a thought, with a comma<|stop|>an answer" + rest)
    one = job([1], max_gen_toks=99, until=(",",), thought=Thought(open="<|user|>", close=close))
    decoder = Decoder(adapter, 1)
    done = []
    while not done:
        one.tokens.append(written[len(one.tokens)])
        done = [one] if decoder._is_done(one) else []
    assert one.stop == end
    assert one.text[one.answer_start(adapter.tokenizer) :] == "an answer"
