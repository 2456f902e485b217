"""Rows of every benchmark, in every spelling, as documents."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lm_eval_latentmas import documents


@pytest.mark.parametrize(("written", "gold"), [("7", "7"), ("2,125", "2125"), ("-10", "-10"), (" 70000 ", "70000")])
def test_the_gold_number_of_gsm8k_stands_behind_its_mark(written, gold):
    document = documents.gsm8k({"question": "How many?", "answer": f"One step.\n#### {written}"})
    assert (document["question"], document["gold"]) == ("How many?", gold)


AIME = [
    {"ID": "2024-I-1", "Problem": "Find x.", "Solution": "long", "Answer": 25},
    {"id": "2024-I-1", "problem": "Find x.", "answer": "025"},
    {"id": "2024-I-1", "problem": "Find x.", "answer": "25"},
    {"id": "2024-I-1", "question": "Find x.", "answer": 25.0},
]


@pytest.mark.parametrize("row", AIME)
def test_all_spellings_of_aime_give_the_same_document(row):
    assert documents.number_problem(row) == {"id": "2024-I-1", "question": "Find x.", "gold": "25"}


MENDED = [
    ("\x0crac{1}{2}", r"\frac{1}{2}"),
    ("of $\triangle DEF$", r"of $\triangle DEF$"),
    ("$2\times 3$ and $\theta$", r"$2\times 3$ and $\theta$"),
    ("\x08eta", r"\beta"),
    ("(1)\right)", r"(1)\right)"),
    (r"\begin{cases} 1 & x \ 2 & y \end{cases}", r"\begin{cases} 1 & x \\ 2 & y \end{cases}"),
    (r"\begin{cases} 1 & x \\ 2 & y \end{cases}", r"\begin{cases} 1 & x \\ 2 & y \end{cases}"),
    (r"5\ \text{cm}", r"5\ \text{cm}"),
    ("a\tb\n\tc", "a\tb\n\tc"),
    (r"\frac{1}{2} \triangle", r"\frac{1}{2} \triangle"),
]


@pytest.mark.parametrize(("broken", "mended"), MENDED)
def test_latex_is_mended_where_backslashes_were_lost_and_only_there(broken, mended):
    assert documents.mend_latex(broken) == mended
    assert documents.mend_latex(mended) == mended
    assert documents.number_problem({"problem": f"Find {broken}.", "answer": 1})["question"] == f"Find {mended}."


@pytest.mark.parametrize("labels", ["ABC", "1234", "ABCDE", "123"])
def test_arc_shows_the_choices_that_exist_with_letters_from_a(labels):
    texts = ["red", "green", "blue", "grey", "white"][: len(labels)]
    row = {"id": "q", "question": "Which?", "choices": {"text": texts, "label": list(labels)}, "answerKey": labels[2]}
    document = documents.arc(row)
    assert (document["choices"], document["letters"], document["gold"]) == (texts, list("ABCDE"[: len(labels)]), "C")


def test_medqa_keeps_its_letters_and_the_options_in_their_order():
    row = {
        "question": "Which?",
        "options": {"B": "two", "A": "one", "D": "E", "C": "three"},
        "answer_idx": "D",
        "answer": "E",
    }
    document = documents.medqa(row)
    assert (document["choices"], document["letters"], document["gold"]) == (
        ["one", "two", "three", "E"],
        list("ABCD"),
        "D",
    )


def gpqa_row(number: int) -> dict[str, str]:
    wrong = {f"Incorrect Answer {i}": f"wrong {i} " for i in (1, 2, 3)}
    return {"Record ID": f"rec{number}", "Question": f"Which, in case {number}?", "Correct Answer": "right\n"} | wrong


def test_gpqa_moves_the_right_answer_to_every_place():
    shown = [documents.gpqa(gpqa_row(number)) for number in range(200)]
    assert all(document["choices"]["ABCD".index(document["gold"])] == "right" for document in shown)
    places = [sum(document["gold"] == letter for document in shown) for letter in "ABCD"]
    assert min(places) > 25


def test_gpqa_has_the_same_order_in_every_process():
    code = f"from lm_eval_latentmas import documents; print(documents.gpqa({gpqa_row(3)!r}))"
    processes = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    ]
    outputs = [process.stdout.strip() for process in processes]
    assert outputs[0] == outputs[1] == str(documents.gpqa(gpqa_row(3)))


def test_gpqa_owes_its_order_nothing_to_which_option_is_right():
    row = gpqa_row(5)
    swapped = row | {"Correct Answer": row["Incorrect Answer 2"], "Incorrect Answer 2": row["Correct Answer"]}
    assert documents.gpqa(row)["choices"] == documents.gpqa(swapped)["choices"]
    assert documents.gpqa(row)["gold"] != documents.gpqa(swapped)["gold"]


PROBLEM = {
    "task_id": "Mbpp/2",
    "prompt": '"""\nWrite a function to assert that two lists share something.\nassert shares([1], [1]) == True\n"""\n',
    "entry_point": "shares",
    "canonical_solution": "\n\ndef shares(a, b):\n    return bool(set(a) & set(b))\n",
    "base_input": [[[1], [2**70]]],
    "plus_input": {},
    "atol": 0,
}


def test_a_code_document_is_its_row_with_a_question():
    document = documents.mbpp_plus(PROBLEM)
    assert document.items() >= PROBLEM.items()
    assert (document["id"], document["gold"]) == ("Mbpp/2", PROBLEM["canonical_solution"])
    assert document["question"] == (
        "Write a function to assert that two lists share something.\n\nThe code must pass this test:\n\n"
        "```python\nassert shares([1], [1]) == True\n```"
    )


def test_humaneval_shows_signature_and_docstring():
    prompt = 'def f(x: int) -> int:\n    """ Double x.\n    """\n'
    document = documents.humaneval_plus(PROBLEM | {"task_id": "HumanEval/0", "prompt": prompt})
    assert f"```python\n{prompt.rstrip()}\n```" in document["question"]


def test_questions_without_an_id_get_a_stable_one_of_their_own():
    ids = [documents.gsm8k({"question": f"How many in case {n}?", "answer": "a\n#### 1"})["id"] for n in (1, 2, 1)]
    assert ids[0] == ids[2] != ids[1]


WRONG = [
    (documents.gsm8k, {"question": "How many?"}, "field 'answer' is missing or null; the row has question"),
    (documents.gsm8k, {"question": "How many?", "answer": "7"}, "has no '#### NUMBER'"),
    (documents.gsm8k, {"question": "How many?", "answer": "a\n#### many"}, "field 'answer' holds no number: 'many'"),
    (documents.gsm8k, {"question": " ", "answer": "a\n#### 1"}, "field 'question' must be a text that is not empty"),
    (documents.number_problem, {"problem": "Find x."}, "field 'answer' is missing"),
    (documents.number_problem, {"answer": 1}, "field 'problem' is missing"),
    (documents.number_problem, {"problem": 5, "answer": 1}, "field 'problem' must be a text"),
    (documents.medqa, {"question": "Which?", "options": ["a"], "answer_idx": "A"}, "field 'options' must map letters"),
    (documents.medqa, {"question": "Which?", "options": {"A": "a", "B": "b"}, "answer_idx": "C"}, "gold label 'C'"),
    (documents.arc, {"question": "Which?", "choices": {"text": ["a"]}, "answerKey": "A"}, "'text' and 'label'"),
    (
        documents.arc,
        {"question": "Which?", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"},
        "2 choices with 1 labels",
    ),
    (documents.gpqa, {"Question": "Which?", "Correct Answer": "a"}, "field 'Incorrect Answer 1' is missing"),
    (documents.mbpp_plus, {"task_id": "Mbpp/2", "prompt": "p", "code": "c"}, "field 'entry_point' is missing"),
    (
        documents.mbpp_plus,
        {name: PROBLEM[name] for name in ("task_id", "prompt", "entry_point", "canonical_solution")},
        "field 'base_input' is missing; this is not EvalPlus's release layout",
    ),
]


@pytest.mark.parametrize(("reader", "row", "message"), WRONG)
def test_a_row_of_another_layout_is_refused_with_the_field(reader, row, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        reader(row)
