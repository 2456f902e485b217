"""Which number is read from a response: every rule, its near misses, and texts made to mislead it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lm_eval_latentmas.scoring.answers import extract_number, why_none

HALF = Fraction(1, 2)
BOXES = [
    (r"The answer is \boxed{42}.", 42),
    (r"\[\boxed{42}\]", 42),
    (r"$$\boxed{42}$$", 42),
    (r"$\boxed{ 42 }$", 42),
    (r"\fbox{7}", 7),
    (r"\framebox{7}", 7),
    (r"\boxed 7", 7),
    (r"\boxed7", 7),
    (r"boxed{8}", 8),
    (r"\boxed{\boxed{7}}", 7),
    (r"\boxed{\text{42}}", 42),
    (r"\boxed{\mathbf{42}}", 42),
    (r"\boxed{{\bf 42}}", 42),
    (r"\boxed{\textbf{\text{42}}}", 42),
    (r"\boxed{42\text{ dollars}}", 42),
    (r"\boxed{42 \text{ cm}^2}", 42),
    (r"\boxed{\$42.00}", 42),
    (r"\boxed{$42}", 42),
    (r"\boxed{42\%}", 42),
    (r"\boxed{42^\circ}", 42),
    (r"\boxed{336^{\circ}}", 336),
    (r"\boxed{x = 42}", 42),
    (r"\boxed{m+n=42}", 42),
    (r"\boxed{3 + 4 = 7}", 7),
    (r"\boxed{\frac{1}{2}}", HALF),
    (r"\boxed{\dfrac{1}{2}}", HALF),
    (r"\boxed{\tfrac12}", HALF),
    (r"\boxed{\frac12}", HALF),
    (r"\boxed{-\frac{3}{4}}", Fraction(-3, 4)),
    (r"\boxed{\frac{-3}{4}}", Fraction(-3, 4)),
    (r"\boxed{1\frac{1}{2}}", Fraction(3, 2)),
    (r"\boxed{\frac{1{,}000}{3}}", Fraction(1000, 3)),
    (r"\boxed{1{,}234}", 1234),
    (r"\boxed{1\,234\,567}", 1234567),
    (r"\boxed{1,\!234}", 1234),
    (r"\boxed{6.02 \times 10^{23}}", 602 * 10**21),
    (r"\boxed{5 \cdot 10^{-2}}", Fraction(1, 20)),
    (r"\boxed{2^{10}}", 1024),
    (r"\boxed{\left( 42 \right)}", 42),
    (r"\boxed{\text{Janet has } 18 \text{ eggs}}", 18),
    (r"\boxed{\approx 3.5}", Fraction(7, 2)),
    (r"\boxed{073}", 73),
    (r"\boxed{\text{about } 42}", 42),
    # which box: the last that holds something; a box that is not closed is read to the end of its line
    (r"\boxed{5}. Wait, that is wrong. \boxed{6}", 6),
    (r"\boxed{42} as asked, in \boxed{}", 42),
    (r"so \boxed{7", 7),
    (r"$\boxed{7$", 7),
    (r"\boxed{5}, no, it must be \boxed{7", 7),
    (r"\boxed{7 and then \boxed{8}", 8),
    ("\\boxed{7\nwhich is 3 more than 4", 7),
    (r"{ \boxed{5}", 5),
    (r"\boxed{5} } }", 5),
    (r"\boxed{\{} \boxed{5}", 5),
    # a box decides alone
    (r"The answer is 3. \boxed{4}", 4),
    (r"\boxed{4}. The answer is 3, and 9 is more.", 4),
    (r"\boxed{4} #### 5", 4),
]
NO_NUMBER_IN_THE_BOX = [
    r"The answer is 3, that is \boxed{x+1}",
    r"5 \boxed{\text{none}}",
    r"5 \boxed{5 or 6}",
    r"5 \boxed{5, 6}",
    r"5 \boxed{(3, 5)}",
    r"5 \boxed{5-10}",
    r"5 \boxed{\pm 5}",
    r"5 \boxed{5x}",
    r"5 \boxed{2\pi}",
    r"5 \boxed{1/0}",
    r"5 \boxed{\frac{1}{0}}",
    r"5 \boxed{1e999999999}",
    r"5 \boxed{9^{999999999}}",
    r"5 \boxed{0.5.5}",
    r"5 \boxed{3:30}",
    r"5 \boxed{a = 3, b = 4}",
    r"5 \boxed{1,23}",
    r"5 \boxed{> 5}",
    r"5 \boxed{not 5}",
]
STATED = [
    ("The answer is 42.", 42),
    ("The final answer is: 42", 42),
    ("The answer is $42$.", 42),
    (r"The answer is \(42\).", 42),
    ("the ANSWER is 42!", 42),
    ("Answer: 42", 42),
    ("Answer:42", 42),
    ("**Answer:** 42", 42),
    ("**Final Answer**\n\n42", 42),
    ("### Final Answer\n$$42$$", 42),
    ("Final answer = 42 apples", 42),
    ("The answer equals 42", 42),
    ("The answer to the question is therefore: 42", 42),
    ("So the answer should be 42.", 42),
    ("The answer is **42**.", 42),
    ("The answer is approximately 3.5", Fraction(7, 2)),
    ("The answer is negative 5.", -5),
    ("The answer is \u22125.", -5),
    ("The answer is -$5.", -5),
    ("The answer is $1,250.00 in total.", 1250),
    ("The answer is 2 million.", 2 * 10**6),
    ("#### 70,000", 70000),
    ("#### $18", 18),
    ("Step one gives 3.\n#### 18\n", 18),
    ("The answer is 5. No: the answer is 7. I used 3 steps.", 7),
    ("The answer is 5 + 7 = 12.", 12),
    ("Answer: 3 apples + 4 apples = 7 apples", 7),
    ("The answer is 5.5 + 6.5 = 12", 12),
    ("The answer is 42, since 6 * 7 = 42 and 40 + 2 is 42, too. 9", 42),
    ("The answer is 18 dollars per day for 7 days.", 18),
    # no statement: the phrase does not lead to the number
    ("The answer is not 5 but 7", 7),
    ("The answer is 5 times 3, or 15", 15),
    ("The answer is 10% of 200, so 20", 20),
    ("The answer is the sum of 3 and 4, which is 7", 7),
    ("#### 3. Add up\nThat makes 9", 9),
    ("Answer:\n1. Add 3 and 4.\n2. That makes 7", 7),
    ("Final Answer\n42. I am sure.", 42),
    ("It was on 1/2/2024, so 9 days before", 9),
]
ELSE = [
    ("She makes **$18** every day at the market.", 18),
    ("Total is **42** dollars. That is 6 per day.", 42),
    ("He needs **12** a day.\n\nSo **84** a week.", 84),
    ("__42__", 42),
    ("She has **5** apples and buys **3** more, so 8.", 8),
    ("**3.** First, count them: there are 5", 5),
    ("**Step 2** gives 9", 9),
    ("42", 42),
    ("It is 42", 42),
    ("3 + 4 = 7", 7),
    ("so he pays 10-4=6", 6),
    ("from 5 to 10", 10),
    ("It costs 1/2", HALF),
    (r"It is \frac{3}{4} of it", Fraction(3, 4)),
    (r"They have \(\frac{3}{4}\)", Fraction(3, 4)),
    ("It is ½", HALF),
    ("He eats 3½ pies", Fraction(7, 2)),
    ("He eats 2 1/2 pies", Fraction(5, 2)),
    ("It holds 1.5 million", 1500000),
    ("1,00,000 rupees", 100000),
    ("It is 1'234'567", 1234567),
    ("It is 1_000", 1000),
    ("It is $118 000.", 118000),
    ("It is 1 234 000", 1234000),
    ("Of these 12 345 are left", 345),
    ("It weighs 5kg", 5),
    ("It is 6.02e23", 602 * 10**21),
    ("It is 5 \u00d7 10³", 5000),
    ("It is 5 x 10^-2", Fraction(1, 20)),
    ("She has .5 left", HALF),
    ("She has 5. left", 5),
    ("It is 42.00", 42),
    ("It is \uff14\uff12", 42),
    ("It is ٤٢", 42),
    ("It is 1\u202f234", 1234),
    ("x_1 is 4 and x_{2}", 4),
    ("4 molecules of H2O on the 3rd day", 4),
    ("20 apples at 3:30", 20),
    ("1. Add 3\n2. Add 4\nTotal 7\n3. Done", 7),
    ("2. Yes", 2),
    ("€3.20", Fraction(16, 5)),
    ("7 " + "9" * 5000, 7),
]
THOUGHTS = [
    ("<think>The answer is 3. \\boxed{3}</think> It is 5.", 5),
    ("The thought began in the prompt: 3</think>5", 5),
    ("<think>1</think> 2 <think>3</think> 4", 4),
    ("<think>a</think>\\boxed{5} <think>or 6", 5),
    ("[THINK]3[/THINK]4", 4),
    ("<|begin_of_thought|>3<|end_of_thought|>4", 4),
    ("<thinking>3</thinking>4", 4),
]
NOTHING = [
    ("", "empty"),
    (" \n", "empty"),
    ("I cannot say.", "no rule"),
    ("<think>It is 42, so \\boxed{42}", "never closes"),
    ("<think>42</think>", "nothing follows"),
    ("[THINK]42[/THINK]", "nothing follows"),
    ("<think>1</think><think>42", "never closes"),
    ("5 < 6 \\boxed{?}", "box"),
    ("Put it in \\boxed{}", "no rule"),
]


@pytest.mark.parametrize(("response", "value"), BOXES)
def test_a_box_is_read(response, value):
    answer = extract_number(response)
    assert (answer.value, answer.rule) == (value, "box")


@pytest.mark.parametrize("response", NO_NUMBER_IN_THE_BOX)
def test_a_box_without_one_number_is_no_answer_whatever_else_is_there(response):
    assert extract_number(response) is None


@pytest.mark.parametrize(("response", "value"), STATED + ELSE + THOUGHTS)
def test_a_number_is_read(response, value):
    assert extract_number(response).value == value


@pytest.mark.parametrize(("response", "reason"), NOTHING)
def test_nothing_to_read_is_none_with_a_reason(response, reason):
    assert extract_number(response) is None
    assert reason in why_none(response)


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "{", "}", "\\frac{", "(", "**", "the answer is ", "1.", "1,", "-", "####", "\n"]
)
def test_a_degenerate_response_is_read_in_time_linear_in_its_length(piece):
    # an endless loop of one piece is what small models end in; quadratic work would take minutes here
    extract_number(piece * 20_000)
