"""Where a text says which number is its answer, outside of a box. Each rule yields values and their words, best first.

A rule takes plain text; `RULES` holds them in the order in which they are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction

from lm_eval_latentmas.scoring.numbers import NUMBER, read_number, value_of

# "answer" and then a verb, a colon or a line break; between them only words of the same sentence
_STATED = re.compile(
    r"(?:\banswer\b[^.\n?!]{0,60}?(?:\bis\b|\bare\b|\bequals\b|\bbe\b|[:=≈]|[*_\s]*\n)|^[ \t]*\#{4}(?=[^\n]*$))"
    r"(?:[\s*_`:=≈(\[{\"']|\$(?!\d)|\b(?:is|about|approximately|exactly|negative|minus)\b)*",
    re.IGNORECASE | re.MULTILINE,
)
_NEGATIVE = re.compile(r"\b(?:negative|minus)\s*$", re.IGNORECASE)
_CALCULATION = re.compile(r"[^.\n=,\d]{0,20}?[-+*/\u00d7÷](?:[^.\n]|\.\d)*=\s*")
_WORDED_CALCULATION = re.compile(r"(?i)\W{0,3}(?:(?:%|percent)\s*)?(?:times|plus|minus|of\s+\$?\d|divided|multiplied)")


def _stated_numbers(text: str) -> Iterator[tuple[Fraction | None, str]]:
    """The number right behind the last statement; in ``is 5 + 7 = 12`` the result, not the first term."""
    for stated in reversed(list(_STATED.finditer(text))):
        number = NUMBER.match(text, stated.end())
        if number is None or _numbers_a_list(text, number) or _WORDED_CALCULATION.match(text, number.end()):
            continue
        chain = _CALCULATION.match(text, number.end())
        result = chain and NUMBER.match(text, chain.end())
        value = value_of(result or number)
        negative = not result and value is not None and _NEGATIVE.search(stated[0])
        yield -value if negative else value, text[stated.start() : (result or number).end()]


_BOLD = re.compile(r"(?P<mark>\*\*|__)(?=\S)([^*_\n]+)(?P=mark)")


def _bold_numbers(text: str) -> Iterator[tuple[Fraction | None, str]]:
    """The last bold number, if it stands in the last paragraph with a number and no number follows in its sentence."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if NUMBER.search(part)]
    for bold in reversed(list(_BOLD.finditer(paragraphs[-1] if paragraphs else ""))):
        sentence = re.split(r"[.!?](?:\s|$)|\n", paragraphs[-1][bold.end() :])[0]
        value = read_number(bold[2])
        heading = re.fullmatch(r"\d+[.):]", bold[2].strip()) and sentence.strip()
        if value is not None and not heading and not NUMBER.search(sentence):
            yield value, bold[2]


def _last_numbers(text: str) -> Iterator[tuple[Fraction | None, str]]:
    """The numbers from the last on; those that only number the points of a list come after the others."""
    numbers = list(NUMBER.finditer(text))[::-1]
    for listed in (False, True):
        yield from ((value_of(number), number[0]) for number in numbers if _numbers_a_list(text, number) == listed)


_POINT = re.compile(r"[.)]\**\s+\S")


def _numbers_a_list(text: str, number: re.Match[str]) -> bool:
    line_start = text.rfind("\n", 0, number.start()) + 1
    return not text[line_start : number.start()].strip(" *#\t") and bool(_POINT.match(text, number.end()))


RULES: dict[str, Callable[[str], Iterator[tuple[Fraction | None, str]]]] = {
    "stated": _stated_numbers,
    "bold": _bold_numbers,
    "last number": _last_numbers,
}
