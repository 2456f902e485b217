"""Properties of reading answers: what is written in a supported way is read back; nothing behind a box matters."""

from __future__ import annotations

import re
import string
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lm_eval_latentmas.scoring.answers import extract_choice, extract_code, extract_number
from lm_eval_latentmas.scoring.markup import after_thoughts, last_box
from lm_eval_latentmas.scoring.numbers import read_number

checked = settings(deadline=None, max_examples=100)

INTEGER_FORMS = [
    *("{0}", "{0:,}", "{0:_}", "{0}.0", "{0}.", "{0:,}.00", "00{0}", "{0}e0", "{0}/1", "({0})", "**{0}**", "{{{0}}}"),
    *("${0:,}", "\\${0}", "€ {0}", "USD {0}", "{0} dollars", "{0}%", "{0}\\%", "{0} km/h", "{0} cm^2", "{0}^\\circ"),
    *("{0}\\text{{ meters}}", "\\text{{{0}}}", "x = {0}", "about {0}", "{0}\\times 10^{{0}}", "\\frac{{{0}}}{{1}}"),
]
TEMPLATES = [
    *("\\boxed{{{0}}}", "$\\boxed{{{0}}}$.", "\\[\\boxed{{{0}}}\\]"),
    *("The answer is {0}.", "The answer is ${0}$.", "Answer: {0}", "#### {0}"),
    "First 3, then 4.\n\n**Final Answer:** {0}",
    "That makes 2 + 3 = 5.\nThe final answer is **{0}**.",
]


@pytest.mark.parametrize("form", INTEGER_FORMS)
@checked
@given(value=st.integers(0, 10**15))
def test_an_integer_is_read_back_in_every_form(form, value):
    assume(value or "00" not in form)
    assert read_number(form.format(value)) == value


@checked
@given(
    value=st.integers(-(10**9), 10**9),
    template=st.sampled_from(TEMPLATES),
    form=st.sampled_from(["{0}", "{0:,}", "{0}.0"]),
)
def test_an_integer_is_read_back_in_every_place(value, template, form):
    assert extract_number(template.format(form.format(value))).value == value


@checked
@given(numerator=st.integers(-(10**6), 10**6), denominator=st.integers(1, 10**6), template=st.sampled_from(TEMPLATES))
@pytest.mark.parametrize("form", ["{0}/{1}", "{0} / {1}", "\\frac{{{0}}}{{{1}}}", "\\dfrac{{{0}}}{{{1}}}"])
def test_a_fraction_is_read_back(form, numerator, denominator, template):
    assert extract_number(template.format(form.format(numerator, denominator))).value == Fraction(
        numerator, denominator
    )


@checked
@given(whole=st.integers(1, 10**6), parts=st.integers(2, 999), data=st.data())
@pytest.mark.parametrize("form", ["{0} {1}/{2}", "{0}\\frac{{{1}}}{{{2}}}", "{0} \\tfrac{{{1}}}{{{2}}}"])
def test_a_mixed_number_is_read_back(form, whole, parts, data):
    part = data.draw(st.integers(1, parts - 1))
    assert read_number(form.format(whole, part, parts)) == whole + Fraction(part, parts)


@checked
@given(digits=st.integers(0, 10**12), places=st.integers(1, 9), sign=st.sampled_from(["", "-", "\u2212", "+"]))
def test_a_decimal_is_read_exactly(digits, places, sign):
    value = Fraction(digits, 10**places)
    written = f"{digits // 10**places}.{digits % 10**places:0{places}}"
    assert read_number(sign + written) == (-value if sign in "-\u2212" and sign else value)
    assert extract_number(f"The answer is {sign}{written}0.").value == read_number(sign + written)


@checked
@given(mantissa=st.integers(1, 10**6), exponent=st.integers(-30, 30))
@pytest.mark.parametrize(
    "form",
    ["{0}e{1}", "{0}E{1:+}", "{0} \\times 10^{{{1}}}", "{0} \u00d7 10^{1}", "{0} x 10^({1})", "{0} \\cdot 10^{{{1}}}"],
)
def test_scientific_notation_is_read_back(form, mantissa, exponent):
    assert read_number(form.format(mantissa, exponent)) == mantissa * Fraction(10) ** exponent


# text that opens neither a box nor a thought
behind = st.text(max_size=60).filter(lambda text: not re.search(r"box|think|thought|reasoning|THINK", text))
prose = st.text(string.ascii_letters + string.digits + " .,:;!?()*#$\n", max_size=60)


@checked
@given(value=st.integers(-999, 999), before=prose, after=behind | prose)
def test_text_after_the_box_never_changes_a_number(value, before, after):
    assume("box" not in before and "thought" not in before)
    assert extract_number(f"{before} \\boxed{{{value}}}{after}").value == value


@checked
@given(letter=st.sampled_from("ABCD"), before=prose, after=behind | prose)
def test_text_after_the_box_never_changes_a_choice(letter, before, after):
    assume("box" not in before and "thought" not in before)
    answer = extract_choice(f"{before} \\boxed{{{letter}}}{after}", ["one", "two", "three", "four"], "ABCD")
    assert answer.value == letter


@checked
@given(text=st.text(alphabet="AB (){}[]$\\*_#.,:-/0123456789exten=√π½\n") | st.text())
def test_no_text_breaks_a_reader(text):
    for response in (text, f"\\boxed{{{text}}}", f"The answer is {text}", f"```python\n{text}"):
        number = extract_number(response)
        assert number is None or isinstance(number.value, Fraction)
        choice = extract_choice(response, ["yes", "no"], "AB")
        assert choice is None or choice.value in ("A", "B")
        code = extract_code(response, "f")
        assert code is None or code.value.strip()


@checked
@given(content=st.text(alphabet="ab{}\\ 1"))
def test_a_box_is_read_up_to_the_brace_that_closes_it(content):
    depth, balanced = 0, True
    for brace in re.findall(r"\\[{}\\]|[{}]", content):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        balanced = balanced and depth >= 0
    assume(balanced and depth == 0 and content.strip() and not content.endswith("\\"))
    assert last_box(f"\\boxed{{{content}}} and }} more {{") == content


@checked
@given(thought=st.text(), said=st.text())
def test_nothing_inside_a_thought_is_graded(thought, said):
    assume(not re.search(r"[<\[]", thought + said))
    assert after_thoughts(f"<think>{thought}</think>{said}") == said
    assert after_thoughts(f"<think>{thought}") == ""
    assert after_thoughts(f"{said}<think>{thought}") == said
