"""Pictures show the numbers they were given, differ without colour, and leave matplotlib's global state alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from lm_eval_latentmas.report.arms import Arm, find_arm, gather_arms
from lm_eval_latentmas.report.comparison import compare_arms
from lm_eval_latentmas.report.pictures import costs, scores
from lm_eval_latentmas.report.pictures.canvas import data_uri, save, sheet, styles
from lm_eval_latentmas.report.reading import find_results
from lm_eval_latentmas.report.runs import load_runs

TASKS = ["sums", "picks"]


@pytest.fixture
def arms(write_run: Callable[..., Path]) -> list[Arm]:
    for budget in (8, 16, 32):
        for compressor, right in (("headwise", 20 + budget), ("h-obf", 25 + budget)):
            values = {"sums": [1] * right + [0] * (60 - right), "picks": [1, 0] * 30}
            write_run(values, compressor=compressor, kv_budget=budget, relay_bytes=100 * budget)
    last = write_run({"sums": [1] * 58 + [0] * 2, "picks": [1, 0] * 30}, compressor="full", relay_bytes=9000)
    return gather_arms(load_runs(find_results([last.parent])[0]))[0]


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([(1, 5), (2, 9), (3, 7), (4, 10)], [0, 1, 3]),
        ([(1, 5), (1, 6), (2, 6)], [1]),
        ([(1, 5), (1, 5)], [0, 1]),
        ([], []),
    ],
)
def test_the_front_holds_what_nothing_beats(points: list[tuple[float, float]], front: list[int]) -> None:
    assert costs.pareto_front(points) == front


def test_the_front_is_named(arms: list[Arm]) -> None:
    picture = costs.pareto(arms, TASKS)
    assert picture.text == "On the front: full, h-obf kv_budget=8, h-obf kv_budget=16, h-obf kv_budget=32."
    labels = picture.figure.axes[0].get_legend_handles_labels()[1]
    assert labels == [arm.name for arm in arms]


def test_bars_add_up_to_the_total(arms: list[Arm]) -> None:
    picture = costs.cost_stacks(arms, TASKS)
    bars = picture.figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(len(arms) * (1 + 0.1 + 3))
    assert len({bar.get_hatch() for bar in bars}) == 3


def test_only_distinguishable_differences_are_filled(arms: list[Arm]) -> None:
    picture = scores.differences(compare_arms(arms, find_arm(arms, None)), arms)
    assert "headwise kv_budget=8 on sums: -50.0" in picture.text
    assert "picks" not in picture.text
    picks = next(panel for panel in picture.figure.axes if panel.get_title() == "picks")
    markers = [line for line in picks.lines if line.get_marker() != "None"]
    assert {line.get_markerfacecolor() for line in markers} == {"white"}


def test_an_arm_looks_the_same_in_every_picture(arms: list[Arm]) -> None:
    compared = compare_arms(arms, find_arm(arms, None))
    last = arms[-1].name
    panel = scores.differences(compared, arms).figure.axes[0]
    place = [text.get_text() for text in panel.get_yticklabels()].index(last)
    drawn = [line for line in panel.lines if line.get_marker() != "None" and list(line.get_ydata()) == [place]]
    spots = {line.get_label(): line for line in costs.pareto(arms, TASKS).figure.axes[0].lines}
    assert drawn[0].get_color() == spots[last].get_color()
    assert drawn[0].get_marker() == spots[last].get_marker()


def test_a_sweep_draws_every_value_and_full(arms: list[Arm]) -> None:
    picture = scores.sweeps(arms, "kv_budget", TASKS)
    panel = picture.figure.axes[0]
    drawn = {line.get_label(): list(line.get_xdata()) for line in panel.lines}
    assert drawn["h-obf"] == drawn["headwise"] == [8, 16, 32]
    assert "full" in drawn


def test_the_fit_is_drawn_and_said(arms: list[Arm]) -> None:
    picture = scores.recovery(arms)
    assert picture.text.startswith("headwise, 6 cells: slope")


def test_nothing_is_drawn_without_data(dummy_folder: Path) -> None:
    dummy = gather_arms(load_runs(find_results([dummy_folder])[0]))[0]
    assert costs.pareto(dummy, TASKS) is None
    assert costs.cost_stacks(dummy, TASKS) is None
    assert costs.score_against_tokens(dummy, TASKS) is None
    assert scores.differences([], []) is None
    assert scores.sweeps(dummy, "kv_budget", TASKS) is None
    assert scores.recovery(dummy) is None


def test_files_are_png_and_svg_and_equal_data_gives_equal_pixels(arms: list[Arm], tmp_path: Path) -> None:
    png, svg = save(costs.pareto(arms, TASKS), tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    before = png.read_bytes()
    assert save(costs.pareto(arms, TASKS), tmp_path)[0].read_bytes() == before
    assert data_uri(costs.pareto(arms, TASKS)).startswith("data:image/svg+xml;base64,")


def test_neighbours_differ_in_brightness_and_no_style_repeats() -> None:
    looks = list(styles([str(index) for index in range(40)]).values())
    assert len({(look.marker, look.colour) for look in looks}) == 40

    def brightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return (0.299 * red + 0.587 * green + 0.114 * blue) / 255

    assert all(abs(brightness(a.colour) - brightness(b.colour)) > 0.1 for a, b in pairwise(looks))


def test_spare_panels_stay_empty() -> None:
    figure, panels = sheet(3)
    assert len(panels) == 3
    assert not figure.axes[3].axison


def test_global_state_is_left_alone() -> None:
    code = (
        "import sys, matplotlib\n"
        "before = matplotlib.rcParams.copy()\n"
        "from lm_eval_latentmas.report.pictures.canvas import Picture, data_uri, sheet\n"
        "figure, (panel,) = sheet(); panel.plot([1, 2]); data_uri(Picture('p', 't', '', figure))\n"
        "assert matplotlib.rcParams.copy() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
