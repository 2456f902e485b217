"""Frequencies that would follow the longest row of a batch are fixed for the chain."""

from __future__ import annotations

import pytest
import torch
from families import config
from tiny import byte_tokenizer, llama_config, tiny_model

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import prefill

SHORT, LONG = list(range(40, 50)), list(range(60, 100))


def last_states(adapter, rows):
    return prefill(adapter, LiveCache(adapter.layers, len(rows)), rows)


def longrope(max_length=None):
    return ModelAdapter(tiny_model(config("phi3-longrope")), byte_tokenizer(), max_length=max_length)


@torch.no_grad()
def test_a_short_row_reads_the_same_beside_a_long_one():
    adapter = longrope()
    alone, beside = last_states(adapter, [SHORT])[0], last_states(adapter, [SHORT, LONG])[0]
    torch.testing.assert_close(alone, beside, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("max_length", "tokens"), [(16, SHORT), (None, LONG)])
def test_frequencies_are_those_of_the_longest_chain(max_length, tokens):
    """Under a limit within the original length the short ones, as transformers has them for a text of that length."""
    states = last_states(longrope(max_length), [tokens])[0]
    dense = (
        tiny_model(config("phi3-longrope"), attention="eager").model(torch.tensor([tokens])).last_hidden_state[0, -1]
    )
    torch.testing.assert_close(states, dense, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(last_states(longrope(16), [SHORT]), last_states(longrope(), [SHORT]), atol=1e-3)


@torch.no_grad()
def test_dynamic_scaling_does_not_depend_on_the_batch():
    scaled = llama_config(max_position_embeddings=16, rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    adapter = ModelAdapter(tiny_model(scaled), byte_tokenizer(), max_length=64)
    alone, beside = last_states(adapter, [SHORT])[0], last_states(adapter, [SHORT, LONG])[0]
    torch.testing.assert_close(alone, beside, atol=1e-5, rtol=1e-5)
    unscaled = ModelAdapter(tiny_model(scaled), byte_tokenizer())
    assert not torch.allclose(last_states(unscaled, [SHORT])[0], alone, atol=1e-3)
