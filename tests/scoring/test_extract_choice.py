"""Which option a response chooses: every rule, its near misses, and texts made to mislead it."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.scoring.answers import extract_choice

CITIES = ("Paris", "London", "Berlin", "Rome")
BOXES = [
    (r"\boxed{C}", "C"),
    (r"$\boxed{C}$", "C"),
    (r"\[\boxed{\text{C}}\]", "C"),
    (r"\boxed{\mathrm{C}}", "C"),
    (r"\boxed{(C)}", "C"),
    (r"\boxed{\text{(C)}}", "C"),
    (r"\boxed{c}", "C"),
    (r"\boxed{C.}", "C"),
    (r"\boxed{\textbf{(C) } Berlin}", "C"),
    (r"\boxed{C. Berlin}", "C"),
    (r"\boxed{C: Berlin}", "C"),
    (r"\boxed{\text{Option C}}", "C"),
    (r"\boxed{\text{Answer: C}}", "C"),
    (r"\boxed{Berlin}", "C"),
    (r"\boxed{\text{berlin.}}", "C"),
    (r"\boxed{\text{It is Berlin}}", "C"),
    (r"\boxed{A}. No, that is wrong: \boxed{B}", "B"),
    (r"\boxed{B}. The answer is A, and C is correct.", "B"),
    (r"The answer is A, so \boxed{B", "B"),
    (r"\boxed C", "C"),
]
UNREADABLE_BOXES = [
    r"The answer is A. \boxed{E}",
    r"The answer is A. \boxed{B or C}",
    r"The answer is A. \boxed{A, B}",
    r"The answer is A. \boxed{AB}",
    r"The answer is A. \boxed{Vienna}",
    r"The answer is A. \boxed{Paris or Rome}",
    r"The answer is A. \boxed{5}",
    r"The answer is A. \boxed{A 34-year-old man}",
]
STATED = [
    ("The answer is C", "C"),
    ("The answer is C.", "C"),
    ("The answer is (C).", "C"),
    ("The answer is (c)", "C"),
    ("The answer is c.", "C"),
    ("The answer is [C]", "C"),
    ('The answer is "C".', "C"),
    ("The answer is **C**.", "C"),
    (r"The answer is $C$.", "C"),
    (r"The answer is \text{C}.", "C"),
    ("Answer: C.", "C"),
    ("Answer: c", "C"),
    ("**Answer:** C", "C"),
    ("**Answer: C) Berlin**", "C"),
    ("Answer:\n\nC", "C"),
    ("### Final Answer\nC", "C"),
    ("#### C", "C"),
    ("The correct answer is option C.", "C"),
    ("The correct option is C because it is large.", "C"),
    ("The best choice would be C.", "C"),
    ("My final answer is therefore C!", "C"),
    ("The answer is A because of its tower.", "A"),
    ("The answer is A.", "A"),
    ("The answer is a.", "A"),
    ("Option C is correct.", "C"),
    ("C is the correct answer, as A is too far west.", "C"),
    ("C is clearly the best option", "C"),
    ("(C) is right", "C"),
    ("I choose C.", "C"),
    ("I would go with option C, though B is near.", "C"),
    ("Among A, B, C and D, I think it is C.", "C"),
    ("The answer is not A but C", "C"),
    ("It is not A, but C", "C"),
    ("The answer is A. On second thought, the answer is C.", "C"),
    ("The answer is C, and A is wrong.", "C"),
    ("Is the answer A? No. C is correct.", "C"),
    ("The answer is Berlin.", "C"),
    ("The correct answer is: Berlin, the capital", "C"),
    ("A. Paris\nB. London\nC. Berlin\nD. Rome\n\nThe answer is C", "C"),
]
ELSE = [
    ("**C**", "C"),
    ("**(C)**", "C"),
    ("**C. Berlin**", "C"),
    ("I see that **Berlin** fits.", "C"),
    ("C", "C"),
    ("c", "C"),
    ("(C)", "C"),
    ("C.", "C"),
    ("C)", "C"),
    ("C) Berlin", "C"),
    ("C. Berlin\n\nA is in France and B is in England.", "C"),
    ("**A.** Paris is French.\n**B.** London is English.\n\nC", "C"),
    ("A is wrong, so C", "C"),
    ("A is wrong, B is wrong, D is wrong. Therefore, C.", "C"),
    ("That leaves only C.", "C"),
    ("Hence it must be (C)", "C"),
    ("A and B are west of the Rhine.\nThis one is not (C)", "C"),
    ("It must be Berlin.", "C"),
    ("Berlin", "C"),
    ("The capital is Berlin, not Paris", "C"),
    ("Rather Berlin than nothing", "C"),
    ("## A brief overview\nIt is Berlin.", "C"),
    ("Answer choices:\nA. Paris\nB. London\nC. Berlin\nD. Rome\nIt must be Berlin.", "C"),
    ("Answer: A reasonable choice would be (C)", "C"),
    ("The best answer choice is C", "C"),
    ("option C", "C"),
    ("<think>The answer is A</think>C", "C"),
    ("<think>\\boxed{A}</think>\nThe answer is \\boxed{C}", "C"),
]
NOTHING = [
    "",
    "I do not know.",
    "The answer is E.",
    "Answer: F",
    "(G)",
    "The answer is A or C.",
    "The answer is either (A) or (C)",
    "Answer: A, C",
    "Answer: A/C",
    "The answer is a mixture of all",
    "A city is large.",
    "A 34-year-old man lives in it.",
    "I live here",
    "The answer is not C.",
    "A is wrong. B is wrong. D is wrong.",
    "It is not Berlin.",
    "Paris and Rome are both capitals.",
    "Consider vitamin C intake first",
    "A. Paris\nB. London\nC. Berlin\nD. Rome",
    "<think>The answer is C",
    "<think>C</think>",
]
# options, response, letter: options that contain each other, look like letters or are numbers
OPTIONS = [
    (("iron", "iron oxide", "rust", "zinc"), "It is iron oxide.", "B"),
    (("iron", "iron oxide", "rust", "zinc"), "It is iron.", "A"),
    (("iron", "iron oxide", "rust", "zinc"), "It is iron, not iron oxide.", "A"),
    (("iron", "iron oxide", "rust", "zinc"), "Both iron and iron oxide", None),
    (("Iron", "Vitamin C", "Zinc", "None"), "It is a lack of vitamin C.", "B"),
    (("A", "B", "O", "E"), r"\boxed{E}", "D"),
    (("A", "B", "O", "E"), r"\boxed{B}", "B"),
    (("B", "A", "O", "E"), r"\boxed{A}", "A"),
    (("1", "2", "3", "4"), r"\boxed{3}", "C"),
    (("1", "2", "3", "4"), "The answer is 3.", "C"),
    (("0.5 N", "0.25 N", "3 N", "4 N"), r"\boxed{\frac{1}{2}}", "A"),
    (("10 m", "20 m", "10 cm", "5 m"), r"\boxed{20}", "B"),
    (("10 m", "20 m", "10 cm", "5 m"), r"\boxed{10}", None),
    (("x = 2", "x = 3", "x = 4"), r"\boxed{x = 3}", "B"),
    (("yes", "no", "maybe"), r"\boxed{D}", None),
    (("yes", "no", "maybe"), "The answer is D", None),
    (("a", "b", "c", "d", "e"), r"\boxed{E}", "E"),
    (("It rains.", "It does not rain.", "It snows.", "It hails."), r"\boxed{\text{It does not rain}}", "B"),
    (("It rains.", "It does not rain.", "It snows.", "It hails."), "The answer is: it does not rain.", "B"),
    (("It rains.", "It does not rain.", "It snows.", "It hails."), "It is not true that it rains.", None),
    (("same", "same", "other", "none"), r"\boxed{\text{same}}", None),
    (("$\\frac{1}{2}$", "$\\frac{1}{3}$", "1", "2"), r"\boxed{\frac{1}{3}}", "B"),
]


def read(response, options=CITIES):
    return extract_choice(response, options, "ABCDE"[: len(options)])


@pytest.mark.parametrize(("response", "letter"), BOXES)
def test_a_box_is_read(response, letter):
    answer = read(response)
    assert (answer.value, answer.rule) == (letter, "box")


@pytest.mark.parametrize(("response", "letter"), STATED + ELSE)
def test_a_choice_is_read(response, letter):
    assert read(response).value == letter


@pytest.mark.parametrize("response", UNREADABLE_BOXES + NOTHING)
def test_what_names_no_single_option_is_no_answer(response):
    assert read(response) is None


@pytest.mark.parametrize(("options", "response", "letter"), OPTIONS)
def test_the_options_of_the_question_decide(options, response, letter):
    answer = read(response, options)
    assert (answer and answer.value) == letter


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_letter_beyond_the_options_is_never_read(count):
    options = ("red stone", "blue stone", "green stone", "grey stone", "white stone")[:count]
    for letter in "FGHXYZ" if count == 5 else "ABCDEF"[count:]:
        for template in (r"\boxed{%s}", "The answer is (%s).", "Answer: %s", "**%s**", "%s", "so %s", "option %s"):
            assert read(template % letter, options) is None


@pytest.mark.parametrize("piece", ["\\boxed{", "(A", "**A**", "the answer is ", "A ", "A. \n", "Berlin ", "not A but "])
def test_a_degenerate_response_is_read_in_time_linear_in_its_length(piece):
    read(piece * 10_000)
