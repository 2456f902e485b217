"""Scored continuations: equal to a dense forward where nothing is lost, independent of batches, read-only."""

import pytest
import torch
from chains import CHAIN, CONTINUATIONS, HIERARCHY, asked, given, make_chain
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.continuations import placed, reply_opening
from lm_eval_latentmas.likelihood import score, score_continuations
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import NonFiniteState

TEMPLATES = {
    "plain": ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}<|assistant|>", ""),
    "blank": ("{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}[assistant]", " "),
    "closed thought": (
        "{% for m in messages %}{{ m['role'] }}:{% if m['role'] == 'assistant' %}<think></think>{% endif %}"
        "{{ m['content'] }}{% endfor %}assistant:",
        "<think></think>",
    ),
    "open thought": (
        "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}{% endfor %}assistant:<think>\n",
        "\n</think>\n\n",
    ),
}


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def scores(chain, batch, questions=None):
    plans = [chain.plan(question) for question in questions or given()]
    return {plan.question.doc_id: record for plan, record in score(chain, plans, batch)}


@torch.no_grad()
def dense(adapter, context, continuation):
    """The score of a continuation behind a context, by one forward pass of the model as it is."""
    logits = adapter.model(torch.tensor([[*context, *continuation]])).logits[0, len(context) - 1 : -1].float()
    wanted = torch.tensor(continuation)
    chosen = logits.log_softmax(-1).gather(-1, wanted[:, None])
    return float(chosen.sum()), bool((logits.argmax(-1) == wanted).all())


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_with_a_full_relay_and_no_latent_steps_scores_equal_one_dense_forward(adapter, batch):
    chain = make_chain(adapter, latent_steps=0)
    plans = [chain.plan(question) for question in given()]
    for plan, record in score(chain, plans, batch):
        context = [token for prompt in plan.prompts for token in prompt]
        for tokens, (value, greedy) in zip(plan.continuations, record.scores, strict=True):
            expected, likeliest = dense(adapter, context, tokens)
            assert value == pytest.approx(expected, abs=1e-4)
            assert greedy == likeliest


def test_what_greedy_decoding_writes_is_greedy_and_nothing_else_is(adapter):
    chain = make_chain(adapter, mode="single")
    (plan,) = [chain.plan(question) for question in given()[:1]]
    with torch.no_grad():
        context, written = list(plan.prompts[-1]), []
        for _ in range(3):
            written.append(int(adapter.model(torch.tensor([[*context, *written]])).logits[0, -1].argmax()))
    other = [*written[:-1], (written[-1] + 1) % 256]
    plan = plan.__class__(**{**vars(plan), "continuations": (tuple(written), tuple(other))})
    (((_, first), (_, second)),) = score_continuations(adapter, chain.think([plan]), 2)
    assert (first, second) == (True, False)


@pytest.mark.parametrize("prompts", [CHAIN, HIERARCHY], ids=["sequential", "hierarchical"])
@pytest.mark.parametrize(
    "settings", [{}, {"spec": "h-obf", "kv_budget": 6}, {"spec": "gen+int8"}, {"mode": "text", "text_tokens": 5}]
)
def test_scores_are_the_same_at_every_batch_size(adapter, prompts, settings):
    chain = make_chain(adapter, prompts, **settings)
    alone = scores(chain, 1)
    for batch in (2, 8):
        for doc_id, record in scores(chain, batch).items():
            assert [value for value, _ in record.scores] == pytest.approx(
                [value for value, _ in alone[doc_id].scores], rel=1e-4
            )
            assert record.relay_bytes == alone[doc_id].relay_bytes


def test_a_continuation_scores_the_same_in_any_company(adapter):
    chain = make_chain(adapter, spec="h-obf", kv_budget=6)
    together = scores(chain, 4)
    for place, continuation in enumerate(CONTINUATIONS):
        for doc_id, record in scores(chain, 4, given(continuation)).items():
            assert record.scores[0][0] == pytest.approx(together[doc_id].scores[place][0], abs=1e-4)


def test_compressors_and_latent_steps_change_the_scores(adapter):
    full, gen, longer = (
        scores(make_chain(adapter, spec=s, latent_steps=n), 4)[0].scores[0][0]
        for s, n in (("full", 4), ("gen", 4), ("full", 9))
    )
    assert abs(full - gen) > 1e-3
    assert abs(full - longer) > 1e-3


