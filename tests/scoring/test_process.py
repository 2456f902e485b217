from __future__ import annotations

import pytest

from lm_eval_latentmas.records import Record, Response
from lm_eval_latentmas.scoring import process

NUMBER = {"gold": "7"}
CHOICE = {"gold": "B", "choices": ["red", "green"], "letters": ["A", "B"]}


def response(text: str, stop: str = "eos") -> Response:
    return Response(text, Record("task", 0, 0, text, stop=stop))


def test_one_response_has_accuracy_and_whether_there_was_an_answer():
    assert process.number(NUMBER, [["\\boxed{7}"]]) == {"acc": 1.0, "no_answer": 0.0}
    assert process.number(NUMBER, [["\\boxed{8}"]]) == {"acc": 0.0, "no_answer": 0.0}
    assert process.number(NUMBER, [["nothing"]]) == {"acc": 0.0, "no_answer": 1.0}
    assert process.choice(CHOICE, [["B"]]) == {"acc": 1.0, "no_answer": 0.0}


def test_a_single_text_counts_like_a_list_of_one():
    assert process.number(NUMBER, ["7"]) == process.number(NUMBER, [["7"]])


def test_several_responses_have_their_mean_and_their_majority():
    metrics = process.number(NUMBER, [["\\boxed{7}", "\\boxed{7.0}", "\\boxed{3}", "none"]])
    assert metrics == {"acc": 0.5, "no_answer": 0.25, "majority": 1.0}
    assert process.choice(CHOICE, [["A", "A", "B"]])["majority"] == 0.0


def test_an_answer_that_most_leave_out_is_still_the_majority():
    assert process.number(NUMBER, [["none", "none", "7"]])["majority"] == 1.0
    assert process.number(NUMBER, [["none", "none"]])["majority"] == 0.0


@pytest.mark.parametrize("metrics", [process.number, process.choice])
def test_truncation_is_told_only_where_the_model_tells(metrics):
    doc = NUMBER | CHOICE if metrics is process.choice else NUMBER
    assert "truncated" not in metrics(doc, [["7"]])
    assert "truncated" not in metrics(doc, [[Response("7")]])
    assert metrics(doc, [[response("7")]])["truncated"] == 0.0
    assert metrics(doc, [[response("7", "length"), response("7", "until")]])["truncated"] == 0.5
