"""The probe's documents hold their fact upstream and nowhere else, and its answers are read as a person would."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.relay_probe import (
    CANDIDATES,
    FACT_TYPES,
    UPSTREAM_MARK,
    documents,
    rank_of,
    read_answer,
    split_upstream,
)


def test_the_same_seed_gives_the_same_documents_and_more_only_add() -> None:
    assert documents(40, seed=3) == documents(60, seed=3)[:40]
    assert documents(8, seed=3) != documents(8, seed=4)


def test_only_the_upstream_part_holds_the_fact() -> None:
    for doc in documents(80):
        upstream, question = split_upstream(doc["text"])
        assert (upstream, question) == (doc["upstream"], doc["question"])
        assert upstream.count(doc["answer"]) == 1
        assert doc["answer"] not in question


def test_types_are_asked_in_turn_and_distances_vary() -> None:
    docs = documents(80)
    assert [doc["fact_type"] for doc in docs[:5]] == [*FACT_TYPES, FACT_TYPES[0]]
    assert {doc["distance"] for doc in docs} == set(range(14))


def test_distance_counts_the_sentences_that_follow() -> None:
    for doc in documents(20):
        lines = doc["upstream"].splitlines()
        holding = next(index for index, line in enumerate(lines) if doc["answer"] in line)
        assert doc["distance"] == len(lines) - 1 - holding


def test_candidates_are_different_and_one_of_them_is_another_fact_of_the_notes() -> None:
    for doc in documents(80):
        assert len(set(doc["candidates"])) == CANDIDATES
        assert doc["answer"] in doc["candidates"]
        assert sum(candidate in doc["upstream"] for candidate in doc["candidates"]) >= 2


def test_notes_grow_with_facts_and_distractors() -> None:
    few, many = documents(1, facts_per_type=1, distractors=0)[0], documents(1, facts_per_type=7, distractors=30)[0]
    assert len(few["upstream"].splitlines()) == 2 + 4
    assert len(many["upstream"].splitlines()) == 2 + 28 + 30


@pytest.mark.parametrize("settings", [{"facts_per_type": 0}, {"facts_per_type": 8}, {"distractors": -1}, {"count": -1}])
def test_numbers_out_of_range_are_refused(settings: dict[str, int]) -> None:
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"{name}={settings[name]}: allowed are"):
        documents(**settings)


def test_a_text_without_the_mark_is_for_everybody() -> None:
    assert split_upstream("What is 1 + 1?") == ("What is 1 + 1?", "What is 1 + 1?")
    assert split_upstream(f"notes{UPSTREAM_MARK}question") == ("notes", "question")


@pytest.mark.parametrize(
    ("response", "read"),
    [
        ("Red.", "red"),
        ("The door is painted **Blue**", "blue"),
        ("It is not red but blue", "blue"),
        ("reddish", None),
        ("", None),
        ("I do not know", None),
    ],
)
def test_colours_are_read(response: str, read: str | None) -> None:
    assert read_answer(response, ["red", "blue"]) == read


@pytest.mark.parametrize(
    ("response", "read"),
    [
        (r"\boxed{1234}", "1234"),
        ("1,234", "1234"),
        ("12345", None),
        ("rope, anchor and the drum", "rope, anchor, drum"),
        ("anchor, rope, drum", None),
    ],
)
def test_numbers_and_lists_are_read(response: str, read: str | None) -> None:
    assert read_answer(response, ["1234", "rope, anchor, drum"]) == read


def test_every_answer_reads_back() -> None:
    for doc in documents(80):
        assert read_answer(f"The answer is: {doc['answer'].upper()}!", doc["candidates"]) == doc["answer"]


def test_ranks_count_ties_against_the_answer() -> None:
    assert rank_of("b", ["a", "b", "c"], [-1.0, -0.5, -2.0]) == 1
    assert rank_of("b", ["a", "b", "c"], [-0.5, -0.5, -2.0]) == 2
