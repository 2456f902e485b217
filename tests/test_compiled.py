"""The compiled step gives the texts and relays of the plain one, from one graph that breaks nowhere."""

import pytest
import torch
from test_decoding import PROMPTS, decoded, job
from tiny import byte_tokenizer, llama_config, tiny_model
from transformers import MistralConfig

from lm_eval_latentmas import compiled as under_test
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.compiled import compiled
from lm_eval_latentmas.config import split_arguments
from lm_eval_latentmas.model_adapters import adapter_class
from lm_eval_latentmas.planning import Question
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings
from lm_eval_latentmas.sampling import Generation

#: Traced and run as it is: what a back end makes of the graph is PyTorch's affair.
TRACED = {"backend": "eager", "fullgraph": True}


def adapters(config):
    plain = adapter_class(config)(tiny_model(config), byte_tokenizer())
    return plain, compiled(plain, **TRACED)


@pytest.fixture(params=["full attention", "windows"])
def pair(request, monkeypatch):
    monkeypatch.setattr(under_test, "_BUCKET", 64)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    if request.param == "full attention":
        return adapters(llama_config())
    fields = llama_config().to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
    shared = {name: fields[name] for name in (*names, "num_key_value_heads", "initializer_range", "eos_token_id")}
    return adapters(MistralConfig(**shared, sliding_window=24, max_position_embeddings=4096))


@pytest.mark.parametrize(("spec", "allocation"), [("full", "uniform"), ("h-obf", "uniform"), ("h-obf", "adaptive")])
def test_relays_and_texts_are_those_of_the_plain_step(pair, spec, allocation):
    records = []
    for adapter in pair:
        relay = RelaySettings(kv_budget=6, allocation=allocation)
        settings, _ = split_arguments({"latent_steps": 3, "compressor": spec}, object)
        made = Chain(adapter, compressor(spec, relay), load_prompts(), settings, max_length=4096, seed=0)
        asked = [Question("demo", i, 0, text, Generation(max_gen_toks=6)) for i, text in enumerate(["Why?", "How so?"])]
        plans = [made.plan(question) for question in asked]
        records.append({r.doc_id: (r.text, r.kept_states) for _, r in made.answer(plans, 2)})
    assert records[0] == records[1]


def test_a_chain_compiles_when_it_is_told_to(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "compile", lambda step, **options: made.append(options) or step)
    adapter = adapter_class(llama_config())(tiny_model(), byte_tokenizer())
    for asked, expected in ((False, []), (True, [{}])):
        settings, _ = split_arguments({"compile": asked}, object)
        Chain(adapter, compressor("full", RelaySettings()), load_prompts(), settings, max_length=4096, seed=0)
        assert made == expected


def test_rows_leave_without_a_new_graph(pair):
    jobs = [[job(p, max_gen_toks=4 + 3 * i) for i, p in enumerate(PROMPTS)] for _ in pair]
    texts = [[j.text for j in decoded(adapter, some, 3)] for adapter, some in zip(pair, jobs, strict=True)]
    assert texts[0] == texts[1]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
