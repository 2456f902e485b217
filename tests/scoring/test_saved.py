"""`latentmas-obf score` and what it reads."""

from __future__ import annotations

import json

import pytest

from lm_eval_latentmas.cli import main
from lm_eval_latentmas.scoring.saved import grade_saved, read_saved

ROW = {"question": "What is 3 + 4?", "answer": "3 + 4 is 7.\n#### 7"}
DOC = {"id": "q1", "question": "What is 3 + 4?", "gold": "7"}


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def sample(response, doc=DOC, filter_key="none", **fields):
    return {"doc_id": 0, "doc": doc, "resps": [response], "filtered_resps": [response], "filter": filter_key, **fields}


def graded(path, benchmark="gsm8k"):
    return [(row["line"], row["repeat"], row["verdict"]) for row in grade_saved(benchmark, read_saved(path, benchmark))]


def test_rows_of_the_data_set_are_graded_with_their_responses(tmp_path):
    answers = write(
        tmp_path / "a.jsonl", {"doc": ROW, "response": "7"}, {"doc": ROW, "response": "8"}, {"doc": ROW, "response": ""}
    )
    assert graded(answers) == [(1, 0, "correct"), (2, 0, "wrong"), (3, 0, "no answer")]


def test_a_samples_file_is_graded_with_all_repeats_and_one_filter(tmp_path):
    samples = write(
        tmp_path / "samples.jsonl",
        sample(["7", "8"]),
        sample(["7"], doc=ROW),
        sample(["7", "8"], filter_key="other"),
    )
    assert graded(samples) == [(1, 0, "correct"), (1, 1, "wrong"), (2, 0, "correct")]


def test_a_choice_is_graded_by_the_letters_that_were_shown(tmp_path):
    choices = {"text": ["red", "green", "blue"], "label": ["1", "2", "3"]}
    row = {"id": "q", "question": "Which?", "choices": choices, "answerKey": "2"}
    assert graded(write(tmp_path / "a.jsonl", {"doc": row, "response": "(B)"}), "arc_easy") == [(1, 0, "correct")]


WRONG = [
    ({"doc": ROW}, "line 1: needs a text in field 'response'"),
    ({"doc": ROW, "response": 7}, "line 1: needs a text in field 'response'"),
    ({"response": "7"}, "line 1: field 'doc' must be a row"),
    ({"doc": {"question": "What?"}, "response": "7"}, "line 1: in 'doc': field 'answer' is missing"),
    (["no object"], "line 1: a row must be a JSON object"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_a_wrong_line_is_named(tmp_path, line, message, capsys):
    path = write(tmp_path / "a.jsonl", line)
    assert main(["score", "--task", "latentmas_gsm8k", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error
    assert error.count("\n") == 1


def test_the_command_writes_a_line_for_each_response_and_a_summary(tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", {"doc": ROW, "response": "\\boxed{7} \ud800"}, {"doc": ROW, "response": "none"})
    assert main(["score", "--task", "gsm8k", str(path)]) == 0
    output = capsys.readouterr()
    first, second = map(json.loads, output.out.splitlines())
    assert (first["answer"], first["correct"], first["verdict"]) == ("7", True, "correct")
    assert "box" in first["reason"]
    assert (second["answer"], second["correct"], second["verdict"]) == (None, False, "no answer")
    assert "2 responses: 1 correct (0.5000), 1 without an answer" in output.err


def test_the_command_writes_to_a_file(tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", {"doc": ROW, "response": "7"})
    assert main(["score", "--task", "latentmas_gsm8k", str(path), "--output", str(tmp_path / "out.jsonl")]) == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["correct"] is True
    assert capsys.readouterr().out == ""


def test_an_unknown_task_is_answered_with_the_nearest(tmp_path, capsys):
    assert main(["score", "--task", "latentmas_gsm8", str(tmp_path / "a.jsonl")]) == 2
    assert "did you mean 'latentmas_gsm8k'?" in capsys.readouterr().err


def test_code_is_not_run_without_consent(tmp_path, capsys):
    path = tmp_path / "not there.jsonl"
    assert main(["score", "--task", "latentmas_mbpp_plus", str(path)]) == 2
    assert "--confirm_run_unsafe_code" in capsys.readouterr().err
