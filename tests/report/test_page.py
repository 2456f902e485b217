"""The HTML report leads with the answer, holds every sample, and treats all text as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lm_eval_latentmas.relay_probe import UPSTREAM_MARK
from lm_eval_latentmas.report.answer import answer
from lm_eval_latentmas.report.contents import pictures_of, tables_of
from lm_eval_latentmas.report.findings import Findings, read_findings
from lm_eval_latentmas.report.page import embedded_json, page
from lm_eval_latentmas.report.sample_data import SHOWN_CHARACTERS, sample_data

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!-- & ' \" \u2028 \ud800"


class Elements(HTMLParser):
    """Collects start tags with their attributes, and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts[-1] += data


def parsed(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    return elements


@pytest.fixture
def findings(write_run: Callable[..., Path]) -> Findings:
    for seed in (4, 44):
        write_run({"sums": [1] * 50 + [0] * 10}, compressor="full", seed=seed, relay_bytes=9000)
        write_run({"sums": [1] * 20 + [0] * 40}, compressor="gen", seed=seed, relay_bytes=900)
        last = write_run({"sums": [1] * 49 + [0] * 11}, compressor="h-obf", seed=seed, relay_bytes=2000)
    return read_findings([last.parent])


def test_the_answer_claims_what_the_tests_show(findings: Findings) -> None:
    worse, unclear, smallest = answer(findings)
    assert worse.startswith("Worse than full on sums: gen (-50.0 points")
    assert unclear.startswith("Not distinguishable from full on sums: h-obf (-1.7 points")
    assert re.search(r"a difference of \d+\.\d points would have shown; [\d,]+ documents would be needed", unclear)
    assert smallest.endswith("not shown to be worse: h-obf, 0.012 MB per sample, 4.5 times smaller than full's.")


def test_the_answer_says_what_the_controls_show(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1] * 50 + [0] * 10}, compressor="full", relay_bytes=9000)
    write_run({"sums": [1] * 50 + [0] * 10}, compressor="full", relay="shuffled", relay_bytes=9)
    last = write_run({"sums": [1] * 10 + [0] * 50}, compressor="full", relay="none", relay_bytes=0)
    shuffled, none = answer(read_findings([last.parent]))
    assert shuffled == (
        "With another document's relay (shuffled, +0.0 points) the judger is not shown to do worse: "
        "these scores can't tell what a relay carries."
    )
    assert none.startswith("Without a relay (none, -66.7 points")
    assert none.endswith("its relay carries something that it uses.")


def test_a_small_relay_with_an_interval_below_zero_is_not_named(write_run: Callable[..., Path]) -> None:
    """Five lost documents of 16 are not significant, but no reason to recommend the arm either."""
    write_run({"sums": [1] * 6 + [0] * 10}, compressor="full", relay_bytes=9000)
    write_run({"sums": [1] + [0] * 15}, compressor="gen", relay_bytes=900)
    last = write_run({"sums": [1] * 5 + [0] * 11}, compressor="h-obf", relay_bytes=2000)
    findings = read_findings([last.parent])
    assert not any(c.distinguishable for c in findings.comparisons)
    assert "not shown to be worse: h-obf" in answer(findings)[-1]


def test_one_arm_is_not_compared(dummy_folder: Path) -> None:
    findings = read_findings([dummy_folder])
    assert answer(findings) == ["Only dummy was run: there is nothing to compare it with."]
    assert "<table" in page(findings)


def test_a_refused_comparison_is_in_the_answer(write_run: Callable[..., Path]) -> None:
    write_run({"sums": [1, 0]}, compressor="full")
    last = write_run({"sums": [1, 0]}, compressor="gen", version=2.0)
    assert "gen: not compared: sums: versions 1.0 and 2.0" in answer(read_findings([last.parent]))[0]


def test_the_page_holds_answer_tables_pictures_and_samples(findings: Findings) -> None:
    html = page(findings, paper=True)
    assert html.index("Worse than full") < html.index("<table")
    tags = parsed(html).tags
    anchors = {attributes.get("id") for tag, attributes in tags if tag == "section"}
    assert {table.name for table in tables_of(findings, paper=True)} <= anchors
    images = [attributes for tag, attributes in tags if tag == "img"]
    assert [image["alt"] for image in images] == [picture.text for picture in pictures_of(findings)]
    assert "h-obf over headwise" in html


def test_nothing_comes_from_elsewhere(findings: Findings) -> None:
    html = page(findings)
    tags = parsed(html).tags
    for tag, attributes in tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/svg+xml")), (tag, attributes)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", html)


