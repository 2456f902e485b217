"""A saved model of any family runs as ``--model latentmas-obf``, and says what the chain over it says."""

from __future__ import annotations

import pytest
import yaml
from families import FAMILIES, Family, config
from lm_eval.api.instance import Instance
from runs import PROMPTS, TEXTS, make_chain, questions
from tiny import saved_model

from lm_eval_latentmas.model import LatentMASLM


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_model_answers_as_the_chain_does(name, tmp_path):
    family = Family(name)
    made = make_chain(family.adapter, "l-obf")
    plans = [made.plan(question) for question in questions()]
    expected = {plan.question.doc_id: record.text for plan, record in made.answer(plans, 1)}

    folder, prompts = saved_model(tmp_path / "model", config(name)), tmp_path / "prompts.yaml"
    prompts.write_text(yaml.safe_dump({k: v for k, v in PROMPTS.as_dict().items() if k != "source"}))
    model = LatentMASLM(
        folder,
        device="cpu",
        dtype="float32",
        batch_size=2,
        prompts=str(prompts),
        compressor="l-obf",
        latent_steps=made.settings.latent_steps,
        kv_budget=made.settings.hand_off.kv_budget,
        sink_size=made.settings.hand_off.sink_size,
    )
    assert type(model.adapter) is type(family.adapter)
    assert model.max_length == family.adapter.config.max_position_embeddings == 4096
    requests = [
        Instance("generate_until", {}, (text, {"max_gen_toks": 8}), 0, metadata=("demo", number, 1))
        for number, text in enumerate(TEXTS)
    ]
    answers = model.generate_until(requests, disable_tqdm=True)
    assert answers == [expected[number] for number in range(len(TEXTS))]
