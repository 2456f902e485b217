"""The self-check accepts an unknown family that works, and says what is wrong with one that does not."""

from __future__ import annotations

import pytest
import torch
from families import COMMON, Family
from tiny import byte_tokenizer, tiny_model
from transformers import AutoConfig

from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class, verify
from lm_eval_latentmas.model_adapters.families import FAMILIES


def adapter(kind: str, **values: object) -> ModelAdapter:
    config = AutoConfig.for_model(kind, **(COMMON | values))
    assert kind not in FAMILIES
    return adapter_class(config)(tiny_model(config), byte_tokenizer())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("starcoder2", {"sliding_window": 8}),
        ("smollm3", {}),
        ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
        ("olmo", {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_unknown_family_that_works_is_accepted(kind, values, dtype):
    unknown = adapter(kind, **values)
    unknown.model.to(dtype)
    verify(unknown)
    assert unknown.model.config._attn_implementation == "latentmas"


def test_logits_that_are_not_the_heads_are_refused():
    with pytest.raises(ValueError, match=r"'vaultgemma' is not among the tested families.*its logits are not the head"):
        verify(adapter("vaultgemma", head_dim=16, query_pre_attn_scalar=16, final_logit_softcapping=3.0))


def test_a_window_that_attention_ignores_is_refused():
    with pytest.raises(ValueError, match="layer 0 has a window of 8 that its attention does not ask for"):
        verify(adapter("arcee", sliding_window=8))


def test_attention_under_a_mask_of_its_own_is_refused():
    with pytest.raises(ValueError, match="layer 0 asks its attention for a mask of its own, which the chain does not"):
        verify(adapter("doge"))


def test_states_that_differ_are_refused(monkeypatch):
    unknown = adapter("olmo")
    forward = unknown.forward
    monkeypatch.setattr(unknown, "forward", lambda embeds, positions, cache: forward(embeds, positions * 2, cache))
    with pytest.raises(ValueError, match=r"states over a relayed cache are off by \d+\.\d% of their size"):
        verify(unknown)


def test_a_pass_that_fails_is_refused_and_leaves_the_model_as_it_was(monkeypatch):
    unknown = adapter("olmo")
    monkeypatch.setattr(unknown, "forward", lambda embeds, positions: embeds)
    with pytest.raises(
        ValueError, match="'olmo' is not among the tested families and failed its self-check: TypeError"
    ):
        verify(unknown)
    assert unknown.model.config._attn_implementation == "latentmas"


def test_layers_that_never_reach_the_attention_interface_are_refused(monkeypatch):
    unknown = adapter("olmo")
    layer = unknown.decoder.layers[1].self_attn
    monkeypatch.setattr(layer, "forward", lambda hidden_states, **arguments: (hidden_states, None))
    with pytest.raises(ValueError, match="layer 1 does not hand its arguments on"):
        verify(unknown)


def test_a_tested_family_is_not_checked_again(monkeypatch):
    known = Family("llama").adapter
    monkeypatch.setattr(known, "forward", None)
    verify(known)
    monkeypatch.setattr(type(known.model), "__module__", "transformers_modules.somebody.llama")
    with pytest.raises(ValueError, match="model_type 'llama' is not among the tested families"):
        verify(known)
