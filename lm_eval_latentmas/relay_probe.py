"""Documents that only a relay can answer: seeded facts that the thinking agents see and the judger is asked about.

The text of a document has two parts with `UPSTREAM_MARK` between them. A chain shows the first to the agents before
the judger and the second to the judger alone (`split_upstream`); a model without agents reads both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

# the record separator occurs in no other task's text, and the words tell a person what it is for
UPSTREAM_MARK = "\n\x1eFor the last agent:\n"

FACT_TYPES = ("code word", "number", "colour", "list")
CANDIDATES = 8

_WORDS = {
    "colour": "amber black blue brown green grey orange pink purple red white yellow",
    "thing": "anchor basket candle drum feather hammer kettle ladder mirror needle pillow rope saddle trumpet violin",
    "place": "archive bakery boathouse chapel clinic courthouse dairy foundry granary harbour hostel kiln laboratory "
    "library lighthouse mill museum nursery observatory orchard pharmacy quarry school stable station tannery theatre "
    "workshop",
    "syllable": "ba de fi go lu ma ne pi ro su ta ve wo za ki mo",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday",
}
_COLOURS, _THINGS, _PLACES, _SYLLABLES, _DAYS = (words.split() for words in _WORDS.values())
_SAID = {
    "code word": "The code word of the {place} is {value}.",
    "number": "The inventory number of the {place} is {value}.",
    "colour": "The door of the {place} is painted {value}.",
    "list": "The shelf in the {place} holds {value}, in this order.",
}
_ASKED = {
    "code word": "What is the code word of the {place}? Answer with the code word only.",
    "number": "What is the inventory number of the {place}? Answer with the number only.",
    "colour": "Which colour is the door of the {place}? Answer with the colour only.",
    "list": "Which things does the shelf in the {place} hold? Answer with the things in order, separated by commas.",
}
_ASIDE = (
    "The visit to the {place} was moved to {day}.",
    "Nobody has swept the yard of the {place} since {day}.",
    "On {day} the {place} closes an hour early.",
    "A new lamp for the {place} was bought last {day}.",
)
_TASK = "Read these notes and keep every detail. Another agent will be asked about one of them and cannot see them."


def documents(
    count: int = 200, *, seed: int = 0, facts_per_type: int = 2, distractors: int = 6
) -> list[dict[str, Any]]:
    """Make documents; the same seed gives the same ones, and a larger count only adds to them.

    Each has ``facts_per_type`` facts of every type about places of their own, and ``distractors`` sentences without a
    fact, in random order. Fact types are asked in turn. Fields: id, text, upstream, question, answer, candidates (of
    the answer's type, the answer among them), fact_type, distance (sentences that follow the fact).

    Raises:
        ValueError: a number out of range.
    """
    most = len(_PLACES) // len(FACT_TYPES)
    if not 1 <= facts_per_type <= most:
        raise ValueError(f"facts_per_type={facts_per_type}: allowed are 1 to {most}")
    for name, value in (("count", count), ("distractors", distractors)):
        if value < 0:
            raise ValueError(f"{name}={value}: allowed are 0 and more")
    return [_document(index, seed, facts_per_type, distractors) for index in range(count)]


def split_upstream(text: str) -> tuple[str, str]:
    """What the thinking agents and what the judger is shown of a document's text; without a mark both see all of it."""
    upstream, mark, question = text.partition(UPSTREAM_MARK)
    return (upstream, question) if mark else (text, text)


def read_answer(response: str, candidates: list[str]) -> str | None:
    """The candidate that a response names last, in any case and punctuation; None when it names none."""
    words = _words(response)
    places = {candidate: words.rfind(_words(candidate)) for candidate in candidates}
    last = max(places, key=places.__getitem__, default=None)
    return last if last is not None and places[last] >= 0 else None


def rank_of(answer: str, candidates: list[str], scores: list[float]) -> int:
    """The place of the answer among candidates by score (log-likelihood), 1 for the best; ties count against it."""
    own = scores[candidates.index(answer)]
    return sum(score >= own for score in scores)


def _document(index: int, seed: int, facts_per_type: int, distractors: int) -> dict[str, Any]:
    draw = random.Random(f"relay probe {seed} {index}")
    places = draw.sample(_PLACES, len(FACT_TYPES) * facts_per_type)
    facts = [(kind, places.pop(), value) for kind in FACT_TYPES for value in _values(kind, draw, facts_per_type)]
    asked = draw.choice([fact for fact in facts if fact[0] == FACT_TYPES[index % len(FACT_TYPES)]])
    sentences = [(fact, _SAID[fact[0]].format(place=fact[1], value=fact[2])) for fact in facts]
    sentences += [(None, _aside(draw)) for _ in range(distractors)]
    draw.shuffle(sentences)
    kind, place, answer = asked
    taken = [value for other, _, value in facts if other == kind]
    candidates = taken + _values(kind, draw, CANDIDATES - len(taken), besides=taken)
    draw.shuffle(candidates)
    upstream = "\n".join([_TASK, "", *(sentence for _, sentence in sentences)])
    question = _ASKED[kind].format(place=place)
    return {
        "id": f"probe-{seed}-{index}",
        "text": upstream + UPSTREAM_MARK + question,
        "upstream": upstream,
        "question": question,
        "answer": answer,
        "candidates": candidates,
        "fact_type": kind,
        "distance": len(sentences) - 1 - [fact for fact, _ in sentences].index(asked),
    }


def _aside(draw: random.Random) -> str:
    return draw.choice(_ASIDE).format(place=draw.choice(_PLACES), day=draw.choice(_DAYS))


def _values(kind: str, draw: random.Random, count: int, besides: list[str] | None = None) -> list[str]:
    """Different values of one type."""
    found: list[str] = []
    while len(found) < count:
        value = _DRAW[kind](draw)
        if value not in found and value not in (besides or ()):
            found.append(value)
    return found


_DRAW: dict[str, Callable[[random.Random], str]] = {
    "code word": lambda draw: "".join(draw.sample(_SYLLABLES, 3)),
    "number": lambda draw: str(draw.randrange(1000, 10000)),
    "colour": lambda draw: draw.choice(_COLOURS),
    "list": lambda draw: ", ".join(draw.sample(_THINGS, 3)),
}


def _words(text: str) -> str:
    """Words and numbers between single blanks, lower case, without thousands separators, articles and 'and'."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.casefold())
    words = [word for word in re.findall(r"\w+", text) if word not in ("a", "an", "and", "the")]
    return f" {' '.join(words)} "
