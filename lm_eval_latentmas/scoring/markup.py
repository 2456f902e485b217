"""What surrounds an answer in a model's text: thoughts, boxes, LaTeX and Unicode spellings. Text in, text out."""

from __future__ import annotations

import re
import unicodedata

_TAG = re.compile(
    r"<(?P<close>/)?(?:think|thinking|thought|reasoning)>|\[(?P<close2>/)?THINK\]|<\|(?:begin|(?P<close3>end))_of_thought\|>"
)


def after_thoughts(text: str) -> str:
    """The part of a response that is said aloud: what follows the last closing tag, up to a thought left open.

    A model that thinks tries numbers and letters that it drops later, so nothing inside a thought is graded. A thought
    that never closes has no answer behind it: the text ends where it opens.
    """
    start, end = _said(text)
    return text[start:end]


def thought_is_open(text: str) -> bool:
    """Whether a thought opens that never closes."""
    return _said(text)[1] < len(text)


def _said(text: str) -> tuple[int, int]:
    tags = list(_TAG.finditer(text))
    start = max((tag.end() for tag in tags if any(tag.group("close", "close2", "close3"))), default=0)
    return start, next((tag.start() for tag in tags if tag.start() >= start), len(text))


# an escaped brace is a printed character and takes no part in the nesting
_BRACE = re.compile(r"\\[{}\\]|\\?(?P<box>\b(?:boxed|fbox|framebox))\s*\{|[{}]")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?P<content>-?\d[\d.,/]*\d|-?\d|[A-Za-z](?![A-Za-z]))")


def last_box(text: str) -> str | None:
    r"""The content of the last ``\boxed{}`` or ``\fbox{}`` that holds something, with balanced braces; else None.

    The last box counts, because a model that corrects itself boxes again. A box with nothing in it repeats the
    instruction. A last box that is never closed is read to the end of its line: the brace was forgotten.
    """
    found: list[tuple[int, str]] = [(bare.start(), bare["content"]) for bare in _BARE_BOX.finditer(text)]
    open_braces: list[tuple[int, int] | None] = []
    for brace in _BRACE.finditer(text):
        if brace["box"]:
            open_braces.append((brace.start(), brace.end()))
        elif brace[0] == "{":
            open_braces.append(None)
        elif brace[0] == "}" and open_braces and (box := open_braces.pop()):
            found.append((box[0], text[box[1] : brace.start()]))
    closed = max((start for start, content in found if content.strip()), default=-1)
    unclosed = [box for box in open_braces if box and box[0] > closed]
    found += [(start, text[end:].split("\n", 1)[0].rstrip("$ \t")) for start, end in unclosed[-1:]]
    # of two nested boxes the inner one starts later
    return max(((start, content) for start, content in found if content.strip()), default=(0, None))[1]


_SYMBOLS = str.maketrans(
    dict.fromkeys("\u2212\ufe63\uff0d\u2013\u2010\u2011", "-")  # minus signs, en dash, hyphens
    | dict.fromkeys("\u2044\u2215\uff0f", "/")  # fraction and division slashes
    | dict.fromkeys("\u00b7\u22c5\u2219\u2715\uff0a", "\u00d7")  # dots and stars that multiply
    | dict.fromkeys("\u200b\u2060\ufeff", None)  # invisible
    | {"\uff0c": ",", "\uff0e": ".", "\uff05": "%", "\uff04": "$", "\u2019": "'", "\u02bc": "'", "\u2014": " "}
)
_THIN_SPACE = r"[\u00a0\u2007\u2009\u202f]|\\[,:;]|~"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_VULGAR = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e])")
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathtt|mbox|hbox|bm|boldsymbol|emph"
    r"|underline|operatorname|boxed|fbox|framebox)\s*\{([^{}]*)\}"
)
_NUMERIC = r"-?[\d.,]+"
_FRACTION = re.compile(rf"(\d?)\\[dtc]?frac\s*(?:\{{\s*({_NUMERIC})\s*\}}|(\d))\s*(?:\{{\s*({_NUMERIC})\s*\}}|(\d))")
# a group that starts with 0 is no number of its own, so the spaces separate thousands
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})*? 0\d\d(?: \d{3})*(?!\d)")
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"(?<=\d)(?:\{{,\}}|,?\\!|{_THIN_SPACE})(?=\d{{3}}(?!\d))", ","),  # 1{,}234 and 1\,234 are 1,234
        (rf"{_THIN_SPACE}|\\!|\\ |\\q?quad\b|\\(?:enspace|thinspace)\b", " "),
        (r"\\([%$#&_])", r"\1"),
        (r"\\(?:times|cdot|ast)(?![a-zA-Z])", "\u00d7"),
        (r"\\(?:approx|simeq)(?![a-zA-Z])", "≈"),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b", "°"),
        (r"\\(?:left|right|displaystyle|textstyle|large|Large|huge|Huge|bf|rm|it|bigg?|Bigg?)(?![a-zA-Z])", ""),
        (r"\\textdollar\b", "$"),
        (r"\\pounds\b", "£"),
        (r"\\[()\[\]]|\\\\", " "),
        (r"\^\s*\{([^{}]*)\}", r"^\1"),
    )
]


def plain(text: str) -> str:
    r"""The text with LaTeX and Unicode spellings of numbers in one plain form: ``\dfrac{1}{2}`` and ``½`` are ``1/2``.

    Commands that are not known here stay, so that ``\sqrt{16}`` never passes for 16.
    """
    text = re.sub(r"[⁰¹²³⁴-⁹⁻⁺]+", lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
    text = _VULGAR.sub(lambda m: (m[1] and m[1] + " ") + unicodedata.normalize("NFKC", m[2]), text)
    text = text.translate(_SYMBOLS)
    if not text.isascii():
        text = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _SPACED.sub(lambda groups: groups[0].replace(" ", ""), text)
    for _ in range(4):  # wrappers nest a few deep at most
        text = _WRAPPER.sub(r"\1", text)
    # a digit in front makes it a mixed number
    return _FRACTION.sub(lambda m: f"{m[1] and m[1] + ' '}{m[2] or m[3]}/{m[4] or m[5]}", text)
