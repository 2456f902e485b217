"""Where a text says which option it chooses, outside of a box. Each rule gives a letter and its words, or nothing.

A rule takes plain text and the options; `RULES` holds them in the order in which they are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lm_eval_latentmas.scoring.choices import Options, phrase, read_choice

Found = tuple[str | None, str]
_NOTHING: Found = (None, "")

# A capital, a bracketed letter, or a lone lower-case one before punctuation. "A" before another word is an article,
# unless that word gives a reason; so is "a".
_LETTER = r"""(?:[(\["']+(?P<in>[A-Za-z])[)\]"']+
    |(?P<big>[A-Z])(?![\w'-])(?<![AI](?=\s+(?!(?:because|since|as|is|and|or|but|with|due|for|which)\b)[a-z]))
    |(?P<small>[a-z])(?=\s*(?:[.,;!)\n]|$)))"""
_ONE_OF_TWO = r"(?!\s*(?:/|,|\bor\b|\band\b|&)\s*(?:option\s+)?[(\[]?[A-Z][)\]]?\s*(?:[.,;)!\n]|$))(?!\s*\?)"
_QUALITY = r"(?:correct|right|best|most\s+\w+|appropriate|likely|true|the\s+(?:\w+\s+){0,2}(?:answer|choice|option))\b"


def _pattern(before: str, after: str = "") -> re.Pattern[str]:
    return re.compile(before + _LETTER + _ONE_OF_TWO + after, re.VERBOSE | re.MULTILINE)


_WORDS_BETWEEN = r"(?:(?!choices|options)[^.\n?!]){0,60}?"  # "Answer choices:" lists them
_ANSWER = rf"(?i:\b(?:answer|choice|option|conclusion)\b{_WORDS_BETWEEN}(?:\bis\b|\bbe\b|[:=]|[ ]*\n))[\s:]*"
_STATEMENTS = (
    _pattern(_ANSWER + r"(?i:(?:therefore|thus|clearly|option|choice|letter)[\s:,]+)*"),
    _pattern(r"^[ \t]*\#{2,4}\s*", r"(?=\s*(?:[.,:)]|$))"),
    _pattern(
        r"(?i:\b(?:choose|pick|select|go(?:ing)?\s+with|think|believe)\s+(?:it\s+is\s+|it's\s+)?(?:(?:option|choice|answer)\s+)?)"
    ),
    _pattern(r"(?<!\w)", rf"\s+(?i:is\s+(?:\w+ly\s+)*{_QUALITY})"),
    _pattern(r"(?i:\bnot\s+(?:option\s+)?)\(?[A-Z]\)?,?\s+(?i:but\s+(?:rather\s+|instead\s+)?(?:option\s+)?)"),
)
_CLOSING = (
    _pattern(
        r"(?i:\b(?:so|thus|therefore|hence|then|leaves|leaving|leads?\s+to|must\s+be|it\s+is|it's|is)\b[\s,:]*"
        r"(?:(?:only|it\s+is|it's|it\s+must\s+be|we\s+have|the\s+answer|option|choice|us\s+with)[\s,:]*)*)",
        r"(?=\s*(?:[.,;!)\n]|$))",
    ),
)


def _last(patterns: tuple[re.Pattern[str], ...], text: str, question: Options) -> Found:
    matches = [match for pattern in patterns for match in pattern.finditer(text)]
    named = ((question.letter(m["in"] or m["big"] or m["small"]), m) for m in sorted(matches, key=lambda m: -m.end()))
    return next(((letter, m[0]) for letter, m in named if letter), _NOTHING)


_SENTENCE = re.compile(r"(?:[^.!?\n]|[.!?](?=\S)){0,200}")


def _stated(text: str, question: Options) -> Found:
    """``The answer is (C)``, ``Answer: C.``, ``C is correct``, ``not A but C``; or the same with an option's text."""
    unmarked = re.sub(r"[*_`$]", "", text)
    letter, words = _last(_STATEMENTS, unmarked, question)
    if letter:
        return letter, words
    for stated in list(re.finditer(_ANSWER, unmarked))[:-20:-1]:
        sentence = _SENTENCE.match(unmarked, stated.end())[0]
        named = _named(sentence, question)
        if len(named) == 1:
            return named.pop(), sentence
    return _NOTHING


def _emphasis(text: str, question: Options) -> Found:
    """``**C**``, ``**(C) Paris**``; one letter only, as headings of a list of options are bold, too."""
    bold = [(read_choice(m[2], question), m[2]) for m in re.finditer(r"(\*\*|__)(?=\S)([^*_\n]+)\1", text)]
    bold = [(letter, words) for letter, words in bold if letter]
    return bold[-1] if len({letter for letter, _ in bold}) == 1 else _NOTHING


_LINE = re.compile(r"^[\W_]*(?:option\s+)?[(\[]?([A-Z])[)\]]?[*_]*(?:[.):]\s+\S.*|[\W_]*)$", re.MULTILINE)


def _listed(lines: list[str], question: Options) -> list[tuple[str, str]]:
    """The lines that are a letter, alone or with its option, and their letters."""
    letters = [(question.letter(m[1]), line) for line in lines if (m := _LINE.match(line))]
    return [(letter, line) for letter, line in letters if letter]


def _line(text: str, question: Options) -> Found:
    """A line that is a letter, alone or with its option; where several list the options, only a bare last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    chosen = _listed(lines, question)
    bare_last = lines and re.fullmatch(r"\W*[A-Za-z]\W*", lines[-1]) and question.letter(re.sub(r"\W", "", lines[-1]))
    if bare_last:
        return bare_last, lines[-1]
    return chosen[-1] if len({letter for letter, _ in chosen}) == 1 else _NOTHING


def _closing(text: str, question: Options) -> Found:
    """``A is wrong, so C``; or a letter in brackets in the last line, if it is the only one there."""
    letter, words = _last(_CLOSING, re.sub(r"[*_`$]", "", text), question)
    last = text.rstrip().rsplit("\n", 1)[-1]
    bracketed = {own for m in re.finditer(r"\(([A-Z])\)", last) if (own := question.letter(m[1]))}
    return (letter, words) if letter else (bracketed.pop(), last) if len(bracketed) == 1 else _NOTHING


_REJECTED = re.compile(r"\b(?:not|isn't|neither|nor|wrong|incorrect|false|except)\b|n't\b")


def _named(text: str, question: Options) -> set[str]:
    """The options that a text names and does not reject; none where it rejects something that cannot be told."""
    words = phrase(text)
    longest_first = sorted(filter(None, question.phrases), key=len, reverse=True)
    for own in longest_first:
        rejected = rf"\b(?:not|nor|rather than|instead of)\s+(?:the\s+|an?\s+)?{re.escape(own)}(?!\w)"
        words = re.sub(rejected, " ", words)
    rest = words
    for own in longest_first:  # an option may have a "not" of its own
        rest = rest.replace(own, " ")
    return set() if _REJECTED.search(rest) else question.named(words)


def _option_text(text: str, question: Options) -> Found:
    """The one option whose text occurs, in the last line or else anywhere. One character is too little to go by."""
    short = {letter for letter, own in zip(question.letters, question.phrases, strict=True) if len(own) < 2}
    lines = text.rstrip().splitlines() or [""]
    listed = {line for _, line in _listed(lines, question)}  # a repeated list of the options names all and chooses none
    spoken = [line for line in lines if line not in listed] if len(listed) > 1 else lines
    for part in (*spoken[-1:], "\n".join(spoken)):
        named = _named(part, question) - short
        if len(named) == 1:
            return named.pop(), part
    return _NOTHING


_MENTION = re.compile(
    r"\b(?i:option|choice|answer|letter)\s+(?P<named>[A-Z])(?![\w'])|\((?P<in>[A-Z])\)"
    r"|\A\W*(?P<first>[A-Z])(?=\s*(?:[-,;:]|because\b|since\b|as\b|is\b|$))"
)
_REJECTED_BEFORE = re.compile(r"(?i)\b(?:not|neither|nor|eliminates?|excludes?|rejects?|rules? out|than|except)\s+\W*$")
_REJECTED_AFTER = re.compile(
    r"(?i)\W?\s*(?:is|are|was|can|does|would|seems)(?:n't|\s+(?:\w+ly\s+|also\s+)?(?:not|wrong|incorrect|false|out)\b)"
)


def _mentioned(text: str, question: Options) -> Found:
    """The one letter that is mentioned as an option and not rejected."""
    letters = set()
    for mention in _MENTION.finditer(text):
        before = text[max(0, mention.start() - 20) : mention.start()]
        if not _REJECTED_BEFORE.search(before) and not _REJECTED_AFTER.match(text, mention.end()):
            letters.add(question.letter(mention["named"] or mention["in"] or mention["first"]))
    letters.discard(None)
    return (letters.pop(), text[-80:]) if len(letters) == 1 else _NOTHING


RULES: dict[str, Callable[[str, Options], Found]] = {
    "stated": _stated,
    "emphasis": _emphasis,
    "line": _line,
    "closing word": _closing,
    "option text": _option_text,
    "only letter": _mentioned,
}
