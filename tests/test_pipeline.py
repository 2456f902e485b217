"""Pipelines of real processes: who has which agents, and the texts, scores and statistics of one process."""

import time
import weakref
from dataclasses import replace
from functools import partial

import pyarrow.parquet
import pytest
from chains import CHAIN, HIERARCHY, asked, given, make_chain
from rings import member, processes, written
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.likelihood import score
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.pipeline.shares import shares


def alone(spec="h-obf"):
    return make_chain(ModelAdapter(tiny_model(), byte_tokenizer()), spec=spec, kv_budget=8)


def scored(chain):
    plans = [chain.plan(question) for question in given()]
    return {plan.question.doc_id: record.scores for plan, record in score(chain, plans, 2)}


@pytest.mark.parametrize(("count", "spec"), [(2, "h-obf"), (3, "full+int8"), (4, "h-obf")])
def test_texts_bytes_and_states_are_those_of_one_process(tmp_path, count, spec):
    (kind, (found, _)), *others = processes(count, member, tmp_path, count, written, None, spec)
    assert kind == "returned"
    assert others == [("returned", None)] * (count - 1)
    expected = written(alone(spec))
    assert {doc: lasting for doc, (lasting, _) in found.items()} == {
        doc: lasting for doc, (lasting, _) in expected.items()
    }
    assert all(seconds == () for _, seconds in expected.values())
    leaving = [share[-1] for share in shares(True, CHAIN, count)[1:]]
    for _, seconds in found.values():
        assert len(seconds) == 3
        assert all(seconds[hop] > 0 for hop in leaving)


def nothing(chain):
    return list(chain.answer([], 4))


def test_a_run_with_nothing_left_to_do_ends(tmp_path):
    assert processes(2, member, tmp_path, 2, nothing) == [("returned", ([], None)), ("returned", None)]


def test_scores_are_those_of_one_process(tmp_path):
    ((_, (found, _)), _) = processes(2, member, tmp_path, 2, scored)
    expected = scored(alone())
    assert found.keys() == expected.keys()
    for doc, pairs in expected.items():
        assert [greedy for _, greedy in found[doc]] == [greedy for _, greedy in pairs]
        assert [value for value, _ in found[doc]] == pytest.approx([value for value, _ in pairs], abs=1e-4)


def noting(folder, rank, chain, ring=None):
    """Let a process note its hops, for a folder."""
    chain.diagnostics = HopDiagnostics(folder, chain.compressor, str)


def hops(folder):
    files = {name: sorted(folder.glob(f"{name}*.parquet")) for name in ("diagnostics", "prompts")}
    return {name: [pyarrow.parquet.read_table(path).to_pylist() for path in found] for name, found in files.items()}


def keyed(chain):
    plans = [chain.plan(question, f"key{question.doc_id}") for question in asked()]
    return len(list(chain.answer(plans, 2)))