def test_the_policy_allows_exactly_the_own_style_and_script(findings: Findings) -> None:
    html = page(findings)
    policy = next(a["content"] for tag, a in parsed(html).tags if a.get("http-equiv"))
    own = re.search(r"<script>(.*?)</script>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_text_of_models_and_data_sets_is_inert(write_run: Callable[..., Path]) -> None:
    def hostile(row: dict[str, Any]) -> dict[str, Any]:
        changes = {"resps": [[HOSTILE]], "filtered_resps": [HOSTILE], "doc": {"question": HOSTILE}, "target": HOSTILE}
        return row | changes

    plain = parsed(page(read_findings([write_run({"sums": [1, 0]}, compressor="full").parent])))
    last = write_run({"sums": [1, 0]}, compressor=HOSTILE[:60], folder="hostile", edit=hostile)
    html = page(read_findings([last.parent]))
    attacked = parsed(html)
    assert len(attacked.scripts) == len(plain.scripts) == 2
    assert [tag for tag, _ in attacked.tags].count("img") == [tag for tag, _ in plain.tags].count("img")
    assert json.loads(attacked.scripts[0])["tasks"][0]["answers"][0]["text"][0] == HOSTILE
    html.encode("utf-8")


def test_embedded_json_reads_back() -> None:
    data = {"text": HOSTILE, "number": None, "list": [1.5, True]}
    text = embedded_json(data)
    assert json.loads(text) == data
    assert not set("<>&") & set(text)


def test_samples_carry_what_the_browser_shows(findings: Findings) -> None:
    data = sample_data(findings)
    assert (data["arms"], data["reference"]) == (["full", "gen", "h-obf"], 0)
    task = data["tasks"][0]
    assert len(task["documents"]) == 60
    assert task["documents"][3] == {
        "id": 3,
        "question": "sums question 3",
        "prompt": "Q: sums question 3",
        "asked": "Q: sums question 3",
        "target": "target 3",
    }
    assert [(run["arm"], run["seed"]) for run in task["answers"]] == [(0, 4), (0, 44), (1, 4), (1, 44), (2, 4), (2, 44)]
    assert task["answers"][2]["score"] == [1.0] * 20 + [0.0] * 40
    assert task["answers"][0]["truncated"][:2] == [True, False]
    assert task["answers"][0]["tokens"][:2] == [40, 41]


PROMPT_SET = {
    "source": "default",
    "system": "Be brief.",
    "agents": [
        {"name": "planner", "prompt": "Plan: {question}"},
        {"name": "judger", "prompt": "You hold a plan. {question} {answer_form}", "text": "{messages} {question}"},
    ],
    "answer_styles": {"free": "In your own words.", "number": "As a number."},
    "tasks": {"*sums*": "number", "*": "free"},
}
PLANNER = {"name": "planner", "prompt": "Be brief.\n\nPlan: {question}"}
JUDGER = {"name": "judger", "prompt": "Be brief.\n\nYou hold a plan. {question} As a number."}


def tell_prompts(path: Path) -> None:
    """Let a results file tell its prompt set."""
    results = json.loads(path.read_text())
    results["config"]["latentmas"]["prompt_set"] = PROMPT_SET
    path.write_text(json.dumps(results))


def test_prompts_of_the_agents_are_told_by_the_results(write_run: Callable[..., Path]) -> None:
    path = write_run({"sums": [1]}, compressor="full", relay_bytes=9)
    tell_prompts(path)
    prompts = sample_data(read_findings([path]))["tasks"][0]["prompts"]
    assert prompts == [{"arms": [0], "agents": [PLANNER, JUDGER]}]


def test_each_mode_has_the_prompts_that_its_agents_were_shown(write_run: Callable[..., Path]) -> None:
    modes = [{}, {"mode": "text"}, {"mode": "single"}, {"relay": "none"}, {"positions": "compact"}]
    for changes in modes:
        last = write_run({"sums": [1]}, compressor="full", relay_bytes=9, **changes)
        tell_prompts(last)
    data = sample_data(read_findings([last.parent]))
    arms = {json.dumps(prompts["agents"]): prompts["arms"] for prompts in data["tasks"][0]["prompts"]}
    written = {"name": "judger", "prompt": "Be brief.\n\n{messages} {question}"}
    assert len(data["arms"]) == len(modes)
    assert [len(arms[json.dumps(agents)]) for agents in ([PLANNER, JUDGER], [PLANNER, written], [JUDGER])] == [2, 1, 2]


def test_a_marked_prompt_is_shown_in_parts(write_run: Callable[..., Path]) -> None:
    prompt = {"gen_args_0": {"arg_0": f"the code is lumago{UPSTREAM_MARK}What is the code?"}}
    doc = {"question": "What is the code?"}
    path = write_run({"probe": [1]}, edit=lambda row: row | {"arguments": prompt, "doc": doc})
    document = sample_data(read_findings([path]))["tasks"][0]["documents"][0]
    assert (document["prompt"], document["asked"]) == ("the code is lumago", None)


def test_long_answers_say_what_was_left_out(write_run: Callable[..., Path]) -> None:
    long = "a" * SHOWN_CHARACTERS + "b" * 1000
    path = write_run({"sums": [1]}, edit=lambda row: row | {"resps": [[long]]})
    text = sample_data(read_findings([path]))["tasks"][0]["answers"][0]["text"][0]
    assert "[... 1,000 characters left out ...]" in text
    assert text.endswith("b" * 1000)
