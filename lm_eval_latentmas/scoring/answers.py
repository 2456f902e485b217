"""From a model's text to its answer: `extract_number`, `extract_choice`, `extract_code`. Pure; text in, answer or None.

None means that nothing could be read, which is counted apart from a wrong answer. The first rule that applies decides,
in the order in which its sign of intent is weaker: a box, a stated answer, emphasis, position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lm_eval_latentmas.scoring import choice_rules, number_rules
from lm_eval_latentmas.scoring.choices import Options, read_choice
from lm_eval_latentmas.scoring.markup import after_thoughts, last_box, plain, thought_is_open
from lm_eval_latentmas.scoring.numbers import read_number
from lm_eval_latentmas.scoring.programs import find_program


@dataclass(frozen=True)
class Answer:
    """What was read: a number, a letter or a program; the words it stands in; the rule that found it."""

    value: Fraction | str
    text: str
    rule: str


def extract_number(response: str) -> Answer | None:
    r"""The number that a response gives as its answer.

    Rules: the last box; else the last stated answer (``the answer is 7``, ``#### 7``); else a bold number near the
    end; else the last number. A box decides alone: text around it changes nothing, and a box without a number is no
    answer, because the numbers of the reasoning are not what the model answered.
    """
    spoken = after_thoughts(response)
    box = last_box(spoken)
    if box is not None:
        return _answer(read_number(box), box, "box")
    text = plain(spoken)
    for rule, candidates in number_rules.RULES.items():
        for value, words in candidates(text):
            if value is not None:
                return Answer(value, words.strip(), rule)
    return None


def extract_choice(response: str, options: Sequence[str], letters: Sequence[str]) -> Answer | None:
    """The letter, out of ``letters``, of the option that a response chooses; ``options`` are their texts.

    Rules: the last box; else the last stated choice; else emphasis; else a line that is one choice; else the choice
    that a closing word such as ``so`` or ``therefore`` leads to; else the one option whose text occurs; else the one
    letter that is mentioned and not rejected. A letter beyond the question's own is never an answer.
    """
    spoken = after_thoughts(response)
    box = last_box(spoken)
    question = Options(tuple(options), tuple(letters))
    if box is not None:
        return _answer(read_choice(box, question), box, "box")
    text = plain(spoken)
    for rule, find in choice_rules.RULES.items():
        letter, words = find(text, question)
        if letter is not None:
            return Answer(letter, words, rule)
    return None


def extract_code(response: str, entry_point: str) -> Answer | None:
    """The Python program of a response that defines ``entry_point``, ready to run behind the prompt's own imports.

    Fenced blocks count before bare code, the last block that defines the function before the others; helpers and
    imports that it needs come along from earlier blocks, example calls and main guards do not. None without any code.
    """
    found = find_program(after_thoughts(response), entry_point)
    return found and Answer(found.source, found.source, found.rule)


def why_none(response: str) -> str:
    """Why nothing was read from a response."""
    spoken = after_thoughts(response)
    if not response.strip():
        return "the response is empty"
    if not spoken.strip():
        return "the thought never closes" if thought_is_open(response) else "nothing follows the thought"
    box = last_box(spoken)
    return f"the box cannot be read: {box.strip()[:80]}" if box is not None else "no rule found an answer"


def _answer(value: Fraction | str | None, words: str, rule: str) -> Answer | None:
    return None if value is None else Answer(value, words.strip(), rule)
