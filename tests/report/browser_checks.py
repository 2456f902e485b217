"""The report in a real browser: `make test-browser`, which needs Chromium and Playwright. No part of `make test`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from lm_eval_latentmas.report.findings import read_findings
from lm_eval_latentmas.report.page import page

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "no Chromium found: apt-get install chromium"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Callable[..., Page]:
    def open_report(folder: Path, width: int = 1200) -> Page:
        path = tmp_path / "report.html"
        path.write_text(page(read_findings([folder])), encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": 850})
        tab.said = []
        tab.on("console", lambda message: tab.said.append(message.text))
        tab.on("pageerror", lambda error: tab.said.append(str(error)))
        tab.on("request", lambda request: tab.said.append(request.url) if request.url.startswith("http") else None)
        tab.goto(path.as_uri())
        return tab

    return open_report


@pytest.fixture
def results(write_run: Callable[..., Path]) -> Path:
    def hostile(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"resps": [[HOSTILE]], "doc": {"question": HOSTILE}} if row["doc_id"] == 7 else row

    for seed in (4, 44):
        write_run({"sums": [1] * 50 + [0] * 10}, compressor="full", seed=seed, relay_bytes=9000, edit=hostile)
        last = write_run({"sums": [1] * 40 + [0] * 15 + [1] * 5}, compressor="gen", seed=seed, relay_bytes=90)
    return last.parent


@pytest.mark.parametrize("width", [390, 1200])
def test_it_opens_without_a_word_on_the_console_and_fits_the_screen(
    opened: Callable[..., Page], results: Path, width: int
) -> None:
    tab = opened(results, width)
    assert tab.said == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("img").evaluate_all("images => images.every(image => image.naturalWidth > 0)")


def test_tables_sort_both_ways(opened: Callable[..., Page], results: Path) -> None:
    tab = opened(results)
    head = tab.locator("#costs th", has_text="relay MB")
    column = tab.locator("#costs tbody tr td:nth-child(2)")
    head.get_by_role("button").click()
    assert [float(text) for text in column.all_inner_texts()] == [0.001, 0.054]
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert [float(text) for text in column.all_inner_texts()] == [0.054, 0.001]


@pytest.mark.parametrize(
    ("show", "documents"), [("all", 60), ("lost", 10), ("won", 5), ("right", 40), ("wrong", 5), ("truncated", 1)]
)
def test_filters(opened: Callable[..., Page], results: Path, show: str, documents: int) -> None:
    tab = opened(results)
    tab.select_option("#show", show)
    assert tab.inner_text("#count") == f"{documents} of 60 documents"


def test_search_pages_and_details(opened: Callable[..., Page], results: Path) -> None:
    tab = opened(results)
    assert tab.inner_text("#where") == "1 to 25"
    tab.click("#next")
    tab.click("#next")
    assert tab.inner_text("#where") == "51 to 60"
    assert tab.locator("#next").is_disabled()
    tab.fill("#find", "question 13")
    assert tab.inner_text("#count") == "1 of 60 documents"
    tab.locator("#list summary").first.click()
    inside = tab.locator("#list .inside")
    assert inside.locator(".answers > div").count() == 4
    assert "the answer is 13" in inside.inner_text()


def test_hostile_text_is_shown_and_not_run(opened: Callable[..., Page], results: Path) -> None:
    tab = opened(results)
    tab.fill("#find", "</script>")
    tab.locator("#list summary").first.click()
    assert HOSTILE in tab.locator("#list pre").first.inner_text()
    assert tab.evaluate("window.broken") is None
    assert tab.said == []


def test_arms_of_two_modes_show_the_prompts_of_both(
    opened: Callable[..., Page], write_run: Callable[..., Path]
) -> None:
    agents = [{"name": "planner", "prompt": "P {question}"}, {"name": "judger", "prompt": "J", "text": "T {messages}"}]
    told = {"source": "", "system": "", "agents": agents, "answer_styles": {"free": ""}, "tasks": {"*": "free"}}
    for mode in ("latent", "text"):
        path = write_run({"sums": [1, 0]}, compressor="full", relay_bytes=9, mode=mode)
        results = json.loads(path.read_text())
        results["config"]["latentmas"]["prompt_set"] = told
        path.write_text(json.dumps(results))
    tab = opened(path.parent)
    tab.locator("#list summary").first.click()
    tab.locator("#list .inside > details summary").first.click()
    shown = tab.locator("#list .inside > details").first.inner_text()
    assert shown.startswith("4 prompts")
    assert [shown.count(text) for text in ("P Q: sums question 0", "\nJ", "T {messages}")] == [2, 1, 1]
    assert all(f"judger {arm}" in shown for arm in ("full", "text")), shown
    assert tab.said == []


def test_ten_thousand_samples_open_in_three_seconds(
    browser: Browser, opened: Callable[..., Page], write_run: Callable[..., Path]
) -> None:
    words = "the number of jars in a crate is twelve and so " * 30
    for compressor in ("full", "gen", "h-obf", "l-obf"):
        last = write_run(
            {"sums": [1, 0] * 1250},
            compressor=compressor,
            relay_bytes=9,
            edit=lambda row: row | {"resps": [[f"{words} {row['doc_id']}"]]},
        )
    started = time.perf_counter()
    tab = opened(last.parent)
    loaded = tab.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart") / 1000
    assert tab.inner_text("#count") == "2500 of 2500 documents"
    print(f"10,000 samples: opened in {loaded:.2f} s, written and opened in {time.perf_counter() - started:.1f} s")
    assert loaded < 3
