"""Pipelines of real processes: the texts of one process, and one clear error on all when a process fails."""

import os
import signal
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pyarrow.parquet
import pytest
import torch
from chains import CHAIN, HIERARCHY, asked, given, make_chain
from rings import processes
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.likelihood import score
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.pipeline import channel
from lm_eval_latentmas.pipeline.chain import PipelineChain
from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.pipeline.shares import called, shares

PROCESS_1 = "process 1 (agent1, agent2)"


def member(rank, count, work, prepare=None, spec="h-obf", timeout=20):
    """One process of a pipeline over the tiny model; process 0 returns what ``work`` makes of its chain."""
    torch.set_num_threads(1)
    parts = shares(True, CHAIN, count)
    ring = Ring(called(parts, CHAIN), timeout)
    adapter = ModelAdapter(tiny_model(), byte_tokenizer())
    chain = make_chain(adapter, spec=spec, kv_budget=8, kind=PipelineChain, ring=ring, shares=parts)
    told = prepare(rank, chain, ring) if prepare is not None else None
    if rank != 0:
        chain.serve()
        return told
    with chain.working():
        found = work(chain)
    ring.end()
    return found, told


def alone(spec="h-obf"):
    return make_chain(ModelAdapter(tiny_model(), byte_tokenizer()), spec=spec, kv_budget=8)


def written(chain):
    """Per document what does not depend on the processes, and the seconds of every hop; one row at a time."""
    records = dict(chain.answer([chain.plan(question) for question in asked(temperature=0.9)], 1))
    return {plan.question.doc_id: (_lasting(record), record.relay_seconds) for plan, record in records.items()}


def _lasting(record):
    return record.text, record.relay_bytes, record.relay_states, record.kept_states, record.latent_passes


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
        time.sleep(0.05 if rank else 0.2)
        turns.append((began, time.monotonic()))

    chain.advance = run
    return turns


def many_batches(chain):
    questions = [replace(question, repeat=repeat) for repeat in range(3) for question in asked()]
    return len(list(chain.answer([chain.plan(question) for question in questions], 1)))


def test_processes_work_on_several_batches_at_once_and_on_no_more_than_a_few(tmp_path):
    (_, (_, last)), (_, first) = processes(2, member, tmp_path, 2, many_batches, noting_turns)
    assert len(first) == len(last) == 12
    assert all(first[batch + 1][0] < last[batch][1] for batch in range(11))
    # one batch is worked on, one waits to be taken, one is on its way, and one more is done and waits for its turn
    assert all(first[batch + 4][0] > last[batch][0] - 0.02 for batch in range(8))


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
            time.sleep(0.3)
            return forward(*arguments)

        adapter.forward = run


def test_a_busy_process_is_not_taken_for_a_lost_one(tmp_path):
    # a batch takes two prefills and eight steps of 0.3 seconds each
    outcomes = processes(2, member, tmp_path, 2, one_answer, slow, "h-obf", 1.5)
    assert outcomes == [("returned", (1, None)), ("returned", None)]


def one_answer(chain):
    return len(list(chain.answer([chain.plan(asked()[0])], 1)))


# -- failures --------------------------------------------------------------------------------------------------------


def at_second_batch(action):
    """Let process 1 do something in place of its second batch."""

    def prepare(rank, chain, ring):
        batches, advance = [], chain.advance

        def run(batch, until):
            batches.append(batch)
            if len(batches) == 2:
                action()
            advance(batch, until)

        if rank == 1:
            chain.advance = run

    return prepare


def dying(rank, chain, ring):
    at_second_batch(lambda: os.kill(os.getpid(), signal.SIGKILL))(rank, chain, ring)


def failing(rank, chain, ring):
    def fail():
        raise OverflowError("two many\nstates")

    at_second_batch(fail)(rank, chain, ring)


def until_failed(ring):
    until = time.monotonic() + 30
    while not ring.watch.failure and time.monotonic() < until:
        time.sleep(0.05)


def sleeping(rank, chain, ring):
    at_second_batch(lambda: until_failed(ring))(rank, chain, ring)


def stopping(rank, chain, ring):
    """Process 1 stops itself, and process 0 lets it go on once it counts as lost."""
    if rank == 1:
        ring.watch.tell("stopped", str(os.getpid()))
    else:
        (process,) = ring.watch.wait(["stopped"])

        def go_on():
            until_failed(ring)
            os.kill(int(process), signal.SIGCONT)

        threading.Thread(target=go_on, daemon=True).start()
    at_second_batch(lambda: os.kill(os.getpid(), signal.SIGSTOP))(rank, chain, ring)


def altering_states(rank, chain, ring):
    send = chain._ring.channel.send

    def altered(header, bodies=()):
        return send(header, [body[:-1] + bytes([body[-1] ^ 1]) for body in bodies])

    if rank == 1:
        chain._ring.channel.send = altered


def altering_header(rank, chain, ring):
    pieces = channel._pieces

    def altered(parts):
        prefix, text, *bodies = pieces(parts)
        text[-2] ^= 1
        return [prefix, text, *bodies]

    if rank == 1:
        channel._pieces = altered


def sending_rubbish(rank, chain, ring):
    if rank == 1:
        channel._pieces = lambda parts: [torch.arange(channel._PREFIX, dtype=torch.uint8)]


