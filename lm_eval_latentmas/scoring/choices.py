"""The options of a multiple-choice question, and which of them a short text names. Letters are the question's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from lm_eval_latentmas.scoring.markup import plain
from lm_eval_latentmas.scoring.numbers import read_number


@dataclass(frozen=True)
class Options:
    """The options of one question: their texts and their letters, in the same order."""

    texts: tuple[str, ...]
    letters: tuple[str, ...]

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """The texts as they are compared: lower case, single spaces, no punctuation around them."""
        return tuple(phrase(text) for text in self.texts)

    def letter(self, written: str) -> str | None:
        """The option's letter for a written one, else None."""
        return written.upper() if written.upper() in self.letters else None

    def named(self, text: str) -> set[str]:
        """The letters of the options whose texts occur in ``text``, without those that only occur inside another's."""
        text = phrase(text)
        hits = {
            letter: own
            for letter, own in zip(self.letters, self.phrases, strict=True)
            if own and re.search(rf"(?<!\w){re.escape(own)}(?!\w)", text)
        }
        # "iron" is not named by "iron oxide", but it is by "iron and iron oxide"
        return {
            letter
            for letter, own in hits.items()
            if not any(own in other != own and own not in text.replace(other, "") for other in hits.values())
        }


def phrase(text: str) -> str:
    """A text as options are compared: lower case, single spaces, no markup, no punctuation at its ends."""
    return re.sub(r"\s+", " ", re.sub(r"[*_`$\\{}]", "", plain(text))).strip(" .,;:!?\"'()").lower()


_ALONE = re.compile(r"(?i)\W*(?:(?:the\s+)?(?:answer|option|choice)\b[\s:]*(?:is\s+)?)?\W*([A-Z])\W*")
_LED = re.compile(
    r"\W*(?:(?:option|choice)\s+)?(?:[(\[](?P<in>[A-Za-z])[)\]]|(?P<bare>[A-Z])(?=[.):,;\]\s-]))\W*(?=\w)"
)


def read_choice(text: str, question: Options) -> str | None:
    """The letter of a text that as a whole is one choice: a letter, a letter with its option, or an option's text."""
    flat = re.sub(r"[*_`$]", "", plain(text)).strip()
    alone = _ALONE.fullmatch(flat)
    if alone and (letter := question.letter(alone[1])):
        return letter
    words = phrase(text)
    equal = [letter for letter, own in zip(question.letters, question.phrases, strict=True) if own == words]
    if len(equal) == 1:
        return equal[0]
    led = _LED.match(flat)
    if led and (letter := question.letter(led["in"] or led["bare"])):
        rest = flat[led.end() :]
        others = re.search(r"(?:^|\W)[A-Z](?:\W|$)", rest) and not question.named(rest)
        spaced = bool(led["bare"]) and flat[led.end("bare")].isspace()  # "A 34-year-old" is no choice of A
        if question.named(rest) == {letter} or not (spaced or others):
            return letter
        return None
    named = question.named(text)
    return named.pop() if len(named) == 1 else _equal_number(text, question)


def _equal_number(text: str, question: Options) -> str | None:
    value = read_number(text)
    equal = [letter for letter, own in zip(question.letters, question.texts, strict=True) if read_number(own) == value]
    return equal[0] if value is not None and len(equal) == 1 else None
