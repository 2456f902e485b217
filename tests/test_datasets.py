"""Where rows come from: local folders, the Hub, release files; and what is said when they cannot be had."""

from __future__ import annotations

import gzip
import http.server
import json
import math
import re
import threading
from dataclasses import replace

import datasets as hub
import pytest

from lm_eval_latentmas import datasets
from lm_eval_latentmas.benchmarks import BENCHMARKS, benchmarks_of

ROW = {"question": "What is 3 + 4?", "answer": "3 + 4 is 7.\n#### 7"}
PROBLEM = {
    "task_id": "Mbpp/1",
    "prompt": '"""\nAdd.\nassert add(1, 2) == 3\n"""\n',
    "entry_point": "add",
    "canonical_solution": "def add(a, b):\n    return a + b\n",
    "base_input": [[2**70, 1], [[1, "a"], []]],
    "plus_input": [[math.inf, 1.0]],
    "atol": 0,
}


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("LATENTMAS_DATA_DIR", raising=False)


def write(folder, name, *rows):
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_documents_come_from_the_folder_that_is_given_or_named(tmp_path, monkeypatch):
    write(tmp_path, "gsm8k", ROW, ROW | {"question": "And 2 + 5?"})
    given = datasets.load("gsm8k", tmp_path)
    monkeypatch.setenv("LATENTMAS_DATA_DIR", str(tmp_path))
    assert given == datasets.load("gsm8k")
    assert [document["gold"] for document in given] == ["7", "7"]
    assert list(given.features) == ["id", "question", "gold"]


def test_a_given_folder_comes_before_the_named_one(tmp_path, monkeypatch):
    write(tmp_path, "gsm8k", ROW)
    monkeypatch.setenv("LATENTMAS_DATA_DIR", str(tmp_path / "elsewhere"))
    assert len(datasets.load("gsm8k", tmp_path)) == 1


def test_the_harness_passes_metadata_of_which_the_folder_counts(tmp_path):
    write(tmp_path, "gsm8k", ROW)
    found = datasets.splits("gsm8k", data_dir=str(tmp_path), version=1.0, pretrained="model", revision="main")
    assert len(found["test"]) == 1


def test_the_demo_needs_neither_network_nor_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LATENTMAS_DATA_DIR", str(tmp_path))
    demo = datasets.load("demo")
    assert len(demo) == len({document["id"] for document in demo}) == 10
    assert all(re.fullmatch(r"\d+", document["gold"]) for document in demo)


def test_rows_keep_what_arrow_would_refuse(tmp_path):
    write(tmp_path, "mbpp_plus", PROBLEM)
    (document,) = datasets.load("mbpp_plus", tmp_path)
    assert document["base_input"] == PROBLEM["base_input"]
    assert document["plus_input"] == [[math.inf, 1.0]]


def test_a_gzipped_file_is_read_like_a_plain_one(tmp_path):
    (tmp_path / "gsm8k.jsonl").write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert len(datasets.load("gsm8k", tmp_path)) == 1


