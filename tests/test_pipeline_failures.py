"""One clear error on all processes of a pipeline when one of them fails, and the same start for all."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from chains import asked
from rings import member, processes, written

from lm_eval_latentmas.pipeline import channel
from lm_eval_latentmas.pipeline.ring import Ring

PROCESS_1 = "process 1 (agent1, agent2)"


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
    outcomes = processes(2, member, tmp_path, 2, written, prepare, "h-obf", 1.0)
    everywhere(outcomes, f"{PROCESS_1} gave no sign of life for 1 seconds")


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
