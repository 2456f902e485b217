"""`latentmas-obf report` and `compare`, as a user calls them."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_latentmas.cli import main


@pytest.fixture
def folder(write_run: Callable[..., Path]) -> Path:
    write_run({"sums": [1] * 50 + [0] * 10, "picks": [1, 0] * 30}, compressor="full", relay_bytes=9000)
    return write_run({"sums": [1] * 20 + [0] * 40, "picks": [1, 0] * 30}, compressor="gen", relay_bytes=900).parent


def test_compare_says_the_answer_and_prints_its_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("Worse than full on the mean of 2 tasks: gen")
    assert [line for line in out.splitlines() if line.startswith("###")] == [
        "### Scores",
        "### Differences",
        "### Sign test over tasks",
        "### What an answer costs",
    ]


def test_compare_with_another_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder), "--against", "gen", "--format", "csv"]) == 0
    assert capsys.readouterr().err.startswith("Better than gen on the mean of 2 tasks: full")


def test_report_prints_every_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--paper", "--format", "latex"]) == 0
    out = capsys.readouterr().out
    assert out.count(r"\begin{table}") == out.count(r"\end{table}") >= 9
    assert "published" in out


def test_report_writes_page_tables_and_pictures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "deep" / "report"
    assert main(["report", str(folder), "--output", str(output)]) == 0
    written = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert {
        "report.html",
        "tables/scores.md",
        "tables/scores.tex",
        "tables/costs.csv",
        "pictures/pareto.svg",
    } <= written
    assert {Path(line) for line in capsys.readouterr().out.splitlines()} == {output / name for name in written}
    rows = list(csv.DictReader((output / "tables" / "scores.csv").open(encoding="utf-8")))
    assert [row["arm"] for row in rows] == ["full", "gen"]


def test_one_form_alone_can_be_written(folder: Path, tmp_path: Path) -> None:
    assert main(["report", str(folder), "--output", str(tmp_path / "r"), "--format", "html"]) == 0
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "nowhere: no such file or folder"),
        (["report", "FOLDER", "--format", "html"], "add --output DIR"),
        (["compare", "FOLDER", "--against", "ful"], "unknown arm 'ful'; did you mean 'full'?"),
        (["compare", "FOLDER", "--metric", "exact_mach"], "unknown metric 'exact_mach'; did you mean"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main([str(folder) if word == "FOLDER" else word for word in arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compair"])
    assert "did you mean 'compare'?" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "latentmas-obf compare out" in capsys.readouterr().out


def test_reports_are_made_from_files_alone(folder: Path) -> None:
    """No torch, no transformers, no lm_eval is imported on the way."""
    code = (
        "import sys\n"
        "from lm_eval_latentmas.cli import main\n"
        f"assert main(['report', {str(folder)!r}]) == 0\n"
        "assert not {'torch', 'transformers', 'lm_eval', 'datasets'} & set(sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
