"""``diagnostics=true``: one row per agent, layer and head of every document, and no change of any text."""

import time
from contextlib import contextmanager

import pyarrow.parquet
import pytest
from chains import asked, make_chain, prompt_set
from test_model import _no_environment_report, evaluate, home, texts  # noqa: F401
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas import diagnostics
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter


def rows(folder, name):
    return [
        row for path in sorted(folder.glob(f"{name}*.parquet")) for row in pyarrow.parquet.read_table(path).to_pylist()
    ]


def test_every_hop_is_told_and_nothing_changes(home, tmp_path):  # noqa: F811
    results = evaluate(home, compressor="h-obf", diagnostics=True, run_dir=str(tmp_path))
    assert texts(results) == texts(evaluate(home, compressor="h-obf"))
    found = rows(tmp_path, "diagnostics")
    places = {(row["doc_id"], row["agent"], row["layer"], row["head"]) for row in found}
    assert len(found) == len(places) == 5 * 3 * 3 * 2
    prompts = {(row["doc_id"], row["agent"]): row for row in rows(tmp_path, "prompts")}
    assert len(prompts) == 5 * 3
    for row in found:
        assert len(row["kept"]) == 8
        assert row["pcr"] ** 2 + row["rcr"] ** 2 == pytest.approx(1, abs=1e-3)
        assert row["ivn"] > 0
        assert 0 < row["output_error"] < 2
        prompt = prompts[row["doc_id"], row["agent"]]
        inside = range(prompt["start"], prompt["start"] + len(prompt["tokens"]))
        assert set(row["kept"]) <= set(inside)
    evicted = sum(row["output_error_evicted"] for row in found)
    assert evicted != sum(row["output_error"] for row in found)


def test_a_relay_that_drops_nothing_has_no_error(home, tmp_path):  # noqa: F811
    evaluate(home, compressor="full", diagnostics=True, run_dir=str(tmp_path), limit=2)
    found = rows(tmp_path, "diagnostics")
    assert len(found) == 2 * 3 * 3 * 2
    assert max(row["output_error"] for row in found) < 1e-5
    assert {row["ivn"] for row in found} == {None}


def test_diagnostics_need_a_run_directory(home):  # noqa: F811
    with pytest.raises(ValueError, match="diagnostics=True: they are written to a run directory"):
        evaluate(home, diagnostics=True)


@pytest.mark.parametrize("spec", ["h-obf", "oracle"])
def test_what_only_diagnostics_take_is_no_part_of_any_phase(tmp_path, monkeypatch, spec):
    looking_ahead, output_errors = LiveCache.looking_ahead, diagnostics.output_errors

    @contextmanager
    def looking_slowly(cache, **how):
        with looking_ahead(cache, **how):
            time.sleep(0.5)
            yield

    def slow_errors(*arguments):
        time.sleep(0.2)
        return output_errors(*arguments)

    chain = make_chain(ModelAdapter(tiny_model(), byte_tokenizer()), prompt_set("Plan: {question}"), spec, kv_budget=8)
    chain.diagnostics = diagnostics.HopDiagnostics(tmp_path, chain.compressor, str)
    list(chain.answer([chain.plan(asked()[0], "warm")], 1))
    monkeypatch.setattr(LiveCache, "looking_ahead", looking_slowly)
    monkeypatch.setattr(diagnostics, "output_errors", slow_errors)
    ((_, record),) = chain.answer([chain.plan(asked()[0], "key")], 1)
    assert (tmp_path / "diagnostics-key.parquet").exists()
    assert record.seconds["compression"] < 0.3
    # the selector of the upper bound looks ahead also without them
    assert (record.seconds["latent"] > 0.5) == (spec == "oracle")
