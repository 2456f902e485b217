"""Diagnostics are told apart by arm, averaged by layer, and kept tokens are shown with their text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lm_eval_latentmas.report.diagnostics import (
    Diagnostics,
    kept_share,
    layer_means,
    layer_table,
    prompts_with_selection,
    read_diagnostics,
)
from lm_eval_latentmas.report.findings import Findings, read_findings
from lm_eval_latentmas.report.page import page
from lm_eval_latentmas.report.pictures.canvas import data_uri
from lm_eval_latentmas.report.pictures.diagnostics import by_layer, selection_maps
from lm_eval_latentmas.report.reading import UnreadableFile
from lm_eval_latentmas.report.sample_data import sample_data

TOKENS = ["Read", " the", " $", "\n", "12", " jars"]
PROMPT = ("sums", 0, "planner")
START = 30  # position of the prompt's first token


def rows(kept: dict[tuple[int, int], list[int]]) -> dict[str, list[Any]]:
    """Two heads in each of two layers; PCR is the layer's number plus a tenth of the head's."""
    found = [{"task": "sums", "doc_id": 0, "agent": "planner", "layer": layer, "head": head} for layer, head in kept]
    for row, positions in zip(found, kept.values(), strict=True):
        row |= {"region": "prompt", "pcr": row["layer"] + row["head"] / 10, "ivn": None}
        row["kept"] = [position + START for position in positions]
    return {name: [row[name] for row in found] for name in found[0]}


@pytest.fixture
def findings(write_run: Callable[..., Path], tmp_path: Path) -> Findings:
    kept = {
        "headwise": {(0, 0): [0, 4], (0, 1): [4, 5], (1, 0): [1, 2], (1, 1): [4]},
        "layerwise": {head: [3, 4] for head in [(0, 0), (0, 1), (1, 0), (1, 1)]},
    }
    for compressor, positions in kept.items():
        run_dir = tmp_path / "runs" / compressor
        run_dir.mkdir(parents=True)
        table = pa.table(rows(positions))
        history = table.slice(0, 1).to_pylist()[0] | {"region": "history", "pcr": 99.0, "kept": [0]}
        table = pa.concat_tables([table, pa.Table.from_pylist([history], schema=table.schema)])
        parquet.write_table(table, run_dir / "diagnostics-0.parquet")
        tokens = {"task": ["sums"], "doc_id": [0], "agent": ["planner"], "start": [START], "tokens": [TOKENS]}
        parquet.write_table(pa.table(tokens), run_dir / "prompts-0.parquet")
        last = write_run({"sums": [1, 0]}, compressor=compressor, run_dir=str(run_dir))
    return read_findings([last.parent])


def test_an_arm_is_told_by_its_run_directory(findings: Findings) -> None:
    assert [held.arm for held in findings.diagnostics] == ["headwise", "layerwise"]


def test_means_by_layer_leave_missing_numbers_out(findings: Findings) -> None:
    layers, means, low, high = layer_means(findings.diagnostics[0], "pcr")
    np.testing.assert_allclose(layers, [0, 1])
    np.testing.assert_allclose(means, [0.05, 1.05])
    assert (low < means).all()
    assert (means < high).all()
    assert len(layer_means(findings.diagnostics[0], "ivn")[0]) == 0
    table = layer_table(findings.diagnostics)
    assert table.rows[0].cells == ("headwise", 0.0, pytest.approx(0.05), None)


def test_shares_count_the_heads_that_kept_a_token(findings: Findings) -> None:
    share = kept_share(findings.diagnostics[0], PROMPT, len(TOKENS))
    np.testing.assert_allclose(share, [[0.5, 0, 0, 0, 1, 0.5], [0, 0.5, 0.5, 0, 0.5, 0]])
    assert prompts_with_selection(findings.diagnostics[1]) == [PROMPT]


def test_pictures_show_both_arms(findings: Findings) -> None:
    layers = by_layer(findings.diagnostics, findings.arms)
    assert "headwise, layerwise" in layers.text
    maps = selection_maps(findings.diagnostics)
    assert maps.text.startswith("planner's prompt, sums, document 0: all 6 tokens")
    assert [label.get_text() for label in maps.figure.axes[0].get_xticklabels()][2:4] == [r" \$", r"\n"]
    assert data_uri(maps)


def test_a_run_directory_that_was_moved_is_drawn_by_the_name_of_its_folder(tmp_path: Path, findings: Findings) -> None:
    (tmp_path / "runs").rename(tmp_path / "moved")
    found = read_diagnostics([tmp_path / "moved" / "headwise"], findings.arms[1:])
    assert "over the layers for headwise" in by_layer(found, findings.arms[1:]).text


def test_the_page_carries_the_kept_tokens(findings: Findings) -> None:
    kept = sample_data(findings)["tasks"][0]["kept"]
    assert [(k["arm"], k["id"], k["agent"]) for k in kept] == [(0, 0, "planner"), (1, 0, "planner")]
    assert kept[0]["tokens"] == TOKENS
    assert kept[0]["share"] == [0.25, 0.25, 0.25, 0.0, 0.75, 0.25]
    assert "Kept tokens by layer" in page(findings)


def test_without_diagnostics_nothing_is_drawn() -> None:
    assert by_layer([], []) is None
    assert selection_maps([Diagnostics("x", {})]) is None
    assert layer_table([]) is None


@pytest.mark.parametrize("content", [b"not parquet", b"PAR1"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "diagnostics-0.parquet").write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"diagnostics-0\.parquet: no Parquet file"):
        read_diagnostics([tmp_path], [])


def test_a_file_without_rows_says_nothing(tmp_path: Path, findings: Findings) -> None:
    folder = tmp_path / "runs" / "headwise"
    before = layer_means(findings.diagnostics[0], "pcr")[1]
    parquet.write_table(pa.Table.from_pylist([]), folder / "diagnostics-1.parquet")
    held = read_diagnostics([folder], [])[0]
    np.testing.assert_allclose(layer_means(held, "pcr")[1], before)
    (folder / "diagnostics-0.parquet").unlink()
    assert read_diagnostics([folder], [])[0].measures == []


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"task": ["x"], "layer": [0]}), tmp_path / "diagnostics.parquet")
    with pytest.raises(UnreadableFile, match="lacks the column doc_id, agent, head"):
        read_diagnostics([tmp_path], [])