def forgetting_plans(rank, chain, ring):
    send = chain._ring.channel.send
    if rank == 1:
        chain._ring.channel.send = lambda header, bodies=(): send(header | {"plans": []}, bodies)


def breaking_a_thread(rank, chain, ring):
    def broken(parts):
        raise LookupError("no such piece")

    if rank == 1:
        channel._pieces = broken


def claiming_too_much(rank, chain, ring):
    dumps = channel.json.dumps
    if rank == 1:
        channel.json = SimpleNamespace(
            dumps=lambda header: dumps(header | {"bodies": [1 << 60]}), loads=channel.json.loads
        )


def everywhere(outcomes, wanted, but=()):
    """All processes raised the same one-line PipelineError; those of ``but`` something of their own."""
    told = {text for rank, (kind, text) in enumerate(outcomes) if rank not in but}
    assert all(kind == "raised" for rank, (kind, _) in enumerate(outcomes) if rank not in but), outcomes
    (text,) = told
    assert text.startswith("PipelineError: pipeline: ")
    assert "\n" not in text
    assert wanted in text
    return text


@pytest.mark.parametrize("count", [2, 4])
def test_a_killed_process_ends_the_run_on_all(tmp_path, count):
    outcomes = processes(count, member, tmp_path, count, written, dying)
    assert outcomes[1] == ("died", -signal.SIGKILL)
    name = {2: PROCESS_1, 4: "process 1 (agent1)"}[count]
    text = everywhere(outcomes, f"the connection to {name} is lost; it ended, or its machine is gone (", but=[1])
    assert ".cc" not in text


@pytest.mark.parametrize("count", [2, 4])
def test_an_exception_is_named_on_all(tmp_path, count):
    outcomes = processes(count, member, tmp_path, count, written, failing)
    assert outcomes[1] == ("raised", "OverflowError: two many\nstates")
    name = {2: PROCESS_1, 4: "process 1 (agent1)"}[count]
    everywhere(outcomes, f"{name} failed: OverflowError: two many states", but=[1])


def test_a_thread_that_fails_beside_the_work_ends_it_on_all(tmp_path):
    outcomes = processes(2, member, tmp_path, 2, written, breaking_a_thread)
    everywhere(outcomes, f"{PROCESS_1} failed: LookupError: no such piece")


def test_a_message_that_memory_cannot_hold_is_no_lost_connection(tmp_path):
    outcomes = processes(2, member, tmp_path, 2, written, claiming_too_much)
    everywhere(
        outcomes, f"process 0 (agent3, judger) failed: MemoryError: no room for {1 << 60} bytes from {PROCESS_1}"
    )


def breaking(chain):
    next(chain.answer([chain.plan(question) for question in asked()], 1))
    raise KeyError("a scorer's mistake")


def test_what_fails_in_process_0_is_named_on_the_others(tmp_path):
    outcomes = processes(2, member, tmp_path, 2, breaking)
    assert outcomes[0] == ("raised", 'KeyError: "a scorer\'s mistake"')
    everywhere(outcomes, 'process 0 (agent3, judger) failed: KeyError: "a scorer\'s mistake"', but=[0])


@pytest.mark.parametrize("prepare", [sleeping, stopping])
def test_a_process_without_a_sign_of_life_ends_the_run_on_all(tmp_path, prepare):
    outcomes = processes(2, member, tmp_path, 2, written, prepare, "h-obf", 1.5)
    everywhere(outcomes, f"{PROCESS_1} gave no sign of life for 1.5 seconds")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (altering_states, "WireError: relay message: truncated or altered; its checksum does not fit"),
        (altering_header, "whose header was altered"),
        (sending_rubbish, "sent no message of a pipeline"),
        (forgetting_plans, "1 relays for 0 questions"),
    ],
)
def test_a_bad_message_ends_the_run_on_all_and_names_its_sender(tmp_path, prepare, message):
    outcomes = processes(2, member, tmp_path, 2, written, prepare)
    assert outcomes[0][0] == "raised"
    assert outcomes[0][1].startswith(f"BadMessage: {PROCESS_1} sent ")
    assert message in outcomes[0][1]
    assert message in everywhere(outcomes, f"BadMessage: {PROCESS_1} sent ", but=[0])


def agreeing(rank, ranks):
    ring = Ring([f"process {n}" for n in range(ranks)], 20)
    with ring.watch.guarding():
        ring.agree({"chain": {"latent_steps": 4 if rank < 2 else 5}, "weights": "a"})


def test_processes_of_different_settings_are_refused_on_all(tmp_path):
    outcomes = processes(3, agreeing, tmp_path, 3)
    assert set(outcomes) == {
        (
            "raised",
            "ValueError: pipeline: process 2 differs from process 0: chain.latent_steps is 5 and not 4; start all of "
            "them alike",
        )
    }


def sharing(rank, ranks):
    ring = Ring([f"process {n} ({'planner' if rank else 'planner, critic'})" for n in range(ranks)], 20)
    with ring.watch.guarding():
        ring.agree({})


def test_processes_that_share_the_agents_out_in_other_ways_are_refused_on_all(tmp_path):
    for kind, text in processes(2, sharing, tmp_path, 2):
        assert kind == "raised"
        assert "differs from process 0: agents is ['process 0 (planner)'" in text


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
