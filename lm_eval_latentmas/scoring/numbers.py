"""Numbers as models write them, read as exact fractions: ``1,234.50``, ``-1/2``, ``3 1/2``, ``6.02e23``, ``2 million``.

Everything is a `fractions.Fraction`, so that 0.5 is one half, 073 is 73, and nothing is rounded.
"""

from __future__ import annotations

import re
from fractions import Fraction

from lm_eval_latentmas.scoring.latex import evaluate
from lm_eval_latentmas.scoring.markup import plain

_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d+)?|[1-9]\d{0,2}(?:['_]\d{3})+(?:\.\d+)?"
_DECIMAL = rf"(?:(?:{_GROUPED})(?![\d])|\d+(?:\.\d+)?|\.\d+)"
_CURRENCY = r"(?:(?:US|CA|AU)?\$|[€£¥₹¢]|(?:USD|EUR|GBP|CAD|AUD|INR|Rs\.?)\b)"
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

# In running text a sign touches its number and is no subtraction, and digits inside a word or a date are no number.
NUMBER = re.compile(
    rf"""(?<![A-Za-z0-9^\\])(?<![A-Za-z0-9]_)(?<!_\{{)(?<!\d[.,/:])
    (?P<sign>(?<![)\]}}%])[-+](?={_CURRENCY}?\s?[\d.]))?
    (?:{_CURRENCY}\s?)?
    (?P<sign2>[-+](?=[\d.]))?
    (?:
        (?P<whole>\d+)\s+(?P<part>\d+)/(?P<parts>\d+)
      | (?P<over>{_DECIMAL})(?:\s?/\s?|\)/\()(?P<under>-?{_DECIMAL})
      | (?P<base>\d+)(?:\^|\*\*)\(?(?P<exponent>[-+]?\d+)\)?
      | (?P<decimal>{_DECIMAL})
        (?:[eE](?P<e>[-+]?\d+)(?!\w)|\s?[\u00d7xX*]\s?10\s?(?:\^|\*\*)\s?\(?(?P<ten>[-+]?\d+)\)?)?
    )
    (?:\s(?P<scale>{"|".join(_SCALES)})\b)?
    (?!\d|[.,/:]\d|(?:st|nd|rd|th)\b)""",
    re.VERBOSE,
)
_LONGEST = 1000  # digits; no answer has more, and an exponent must not fill the memory


def value_of(match: re.Match[str]) -> Fraction | None:
    """The value of a `NUMBER` match; None for a division by zero or a number of absurd length."""
    part = match.groupdict()
    exponent = part["e"] or part["ten"] or part["exponent"] or "0"
    if len(match[0]) > _LONGEST or len(exponent) > 5 or abs(int(exponent)) * len(part["base"] or "1") > _LONGEST:
        return None
    try:
        if part["whole"]:
            value = Fraction(part["whole"]) + Fraction(int(part["part"]), int(part["parts"]))
        elif part["over"]:
            value = _decimal(part["over"]) / _decimal(part["under"])
        elif part["base"]:
            value = Fraction(part["base"]) ** int(exponent)
        else:
            value = _decimal(part["decimal"]) * Fraction(10) ** int(exponent)
    except ZeroDivisionError:
        return None
    value *= _SCALES.get(part["scale"], 1)
    return -value if "-" in (part["sign"], part["sign2"]) else value


def _decimal(text: str) -> Fraction:
    return Fraction(re.sub(r"[,'_]", "", text))


_LEAD = re.compile(
    r"(?:[\s*_`\"'([{:=≈$]|approximately|approx\.?|about|around|roughly|exactly|nearly|a total of)*", re.IGNORECASE
)
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\^-?\d")
_SPACED_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d/])")
# signs that make the rest a formula, and single letters that are variables rather than units
_FORMULA = re.compile(
    r"[\d+=<>|\\\u00d7÷√∞π±≤≥≠^*!∠]|(?<![A-Za-z])(?:[b-fi-knoqrt-zBDEGHIMO-UX-Z]|pi|sqrt|or)(?![A-Za-z])"
)
_SENTENCE = re.compile(r"[A-Za-z\s.,;:'\"()$€£¥%-]*")


def read_number(text: str) -> Fraction | None:
    r"""The value of a text that as a whole states one number, with currency, unit or ``x =`` around it, else None.

    Percent is a unit (``50%`` is 50, as the gold answers have it). Two numbers, ranges, intervals and formulas with
    letters are no number. LaTeX beyond plain numbers and fractions goes to math-verify where that is installed.
    """
    flat = plain(text)
    value = _stated(flat)
    if value is None and re.search(r"\\[a-z]|!", text) and not re.search(r"[,=≈]", flat):
        value = evaluate(text)
    return _only_number(flat) if value is None else value


def _stated(text: str) -> Fraction | None:
    """A number at the start, after signs of equality and words of measure, with a unit or nothing behind it."""
    sides = re.split(r"[=≈]", text)
    if any(re.search(r",\s*[A-Za-z]", side) for side in sides[1:-1]):
        return None  # several equations
    text = sides[-1]
    text = text[_LEAD.match(text).end() :]
    negative = re.match(r"(?:negative|minus)\s+|[-+]\s+(?=[\d.$])", text, re.IGNORECASE)
    text = text[negative.end() :] if negative else text
    text = _SPACED_GROUPS.sub(lambda groups: groups[0].replace(" ", ""), text)
    match = NUMBER.match(text)
    if match is None or not _is_unit(text[match.end() :]):
        return None
    value = value_of(match)
    return -value if value is not None and negative and negative[0][0] != "+" else value


def _is_unit(rest: str) -> bool:
    rest = re.sub(r"\s\([^()]*\)\W*$", "", rest)
    return not _FORMULA.search(_UNIT_POWER.sub("", rest).strip(" *_`.)]}"))


def _only_number(text: str) -> Fraction | None:
    """The one number of a short sentence such as ``She has 18 eggs``."""
    matches = list(NUMBER.finditer(text))
    if len(matches) != 1:
        return None
    before, after = text[: matches[0].start()], text[matches[0].end() :]
    words = _SENTENCE.fullmatch(before) and re.search(r"[A-Za-z]{2}\W*$", before) and _SENTENCE.fullmatch(after)
    return value_of(matches[0]) if words and not re.search(r"\b(?:not|pi|sqrt)\b|n't", text) else None
