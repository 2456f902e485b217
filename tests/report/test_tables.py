"""Tables mark the best and the runner-up, and text of any kind stays text in every format."""

from __future__ import annotations

import csv
import io

import pytest

from lm_eval_latentmas.report.tables import Column, Row, Table, comma_separated, format_cell, latex, markdown

COLUMNS = (Column("arm"), Column("score", 2, "max"), Column("seconds", 1, "min"), Column("size", 0))


def table(*rows: tuple, groups: tuple[str, ...] | None = None) -> Table:
    names = groups or ("",) * len(rows)
    return Table(
        "t", "Title", COLUMNS, tuple(Row(cells, name) for cells, name in zip(rows, names, strict=True)), "Note"
    )


def test_best_and_runner_up_by_the_end_that_is_good() -> None:
    places = table(("a", 1.0, 5.0, 9), ("b", 3.0, 4.0, 9), ("c", 2.0, 6.0, 9)).places()
    assert places == [[None, None, 2, None], [None, 1, 1, None], [None, 2, None, None]]


def test_what_looks_equal_shares_a_place() -> None:
    places = table(("a", 1.001, 1.0, 9), ("b", 1.002, 2.0, 9), ("c", 0.5, 3.0, 9)).places()
    assert [row[1] for row in places] == [1, 1, 2]


def test_groups_compete_apart_and_missing_numbers_do_not_compete() -> None:
    rows = (("a", 1.0, None, 9), ("b", None, None, 9), ("c", 0.5, 1.0, 9), ("d", 0.4, 1.0, 9))
    places = table(*rows, groups=("x", "x", "y", "y")).places()
    assert [row[1] for row in places] == [None, None, 1, 2]


def test_markdown() -> None:
    lines = markdown(table(("a|b", 1.0, None, 1234), ("c", 2.0, 3.0, 9))).splitlines()
    assert lines[0] == "### Title"
    assert lines[4] == r"| a\|b | *1.00* | - | 1,234 |"
    assert lines[5] == "| c | **2.00** | 3.0 | 9 |"
    assert lines[-1] == "Note"


def test_latex_escapes_and_marks() -> None:
    text = latex(table((r"50% \a_b", 1.0, None, 1), ("c", 2.0, 3.0, 9)))
    assert r"50\% \textbackslash{}a\_b & \underline{1.00} & - & 1 \\" in text
    assert r"c & \textbf{2.00} & 3.0 & 9 \\" in text
    assert text.count(r"\begin{tabular}{lrrr}") == 1


def test_csv_keeps_full_numbers_and_states_places() -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(table(('a,"b', 1.23456, None, 1), ("c", 2.0, 3.0, 9))))))
    assert rows[0]["arm"] == 'a,"b'
    assert (rows[0]["score"], rows[0]["seconds"], rows[0]["score place"], rows[1]["score place"]) == (
        "1.23456",
        "",
        "2",
        "1",
    )


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        *((None, "-"), ("", ""), ("a", "a"), (0.0, "0.0000"), (1234.5, "1,234.5000"), (5e-5, "0.0001")),
        *((1e-9, "<0.0001"), (-1e-9, ">-0.0001")),
    ],
)
def test_what_is_merely_small_is_not_shown_as_zero(cell: str | float | None, shown: str) -> None:
    assert format_cell(cell, Column("p", 4)) == shown


def test_a_half_is_not_shown_as_zero_where_there_are_no_decimals() -> None:
    assert [format_cell(cell, Column("documents", 0)) for cell in (0.0, 0.5, 0.6, -0.2)] == ["0", "<1", "1", ">-1"]