def test_diagnostics_are_those_of_one_process(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    outcomes = processes(2, member, tmp_path, 2, keyed, partial(noting, str(tmp_path / "two")))
    assert outcomes == [("returned", (4, None)), ("returned", None)]
    single = alone()
    noting(str(tmp_path / "one"), 0, single)
    assert keyed(single) == 4
    one, two = hops(tmp_path / "one"), hops(tmp_path / "two")
    assert one["prompts"] == two["prompts"]
    assert len(one["diagnostics"]) == 4
    for expected, found in zip(one["diagnostics"], two["diagnostics"], strict=True):
        assert [(row["agent"], row["layer"], row["kept"]) for row in found] == [
            (row["agent"], row["layer"], row["kept"]) for row in expected
        ]
        assert [row["output_error"] for row in found] == pytest.approx(
            [row["output_error"] for row in expected], abs=1e-4
        )


def noting_much(folder, rank, chain, ring):
    """A message of half a megabyte more with every batch, over a slow way."""
    noting(folder, rank, chain)
    if rank:
        taken = chain.diagnostics.taken
        chain.diagnostics.taken = lambda keys: taken(keys) | {"more": [[], ["x" * 500_000]]}
        ring.channel._pace = lambda size: time.sleep(size / 1e6)


def relay_seconds(chain):
    ((_, record),) = chain.answer([chain.plan(asked()[0], "key")], 1)
    return record.relay_seconds, record.seconds["transport"]


def test_the_way_of_a_relay_is_timed_without_diagnostics(tmp_path):
    ((_, (found, _)), _) = processes(2, member, tmp_path, 2, relay_seconds, partial(noting_much, str(tmp_path)))
    hops, transport = found
    assert (tmp_path / "diagnostics-key.parquet").exists()
    assert 0 < hops[1] < 0.4
    assert transport < 0.4


def noting_turns(rank, chain, ring):
    """When this process's agents began and ended with every batch, on the clock that all processes share."""
    turns, advance = [], chain.advance

    def run(batch, until):
        began = time.monotonic()
        advance(batch, until)
        time.sleep(0.04 if rank else 0.16)
        turns.append((began, time.monotonic()))

    chain.advance = run
    return turns


def many_batches(chain):
    questions = [replace(question, repeat=repeat) for repeat in range(2) for question in asked()]
    return len(list(chain.answer([chain.plan(question) for question in questions], 1)))


def test_processes_work_on_several_batches_at_once_and_on_no_more_than_a_few(tmp_path):
    (_, (_, last)), (_, first) = processes(2, member, tmp_path, 2, many_batches, noting_turns)
    assert len(first) == len(last) == 8
    assert all(first[batch + 1][0] < last[batch][1] for batch in range(7))
    # one batch is worked on, one waits to be taken, one is on its way, and one more is done and waits for its turn
    assert all(first[batch + 4][0] > last[batch][0] - 0.02 for batch in range(4))


def noting_batches(rank, chain, ring):
    """Keep weak references to the batches of process 0."""
    advance, chain.batches = chain.advance, []

    def run(batch, until):
        chain.batches.append(weakref.ref(batch))
        advance(batch, until)

    chain.advance = run


def first_batch_alone(chain):
    thoughts = chain.thoughts([chain.plan(question) for question in asked()], 1)
    next(thoughts)
    return [batch() is None for batch in chain.batches]


def test_a_batch_is_let_go_of_and_an_evaluation_that_nobody_finishes_holds_no_process(tmp_path):
    outcomes = processes(2, member, tmp_path, 2, first_batch_alone, noting_batches, patience=20)
    assert outcomes == [("returned", ([True], None)), ("returned", None)]


def slow(rank, chain, ring):
    if rank == 1:
        adapter = chain.seats[0].adapter
        forward = adapter.forward

        def run(*arguments):
            time.sleep(0.15)
            return forward(*arguments)

        adapter.forward = run


def test_a_busy_process_is_not_taken_for_a_lost_one(tmp_path):
    # a batch takes two prefills and eight steps of 0.15 seconds each
    outcomes = processes(2, member, tmp_path, 2, one_answer, slow, "h-obf", 1.0)
    assert outcomes == [("returned", (1, None)), ("returned", None)]


def one_answer(chain):
    return len(list(chain.answer([chain.plan(asked()[0])], 1)))


# -- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "count", "expected"),
    [
        (True, 2, [[2, 3], [0, 1]]),
        (True, 3, [[3], [0, 1], [2]]),
        (True, 4, [[3], [0], [1], [2]]),
        ("agent1+agent2+agent3;judger", 2, [[3], [0, 1, 2]]),
        (" agent1 ; agent2 + agent3 ; judger", 3, [[3], [0], [1, 2]]),
    ],
)
def test_agents_are_shared_out_in_order_and_process_0_has_the_last(setting, count, expected):
    assert list(map(list, shares(setting, CHAIN, count))) == expected


@pytest.mark.parametrize(
    ("setting", "prompts", "count", "message"),
    [
        (True, CHAIN, 1, "there is one process; start more with torchrun"),
        (True, CHAIN, 5, "5 processes for 4 agents (agent1, agent2, agent3, judger); start 4 or fewer"),
        (True, HIERARCHY, 2, "work side by side"),
        ("agent1+agnet2;agent3+judger", CHAIN, 2, "unknown agent 'agnet2'; did you mean 'agent2'?"),
        ("agent2+agent1;agent3+judger", CHAIN, 2, "name every agent once and in order: agent1, agent2"),
        ("agent1;agent3+judger", CHAIN, 2, "name every agent once and in order"),
        ("agent1;agent2;agent3+judger", CHAIN, 2, "3 shares for 2 processes; start 3"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(setting, prompts, count, message):
    with pytest.raises(ValueError, match="pipeline=") as error:
        shares(setting, prompts, count)
    assert message in str(error.value)
