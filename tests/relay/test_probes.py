"""Diagnostics against the golden ones, as columns, and from outside: they change nothing."""

from __future__ import annotations

import pyarrow.parquet
import pytest
import torch
from golden_cases import Golden, composition, files
from segments import HEADS, LAYERS, SINK, assert_same, segment

from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.probes import Diagnostics, attention_output, output_errors, write_parquet
from lm_eval_latentmas.relay.settings import RelaySettings

GOLDEN_NAMES = {
    "pcr": "recovery_R",
    "rcr": "r_perp",
    "pc": "recovery_cos",
    "revr": "pca_evr",
    "dr": "ad_over_as",
    "ivn": "inj_norm",
}


def diagnosed(spec: str, given, **settings) -> list[dict]:
    made = compressor(spec, RelaySettings(**{"kv_budget": 5} | settings))
    probe = Diagnostics(made.compensation)
    made(given, probe)
    return probe.records


@pytest.mark.parametrize("output", ["h-obf.rank2", "l-obf.rank4"])
def test_diagnostics_are_the_golden_ones(output: str, request: pytest.FixtureRequest) -> None:
    for golden in map(Golden.read, files(request.config.getoption("--golden", None))):
        records = diagnosed(composition(output), golden.segment(), kv_budget=golden.meta["kv_budget"])
        assert len(records) == golden.meta["layers"] * golden.meta["batch"] * golden.meta["kv_heads"]
        for record in records:
            for ours, theirs in GOLDEN_NAMES.items():
                if ours == "revr" and golden.spans_everything:
                    # a share of nothing: the golden value is one of rounding errors
                    assert record[ours] == 0
                    continue
                expected = golden.tensors[f"diag.{output}.{theirs}"][record["row"], record["layer"], record["head"]]
                assert record[ours] == pytest.approx(float(expected), abs=1e-4)


def test_columns_are_plain_and_positions_are_those_kept() -> None:
    given = segment()
    relay = compressor("headwise", RelaySettings(kv_budget=5))(given)
    records = diagnosed("headwise", given)
    assert len(records) == LAYERS * 3 * HEADS
    for record in records:
        held = relay.positions[record["layer"]][record["row"], record["head"], SINK : SINK + 5]
        assert record["kept"] == held.tolist()
        assert record["candidates"] == given.prompt[record["row"]] - SINK
        assert all(isinstance(value, (int, float, str, list)) for value in record.values())


def test_every_budgeted_region_is_measured() -> None:
    given = segment(history=(9, 9, 9))
    records = diagnosed("l-obf", given, history_budget=3, latent_budget=1)
    assert {record["region"] for record in records} == {"history", "prompt", "latent"}


def test_a_probe_changes_nothing() -> None:
    made, given = compressor("l-obf+int8", RelaySettings(kv_budget=5)), segment()
    assert_same(made(given, Diagnostics(made.compensation)), made(given))


def test_records_become_a_parquet_file(tmp_path) -> None:
    records = [{"agent": "planner"} | record for record in diagnosed("h-obf", segment())]
    write_parquet(tmp_path / "diagnostics.parquet", records)
    assert pyarrow.parquet.read_table(tmp_path / "diagnostics.parquet").to_pylist() == records


def test_attention_output_is_that_of_scaled_dot_products() -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 6, 4, 16, generator=generator)
    keys, values = torch.randn(2, 2, HEADS, 9, 16, generator=generator)
    filled = torch.rand(2, 1, 9, generator=generator) > 0.3
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries, keys.repeat_interleave(2, 1), values.repeat_interleave(2, 1), attn_mask=filled[:, :, None]
    )
    torch.testing.assert_close(attention_output(queries, keys, values, filled).float(), expected)


def test_output_error_is_zero_for_full_and_falls_with_backfill_of_an_even_loss() -> None:
    given = segment()
    for mass in given.mass:
        mass.fill_(1.0)
    # queries of zero weigh all states evenly, as the masses say
    queries = torch.zeros(3, 2 * HEADS, 4, 16)
    settings = RelaySettings(kv_budget=5)
    relays = {name: compressor(name, settings)(given) for name in ("full", "layerwise", "layerwise+obf:rank=all")}
    for layer in range(LAYERS):
        errors = output_errors(queries, given, relays, layer)
        assert errors["full"].shape == (3, HEADS)
        assert errors["full"].max() < 1e-6
        assert (errors["layerwise"] > 1e-2).all()
        assert (errors["layerwise+obf:rank=all"] < errors["layerwise"]).float().mean() > 0.5