BROKEN = {
    "missing": (None, r"gsm8k\.jsonl: no such file"),
    "empty": (b"", r"gsm8k\.jsonl: the file is empty"),
    "cut off": (json.dumps(ROW).encode() + b'\n{"question": "Wh', r"line 2: not JSON .* cut off"),
    "no JSON": (b"question,answer\n", r"line 1: not JSON"),
    "no object": (b"[1, 2]\n", r"line 1: a row must be a JSON object, not list"),
    "no text": (b"\xff\xfe\x00", r"line 1: damaged or cut off"),
    "cut off archive": (gzip.compress(json.dumps(ROW).encode() * 50)[:40], r"line 1: damaged or cut off"),
    "another schema": (
        b'{"problem": "Find x.", "answer": "a #### 7"}\n',
        r"line 1: field 'question' is missing or null; the row has",
    ),
    "a document of wrong values": (
        b'{"id": "1", "question": null, "gold": "7"}\n',
        r"line 1: field 'question' must be a text",
    ),
    "a wrong value": (
        json.dumps(ROW).encode() + b'\n{"question": "Why?", "answer": 7}\n',
        r"line 2: field 'answer' must be a",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_line_and_field_in_one_line(tmp_path, case):
    content, message = BROKEN[case]
    if content is not None:
        (tmp_path / "gsm8k.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        datasets.load("gsm8k", tmp_path)
    assert str(tmp_path / "gsm8k.jsonl") in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'gsm8k'"):
        datasets.load("gsm8")


def test_the_hub_is_asked_for_the_pinned_revision(monkeypatch):
    asked = {}

    def load_dataset(path, name, **options):
        asked.update(path=path, name=name, **options)
        return hub.Dataset.from_list([ROW])

    monkeypatch.setattr(hub, "load_dataset", load_dataset)
    assert datasets.load("gsm8k")[0]["gold"] == "7"
    assert asked == {"path": "openai/gsm8k", "name": "main", "split": "test", "revision": BENCHMARKS["gsm8k"].revision}


def test_provenance_tells_source_and_content(tmp_path):
    path = write(tmp_path, "gsm8k", ROW)
    first = datasets.provenance(["latentmas_gsm8k", "hellaswag"], tmp_path)
    assert first["gsm8k"].items() >= {"source": str(path), "documents": 1}.items()
    assert list(first) == ["gsm8k"]
    assert datasets.provenance(["latentmas_gsm8k"], tmp_path) == first
    write(tmp_path, "gsm8k", ROW | {"question": "What is 4 + 3?"})
    assert datasets.provenance(["latentmas_gsm8k"], tmp_path)["gsm8k"]["sha256"] != first["gsm8k"]["sha256"]


def test_a_source_of_the_hub_is_told_with_its_commit():
    assert datasets.source_of("gsm8k") == f"openai/gsm8k@{BENCHMARKS['gsm8k'].revision}"
    assert datasets.source_of("mbpp_plus").endswith("/v0.2.0/MbppPlus.jsonl.gz")


def test_every_data_set_of_the_hub_is_pinned_to_a_commit():
    hubs = [benchmark for benchmark in BENCHMARKS.values() if benchmark.hub]
    assert all(re.fullmatch("[0-9a-f]{40}", benchmark.revision) and benchmark.hub.count("/") == 1 for benchmark in hubs)


def refuse(monkeypatch, error):
    def load_dataset(*arguments, **options):
        raise error

    monkeypatch.setattr(hub, "load_dataset", load_dataset)


GATED = hub.exceptions.DatasetNotFoundError(
    "Dataset 'Idavidrein/gpqa' is a gated dataset on the Hub.\nYou must log in."
)


def test_gated_data_are_named_with_the_two_steps_to_take(monkeypatch):
    refuse(monkeypatch, GATED)
    with pytest.raises(ValueError, match="gated") as error:
        datasets.check_access(["latentmas_expert_qa"])
    message = str(error.value)
    assert "Idavidrein/gpqa" in message
    assert (
        message.index("1. ") < message.index("https://huggingface.co/datasets/Idavidrein/gpqa") < message.index("2. ")
    )
    assert "hf auth login" in message
    assert "\n" not in message


def test_a_hub_out_of_reach_is_told_apart_from_gated_data(monkeypatch):
    refuse(monkeypatch, ConnectionError("Couldn't reach the Hub"))
    with pytest.raises(ValueError, match=r"openai/gsm8k cannot be read .*Couldn't reach the Hub") as error:
        datasets.load("gsm8k")
    assert "gated" not in str(error.value)
    assert "LATENTMAS_DATA_DIR" in str(error.value)


def test_access_is_checked_for_the_tasks_that_are_asked_for_and_no_others(tmp_path, monkeypatch):
    refuse(monkeypatch, GATED)
    datasets.check_access(["gsm8k", "hellaswag", "latentmas_demo"])
    write(tmp_path, "gsm8k", ROW)
    datasets.check_access(["latentmas_gsm8k"], tmp_path)
    with pytest.raises(ValueError, match="aime24"):
        datasets.check_access(["latentmas_math"], tmp_path)


def test_groups_and_patterns_stand_for_their_benchmarks():
    assert set(benchmarks_of(["latentmas_suite"])) == set(BENCHMARKS) - {"demo"}
    assert benchmarks_of(["latentmas_coding"]) == ["mbpp_plus", "humaneval_plus"]
    assert sorted(benchmarks_of(["latentmas_a*"])) == ["aime24", "aime25", "arc_challenge", "arc_easy"]
    assert benchmarks_of(["arc_easy", "mmlu"]) == []


@pytest.fixture
def release():
    """A server with a release file; yields the file's address, and the server, for it to be stopped."""
    content = gzip.compress((json.dumps(PROBLEM) + "\n").encode())

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/MbppPlus.jsonl.gz", server
    server.shutdown()
    server.server_close()


def test_a_release_file_is_fetched_once_and_needs_no_network_afterwards(release, tmp_path, monkeypatch):
    url, server = release
    monkeypatch.setitem(BENCHMARKS, "mbpp_plus", replace(BENCHMARKS["mbpp_plus"], url=url))
    monkeypatch.setattr(hub.config, "DOWNLOADED_DATASETS_PATH", tmp_path)
    monkeypatch.setattr(hub.config, "HF_HUB_OFFLINE", False)
    first = datasets.load("mbpp_plus")
    assert first[0]["base_input"] == PROBLEM["base_input"]
    server.shutdown()
    monkeypatch.setattr(hub.config, "HF_HUB_OFFLINE", True)
    assert datasets.load("mbpp_plus") == first
    monkeypatch.setattr(hub.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "empty")
    with pytest.raises(ValueError, match=r"mbpp_plus: http.* cannot be read"):
        datasets.load("mbpp_plus")
