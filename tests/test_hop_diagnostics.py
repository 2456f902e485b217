"""``diagnostics=true``: one row per agent, layer and head of every document, and no change of any text."""

import pyarrow.parquet
import pytest
from test_model import _no_environment_report, evaluate, home, texts  # noqa: F401


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
