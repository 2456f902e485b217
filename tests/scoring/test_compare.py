from __future__ import annotations

import sys
from fractions import Fraction

import pytest

from lm_eval_latentmas.scoring.answers import Answer, extract_number
from lm_eval_latentmas.scoring.compare import judge, majority

NUMBER = {"gold": "73"}
CHOICE = {"gold": "C", "choices": ["red", "green", "blue"], "letters": ["A", "B", "C"]}


@pytest.mark.parametrize("written", ["73", "073", "73.0", "73.000", "$73", "146/2", r"\frac{146}{2}", "7.3e1"])
def test_equal_numbers_are_equal_however_they_are_written(written):
    assert judge("number", NUMBER, f"\\boxed{{{written}}}").correct


@pytest.mark.parametrize("written", ["73.0000000000000000000001", "-73", "7.3", "730", "73e15"])
def test_other_numbers_are_wrong_by_however_little(written):
    verdict = judge("number", NUMBER, f"\\boxed{{{written}}}")
    assert not verdict.correct
    assert "73" in verdict.reason


def test_large_numbers_are_compared_exactly():
    gold = {"gold": str(10**30 + 1)}
    assert judge("number", gold, f"\\boxed{{{10**30 + 1:,}}}").correct
    assert not judge("number", gold, f"\\boxed{{{10**30}}}").correct


def test_one_half_and_one_third_differ():
    assert judge("number", {"gold": "1/2"}, r"\boxed{\frac{1}{2}}").correct
    assert not judge("number", {"gold": "1/2"}, r"\boxed{\frac{1}{3}}").correct


def test_a_choice_is_right_by_letter_or_text():
    assert judge("choice", CHOICE, "The answer is (c).").correct
    assert judge("choice", CHOICE, "It is blue.").correct
    assert not judge("choice", CHOICE, "The answer is B.").correct


@pytest.mark.parametrize("form", ["number", "choice"])
def test_no_answer_is_told_from_a_wrong_one(form):
    verdict = judge(form, NUMBER | CHOICE if form == "choice" else NUMBER, "I cannot say.")
    assert (verdict.correct, verdict.answer) == (False, None)
    assert verdict.reason.startswith("no answer")


def answers(*values):
    return [value if value is None else Answer(Fraction(value), "", "") for value in values]


def test_the_majority_is_the_most_frequent_value_and_the_first_of_equals():
    assert majority(answers(1, 2, 2)) == 2
    assert majority(answers(2, 1, 1, 2)) == 2
    assert majority(answers(None, None, 3)) == 3
    assert majority(answers(None)) is None


FORMULAS = {r"\sqrt{16}": 4, r"\binom{5}{2}": 10, r"10 \times 3": 30, r"\frac{\sqrt{8}}{\sqrt{2}}": 2, "5!": 120}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_with_one_value_needs_math_verify(formula, monkeypatch):
    box = f"\\boxed{{{formula}}}"
    assert extract_number(box).value == FORMULAS[formula]
    monkeypatch.setitem(sys.modules, "latex2sympy2_extended", None)
    assert extract_number(box) is None


@pytest.mark.parametrize(
    "formula",
    [r"\sqrt{2}", r"\pi", r"x + \sqrt{16}", r"9^{9^{9}}\cdot 1", r"\sqrt{99999999}", r"\frac{1}{0}", r"\{1,2\}"],
)
def test_a_formula_without_one_small_exact_value_is_no_answer(formula):
    assert extract_number(f"\\boxed{{{formula}}}") is None