def test_all_continuations_of_a_context_share_one_chain(adapter, monkeypatch):
    chain = make_chain(adapter)
    thought = []
    think = chain.think
    monkeypatch.setattr(chain, "think", lambda plans: thought.extend(plans) or think(plans))
    assert len(scores(chain, 2)) == len(thought) == 4


def test_the_judger_is_told_to_go_on_and_reads_the_question(adapter):
    chain = make_chain(adapter)
    scored, written = (chain.plan(questions[0]) for questions in (given(), asked()))
    assert scored.prompts[:-1] == written.prompts[:-1]
    assert adapter.tokenizer.decode(scored.prompts[-1]).endswith("Answer What is 2 + 2? Go on.<|end|><|assistant|>")
    assert adapter.tokenizer.decode(written.prompts[-1]).endswith("Answer What is 2 + 2? Say it.<|end|><|assistant|>")


def test_the_records_count_what_travelled_and_that_nothing_was_decoded(adapter):
    chain = make_chain(adapter, spec="headwise", kv_budget=8)
    record, decoded = scores(chain, 1)[0], next(chain.answer([chain.plan(asked()[0])], 1))[1]
    same = ("prompt_tokens", "latent_passes", "kept_states", "relay_bytes", "relay_states")
    assert [getattr(record, name) for name in same] == [getattr(decoded, name) for name in same]
    assert (record.stop, record.decoded_tokens, record.truncated, record.text) == ("scored", 0, False, "")
    assert set(record.seconds) == {"latent", "compression", "scoring"}


def test_a_continuation_that_does_not_fit_is_an_error_with_the_numbers(adapter):
    used = sum(map(len, make_chain(adapter).plan(given("x")[0]).prompts)) + 12
    assert scores(make_chain(adapter, max_length=used + 4), 1, given("four")[:1])
    message = rf"document 0: .* need {used} positions, and the model has {used + 4}, and the longest .* has 6 tokens"
    with pytest.raises(ValueError, match=message):
        make_chain(adapter, max_length=used + 4).plan(given("x", "eleven")[0])


def test_a_non_finite_score_names_the_document():
    broken = ModelAdapter(tiny_model(), byte_tokenizer())
    with torch.no_grad():
        broken.model.lm_head.weight[3] = float("nan")
    with pytest.raises(NonFiniteState, match="task demo, document 0, agent judger: non-finite"):
        scores(make_chain(broken), 2)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_reply_stands_where_the_chat_template_puts_it(name):
    template, opening = TEMPLATES[name]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert reply_opening(ModelAdapter(tiny_model(), tokenizer)) == opening


def test_without_a_template_a_reply_follows_a_blank():
    assert reply_opening(ModelAdapter(tiny_model(), byte_tokenizer(chat=False))) == " "


def text(adapter, tokens):
    return adapter.tokenizer.decode(list(tokens))


def test_leading_blanks_part_a_continuation_from_its_context_and_are_no_part_of_a_reply(adapter):
    _, (spaced, plain, blank) = placed(adapter, "<|assistant|>", [" Mars", "Mars", " "], verbatim=False)
    assert spaced == plain
    assert (text(adapter, plain), text(adapter, blank)) == ("Mars", " ")


def test_behind_a_prefix_a_continuation_is_taken_as_it_is(adapter):
    prompt, (spaced, plain) = placed(adapter, "<|assistant|>It is", [" Mars", "Mars"], verbatim=True)
    assert text(adapter, prompt) == "<|assistant|>It is"
    assert (text(adapter, spaced), text(adapter, plain)) == (" Mars", "Mars")
    plan = make_chain(adapter).plan(given(" Mars", prefix="It is")[0])
    assert text(adapter, plan.prompts[-1]).endswith("<|assistant|>It is")
    assert text(adapter, plan.continuations[0]) == " Mars"


class Merging:
    """A tokenizer that joins a blank to the word behind it, as most do."""

    def encode(self, text):
        return [word for word in text.replace(" ", "| ").split("|") if word]


def test_a_blank_at_the_end_of_the_text_belongs_to_the_continuation():
    prompt, continuations = placed(Merging(), "It is ", ["Mars", "Io"], verbatim=True)
    assert prompt == ("It", " is")
    assert continuations == ((" Mars",), (" Io",))


def test_a_continuation_without_tokens_is_refused(adapter):
    with pytest.raises(ValueError, match="continuation '' has no tokens"):
        placed(adapter, "<|assistant|>", ["x", ""], verbatim=False)
