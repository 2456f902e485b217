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


def written(adapter, raw, thought, *until):
    """The job of an answer that a model writes token by token, to its end or a stop string."""
    tokens = adapter.tokenizer(raw, add_special_tokens=False)["input_ids"]
    one = job([1], max_gen_toks=999, until=until, thought=thought)
    decoder = Decoder(adapter, 1)
    while len(one.tokens) < len(tokens):
        one.tokens.append(tokens[len(one.tokens)])
        if decoder._is_done(one):
            break
    return one


@pytest.mark.parametrize("close", ["<|stop|>", 261])
@pytest.mark.parametrize("end", ["until", "eos"])
def test_special_tokens_may_part_thought_and_answer(adapter, close, end):
    rest = {"until": ", too", "eos": "<|end|>"}[end]
    raw = "<|user|>a thought, with a comma<|stop|>an answer" + rest
    one = written(adapter, raw, Thought(open="<|user|>", close=close), ",")
    assert one.stop == end
    assert one.text[one.answer_start(adapter.tokenizer) :] == "an answer"


# the shape of gpt-oss's answers: messages whose headers stand between special tokens
CHANNEL = Thought(open="<|user|>", close="<|user|>final<|system|>")
HEADER = "<|user|>analysis<|system|>"
FINAL = "<|pad|>assistant<|user|>final<|system|>"


@pytest.mark.parametrize("stop", [",", "<|stop|>"])
def test_no_stop_string_counts_in_a_thought_whose_marks_special_tokens_part(adapter, stop):
    one = written(adapter, f"{HEADER}first{stop} then{FINAL}so{stop} or not<|end|>", CHANNEL, stop)
    without = stop if stop == "," else ""
    thought, said = f"<|user|>analysis<|system|>first{without} thenassistant", "<|user|>final<|system|>so"
    assert (one.stop, one.text) == ("until", thought + said)
    assert one.text[one.answer_start(adapter.tokenizer) :] == "so"


@pytest.mark.parametrize("stop", [",", "<|stop|>"])
def test_no_stop_string_counts_in_a_thought_that_never_ends(adapter, stop):
    one = written(adapter, f"{HEADER}first{stop} then{stop}<|end|>", CHANNEL, stop)
    assert one.stop == "eos"
    assert one.answer_start(adapter.tokenizer) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("Four, or so", "Four"),
        ("<|user|>final<|system|>Four, or so", "Four"),
        ("final, or not", "final"),  # a word, and no mark
        (", nothing", ""),
    ],
)
def test_without_a_thought_stop_strings_count_from_the_start(adapter, raw, text):
    one = written(adapter, raw, CHANNEL, ",")
    assert (one.stop, one.text[one.answer_start(adapter.tokenizer) :]) == ("until", text)


def test_a_beginning_like_that_of_a_mark_may_be_an_answer(adapter):
    one = written(adapter, "an, alibi", Thought(open="analysis", close="final"), ",")
    assert (one.stop, one.text) == ("until", "an")


def test_blanks_before_a_thought_are_no_answer(adapter):
    one = written(adapter, "\n<think>\nHm.\n</think>Four\nor so", Thought(), "\n")
    assert (one.stop, one.text) == ("until", "\n<think>\nHm.\n</think>Four")


def test_a_thought_that_opens_again_is_over_at_its_last_end(adapter):
    one = written(adapter, "<think>a</think>b<think>c, d</think>e, f", Thought(), ",")
    assert (one.stop, one.text) == ("until", "<think>a</think>b<think>c")


def test_special_tokens_before_a_stop_string_are_left_out(adapter):
    one = written(adapter, "so<|user|> it is<|stop|>x", Thought(), "<|stop|>")
    assert (one.stop, one.text) == ("until", "so it is")
