"""What ``--apply_chat_template`` means with several agents: the conversation becomes the question.

lm-eval renders few-shot examples, system instruction and answer prefix into one text before the model sees them. The
text made here stays readable, and `unpack` gets back what each part was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Turn = dict[str, str]
_MARK = "\x1e"  # the record separator: no data set's text contains it


@dataclass(frozen=True)
class Conversation:
    """question: what every agent is shown. system: replaces their system line. prefix: begins the judger's answer."""

    question: str
    system: str | None = None
    prefix: str = ""


def pack(turns: Sequence[Turn], *, continued: bool = False) -> str:
    """Chat turns as one text; ``continued`` says that the last turn is the beginning of the answer."""
    turns = list(turns)
    system = turns.pop(0)["content"] if turns and turns[0]["role"] == "system" else None
    prefix = turns.pop()["content"] if continued and turns and turns[-1]["role"] == "assistant" else ""
    if len(turns) == 1:
        question = turns[0]["content"]
    else:
        question = "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in turns)
    head = "" if system is None else f"{_MARK}system\n{system}{_MARK}\n"
    return head + question + (f"\n{_MARK}answer\n{prefix}{_MARK}" if prefix else "")


def unpack(text: str) -> Conversation:
    """The parts of a text that `pack` made; any other text is a question by itself."""
    system, prefix = None, ""
    if text.startswith(f"{_MARK}system\n"):
        system, text = text[len(_MARK) + len("system\n") :].split(f"{_MARK}\n", 1)
    if text.endswith(_MARK) and f"\n{_MARK}answer\n" in text:
        text, prefix = text[: -len(_MARK)].rsplit(f"\n{_MARK}answer\n", 1)
    return Conversation(text, system, prefix)
