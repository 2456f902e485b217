"""Agents on copies of the weights: who sits where, what moves between them, and what is refused."""

import copy

import pytest
import torch
from chains import CHAIN, HIERARCHY, answers, asked, make_chain
from tiny import byte_tokenizer, saved_model, tiny_model

from lm_eval_latentmas.links import Memory
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.seats import agent_devices, copied, placed

OTHER = torch.device("cpu", 0)  # by this name not the model's own device


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


@pytest.fixture(scope="module")
def elsewhere(adapter):
    return placed(adapter, {"agent2": OTHER, "agent3": OTHER}, {})


def test_devices_are_read_with_their_numbers():
    assert agent_devices("agent1:cpu:0; judger:cpu", CHAIN) == dict.fromkeys(("agent1", "judger"), torch.device("cpu"))
    assert agent_devices(None, CHAIN) == {}


def test_the_harness_hands_devices_on_as_they_are_written():
    from lm_eval.utils import simple_parse_args_string

    text = "planner:cuda:0;critic:cuda:1"
    assert simple_parse_args_string(f"agent_devices={text},dtype=float32")["agent_devices"] == text


@pytest.mark.parametrize(
    ("text", "prompts", "message"),
    [
        ("agnet1:cpu", CHAIN, "unknown agent 'agnet1'; did you mean 'agent1'?"),
        ("agent1", CHAIN, "'agent1' names no device"),
        ("agent1:cpu;agent1:cpu", CHAIN, "'agent1' is given two devices"),
        ("agent1:cuda:99", CHAIN, "cuda:99: PyTorch cannot use it here"),
        ("agent1:gpu", CHAIN, "gpu: allowed are cpu, cuda"),
        ("agent1:cpu", HIERARCHY, "side by side"),
    ],
)
def test_wrong_devices_are_refused(text, prompts, message):
    with pytest.raises(ValueError, match="agent_devices=") as error:
        agent_devices(text, prompts)
    assert message in str(error.value)


def test_a_device_holds_one_copy_and_the_models_own_device_none(adapter, elsewhere):
    assert elsewhere["agent2"] is elsewhere["agent3"]
    assert elsewhere["agent2"].model is not adapter.model
    assert placed(adapter, {"agent1": adapter.device}, {}) == {"agent1": adapter}


def test_a_copy_shares_no_memory_and_keeps_tied_weights_tied():
    from tiny import llama_config

    model = tiny_model(llama_config(tie_word_embeddings=True))
    other = copied(model, OTHER)
    mine = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert not mine & {tensor.data_ptr() for tensor in other.state_dict().values()}
    assert other.get_input_embeddings().weight is other.get_output_embeddings().weight
    assert len(list(other.parameters())) == len(list(model.parameters()))


def test_quantised_weights_are_not_copied(adapter):
    class Packed(torch.nn.Parameter):
        pass

    model = copy.deepcopy(adapter.model)
    model.lm_head.weight = Packed(model.lm_head.weight.detach())
    with pytest.raises(ValueError, match=r"'lm_head.weight' is quantised \(Packed\)"):
        copied(model, OTHER)


@pytest.mark.parametrize("spec", ["full", "h-obf+int8"])
@pytest.mark.parametrize("transport", ["memory", "wire"])
def test_texts_are_those_of_one_device_and_every_agent_runs_in_its_seat(adapter, elsewhere, spec, transport):
    alone = make_chain(adapter, spec=spec, kv_budget=8)
    seated = make_chain(adapter, spec=spec, kv_budget=8, transport=transport, elsewhere=elsewhere)
    assert [seat.adapter is adapter for seat in seated.seats] == [True, False, False, True]
    passes = []
    hooks = [
        made.decoder.register_forward_pre_hook(lambda *_, name=name: passes.append(name))
        for name, made in (("own", adapter), ("other", elsewhere["agent2"]))
    ]
    assert answers(seated, 2) == answers(alone, 2)
    for hook in hooks:
        hook.remove()
    # two agents of three think elsewhere, four steps and a prompt each
    assert passes.count("other") >= 2 * 5 * 2


def test_a_relay_moves_between_seats_only_and_its_seconds_are_told(adapter, elsewhere, monkeypatch):
    moves = []
    carry = Memory.carry
    monkeypatch.setattr(Memory, "carry", lambda self, relay: moves.append(self.devices) or carry(self, relay))
    seated = make_chain(adapter, spec="h-obf", kv_budget=8, elsewhere=elsewhere)
    (left,) = seated.think([seated.plan(asked()[0])])
    assert [devices is None for devices in moves] == [False, True, False]
    assert len(left.relay_seconds) == 3
    assert left.seconds["transport"] == pytest.approx(sum(left.relay_seconds))
    (plain,) = make_chain(adapter, spec="h-obf", kv_budget=8).think([seated.plan(asked()[0])])
    assert plain.relay_seconds == ()
    assert "transport" not in plain.seconds
    assert plain.relay_bytes == left.relay_bytes


def test_the_model_takes_agent_devices_and_tells_them(tmp_path):
    given = {"pretrained": saved_model(tmp_path), "device": "cpu", "latent_steps": 2, "agent_devices": "planner:cpu"}
    lm = LatentMASLM(**given)
    assert lm.settings.places() == {"agent_devices": "planner:cpu"}
    assert {seat.adapter for seat in lm.chain.seats} == {lm.adapter}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_devices": "planer:cpu"}, "unknown agent 'planer'; did you mean 'planner'?"),
        ({"agent_devices": "planner:cuda:99"}, "agent_devices=planner:cuda:99: cuda:99: PyTorch cannot use it here"),
        ({"agent_devices": "planner:cpu", "parallelize": True}, "parallelize=True spreads one copy"),
        ({"agent_devices": "planner:cpu", "device_map": "auto"}, "device_map=auto spreads one copy"),
        ({"agent_devices": "planner:cpu", "mode": "single"}, "agent_devices=planner:cpu: moves relays"),
        ({"agent_devices": "planner:cpu", "relay": "none"}, "relay=none lets the judger work alone"),
        ({"agent_devices": "planner:cpu", "pipeline": True}, "leave agent_devices=planner:cpu out"),
        ({"pipeline": True}, "pipeline=True: there is one process; start more with torchrun"),
        ({"pipeline": True, "prompts": "hierarchical"}, "work side by side"),
        ({"pipeline": True, "mode": "text", "text_tokens": 8}, "pipeline=True: moves relays, and mode=text has none"),
        ({"pipeline": 2}, "pipeline=2: give true, false"),
        ({"pipeline": True, "pipeline_timeout": 0}, "pipeline_timeout=0: give seconds"),
    ],
)
def test_placements_that_cannot_be_are_refused_before_weights_load(tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    with pytest.raises(ValueError, match=r".*") as error:
        LatentMASLM(**({"pretrained": saved_model(tmp_path), "device": "cpu"} | changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_several_processes_have_no_agent_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes would share these devices"):
        LatentMASLM(pretrained=saved_model(tmp_path), device="cpu", agent_devices="planner:cpu")


def test_settings_of_a_pipeline_are_those_it_was_made_with_and_devices_are_checked_again(tmp_path, monkeypatch):
    lm = LatentMASLM(pretrained=saved_model(tmp_path), device="cpu", latent_steps=2)
    with pytest.raises(ValueError, match="pipeline: its processes are made with their settings"):
        lm.with_settings(pipeline=True)
    with pytest.raises(ValueError, match="every process loads the model itself"):
        LatentMASLM(pretrained=lm.model, tokenizer=lm.tokenizer, pipeline=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes would share these devices"):
        lm.with_settings(agent_devices="planner:cpu")
