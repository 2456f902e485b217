"""The weights' fingerprint: of the weights alone, wherever they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate import dispatch_model, init_empty_weights
from tiny import byte_tokenizer, llama_config, tiny_model
from transformers import AutoModelForCausalLM

from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.provenance import fingerprint

PARTS = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "model.norm", "lm_head")


def offloaded(folder: Path, *parts: str) -> torch.nn.Module:
    """The tiny model, some of whose parts lie on the disk."""
    places = {part: "disk" if part in parts else "cpu" for part in (*PARTS, "model.rotary_emb")}
    return dispatch_model(tiny_model(), places, main_device="cpu", offload_dir=folder)


@pytest.mark.parametrize("parts", [["model.layers.1"], ["model.layers.0", "model.norm"]])
def test_offloaded_weights_have_the_fingerprint_of_loaded_ones(tmp_path: Path, parts: list[str]) -> None:
    model = offloaded(tmp_path, *parts)
    assert any(parameter.is_meta for parameter in model.parameters())
    assert fingerprint(model, byte_tokenizer()) == fingerprint(tiny_model(), byte_tokenizer())
    assert fingerprint(model, byte_tokenizer()) != fingerprint(tiny_model(seed=1), byte_tokenizer())
    assert any(parameter.is_meta for parameter in model.parameters())


def test_weights_that_were_never_loaded_are_named() -> None:
    with init_empty_weights():
        empty = AutoModelForCausalLM.from_config(llama_config())
    with pytest.raises(ValueError, match=r"weights: model\.embed_tokens\.weight was never loaded"):
        fingerprint(empty, byte_tokenizer())


@pytest.mark.parametrize(("part", "named"), [("model.embed_tokens", "input embeddings"), ("lm_head", "output head")])
def test_embeddings_and_head_must_be_in_place(tmp_path: Path, part: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"weights: the {named} are not on a device"):
        ModelAdapter(offloaded(tmp_path, part), byte_tokenizer())
    ModelAdapter(offloaded(tmp_path, "model.layers.1"), byte_tokenizer())
