"""From a data set's row to a document: question, gold answer, stable id, and for choices their texts and letters.

Fields differ between copies of a data set; every spelling that is known is accepted, and what is wrong is named.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from lm_eval_latentmas.scoring.numbers import read_number

Row = dict[str, Any]
_LETTERS = "ABCDEFGHIJ"


def gsm8k(row: Row) -> Row:
    """``question``, ``answer``: the gold number stands behind ``####`` on the last line, at times as ``2,125``."""
    worked, mark, gold = _text(row, "answer").rpartition("####")
    if not mark or not worked:
        raise ValueError("field 'answer' has no '#### NUMBER' at its end")
    return _document(row, _text(row, "question"), _number("answer", gold))


def number_problem(row: Row) -> Row:
    """``problem``, ``answer``, ``id``, in any case and type: AIME copies have ``Answer`` 25, ``answer`` "025"."""
    question = mend_latex(_text(row, "problem", "Problem", "question"))
    return _document(row, question, _number("answer", str(_value(row, "answer", "Answer"))))


def medqa(row: Row) -> Row:
    """``question``, ``options`` from letter to text, ``answer_idx`` the gold letter."""
    options = _value(row, "options")
    if not isinstance(options, dict) or len(options) < 2:
        raise ValueError(f"field 'options' must map letters to texts, not {options!r}")
    labels = sorted(options)
    return _choice(row, _text(row, "question"), [options[label] for label in labels], labels, _value(row, "answer_idx"))


def arc(row: Row) -> Row:
    """``question``, ``choices`` with ``text`` and ``label`` (A-E or 1-4, three to five of them), ``answerKey``."""
    choices = _value(row, "choices")
    if not isinstance(choices, dict) or not {"text", "label"} <= choices.keys():
        raise ValueError(f"field 'choices' must hold lists 'text' and 'label', not {choices!r}")
    return _choice(row, _text(row, "question"), choices["text"], choices["label"], _value(row, "answerKey"))


def gpqa(row: Row) -> Row:
    """``Question``, ``Correct Answer``, ``Incorrect Answer 1`` to ``3``, ``Record ID``.

    The source has the right answer first. The order here is that of a hash of question and option, so that it is the
    same in every process, and owes nothing to which option is right.
    """
    question = _text(row, "Question")
    texts = [_text(row, name) for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
    order = sorted(range(len(texts)), key=lambda place: (_digest(question, texts[place]), place))
    return _choice(row, question, [texts[place] for place in order], order, 0)


def humaneval_plus(row: Row) -> Row:
    """A row of EvalPlus's release file; the question is a signature with a docstring."""
    prompt = _text(row, "prompt").rstrip()
    question = f"Write the Python function that this signature and docstring describe.\n\n```python\n{prompt}\n```"
    return _problem(row, question)


def mbpp_plus(row: Row) -> Row:
    """A row of EvalPlus's release file; the prompt is a docstring: a sentence, and a test that shows the name."""
    prompt = _text(row, "prompt").strip().strip('"').strip()
    task, _, test = re.sub(r"\n+(?=assert\b)", "\0", prompt, count=1).partition("\0")
    return _problem(row, f"{task}\n\nThe code must pass this test:\n\n```python\n{test}\n```" if test else task)


def _problem(row: Row, question: str) -> Row:
    for name in ("entry_point", "task_id", "canonical_solution"):
        _text(row, name)
    missing = [name for name in ("base_input", "plus_input", "atol") if name not in row]
    if missing:
        raise ValueError(f"field '{missing[0]}' is missing; this is not EvalPlus's release layout")
    return row | {"id": row["task_id"], "question": question, "gold": row["canonical_solution"]}


# Copies of AIME 2025 were read with "\f" and "\t" as control characters, and lost one backslash of "\\".
_CONTROL = {"\f": r"\f", "\b": r"\b", "\v": r"\v", "\a": r"\a"}
_LOST_TAB = re.compile(r"\t(?=(?:riangle|imes|heta|ext|an|au|o|frac|ilde|herefore)(?![a-z])|ext[a-z]{2}\b)")
_LOST_RETURN = re.compile(r"\r(?=(?:ight|ho|angle|ceil|floor|m)(?![a-z]))")
_ROWS = re.compile(r"(\\begin\{(cases|array|aligned|align\*?|[bpvBV]?matrix|gathered)\})(.*?)(\\end\{\2\})", re.DOTALL)


def mend_latex(text: str) -> str:
    r"""A problem with its LaTeX restored where backslashes were lost: form feed + ``rac``, tab + ``riangle``.

    Inside ``cases`` and its like ``\ `` stands for the row break; elsewhere it is a space and stays.
    """
    text = re.sub("[\f\b\v\a](?=[a-z])", lambda lost: _CONTROL[lost[0]], text)
    text = _LOST_RETURN.sub(r"\\r", _LOST_TAB.sub(r"\\t", text))
    return _ROWS.sub(lambda rows: rows[1] + re.sub(r"(?<!\\)\\(?=\s)", r"\\\\", rows[3]) + rows[4], text)


def _choice(row: Row, question: str, texts: list[Any], labels: list[Any], gold: Any) -> Row:
    """A document whose letters go on from A, however the source labels its choices."""
    texts, labels, gold = ([str(part).strip() for part in parts] for parts in (texts, labels, [gold]))
    if len(texts) != len(labels) or not 2 <= len(texts) <= len(_LETTERS) or not all(texts):
        raise ValueError(f"{len(texts)} choices with {len(labels)} labels; 2 to {len(_LETTERS)} of both are needed")
    if labels.count(gold[0]) != 1:
        raise ValueError(f"the gold label {gold[0]!r} is not one of {labels}")
    letters = list(_LETTERS[: len(texts)])
    return _document(row, question, letters[labels.index(gold[0])]) | {"choices": texts, "letters": letters}


def _document(row: Row, question: str, gold: str) -> Row:
    own = next((row[name] for name in ("id", "ID", "Record ID") if row.get(name) not in (None, "")), None)
    return {"id": _digest(question)[:16] if own is None else str(own), "question": question, "gold": gold}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _number(field: str, written: str) -> str:
    value = read_number(written)
    if value is None:
        raise ValueError(f"field '{field}' holds no number: {written.strip()!r}")
    return str(value)


def _value(row: Row, *names: str) -> Any:
    found = next((row[name] for name in names if row.get(name) is not None), None)
    if found is None:
        raise ValueError(
            f"field '{names[0]}' is missing or null; the row has {', '.join(map(str, row)) or 'no fields'}"
        )
    return found


def _text(row: Row, *names: str) -> str:
    value = _value(row, *names)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"field '{names[0]}' must be a text that is not empty, not {value!r}")
    return value.strip()
