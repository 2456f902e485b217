"""What is known about one answered sample, and the text that carries it through the harness."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal


@dataclass(frozen=True)
class Record:
    """One answered request: the text and what it cost. Plain JSON in every field.

    prompt_tokens: L, prompt tokens fed to the non-judger agents, summed (method, section 4).
    kept_states: prompt states that the judger's relay still holds, mean over layers and heads.
    relay_bytes, relay_states: per hop, the bytes of the message and the states in it; UTF-8 bytes in mode ``text``.
    relay_seconds: per hop, a share of the time that its way took; empty where relays stay in one memory.
    message_tokens, messages: per thinking agent, what it decoded in mode ``text``; messages_truncated: how many of
        them were cut off by ``text_tokens``.
    seconds: shares of the batch's wall clock: latent, compression, decoding; in mode ``text`` messages, decoding; of
        scored answers scoring in place of decoding.
    stop: ``eos``, ``until`` or ``length``; ``truncated`` is ``stop == "length"``. ``scored``: nothing was decoded.
    scores: of given continuations, each its log-likelihood and whether greedy decoding would have written it.
    clamped: new tokens were cut to what the model's context holds.
    """

    task: str
    doc_id: int
    repeat: int
    text: str
    prompt_tokens: int = 0
    judger_tokens: int = 0
    latent_passes: int = 0
    decoded_tokens: int = 0
    kept_states: float = 0.0
    relay_bytes: tuple[int, ...] = ()
    relay_states: tuple[float, ...] = ()
    relay_seconds: tuple[float, ...] = ()
    message_tokens: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()
    messages_truncated: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    stop: Literal["eos", "until", "length", "scored"] = "eos"
    clamped: bool = False
    scores: tuple[tuple[float, bool], ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut off by the token budget."""
        return self.stop == "length"

    def to_json(self) -> str:
        """The record as text that `from_json` reads."""
        # ASCII JSON writes a lone surrogate as an escape, where SQLite would refuse it as text
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record of `to_json`, also that of a version with other fields."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: frozen(value) for name, value in json.loads(text).items() if name in names})

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON-ready fields, ``truncated`` and ``rho`` included."""
        rho = self.kept_states / self.prompt_tokens if self.prompt_tokens else None
        return asdict(self) | {"truncated": self.truncated, "rho": rho}


class Response(str):
    """A model's text that remembers its `Record`; any other lm-eval model returns a plain ``str`` instead."""

    record: Record | None

    def __new__(cls, text: str, record: Record | None = None) -> Response:
        response = super().__new__(cls, text)
        response.record = record
        return response

    def __getnewargs__(self) -> tuple[str, Record | None]:
        return str(self), self.record


def frozen(value: Any) -> Any:
    """Plain JSON with its lists as tuples, at any depth: what a frozen dataclass held before it was written."""
    if isinstance(value, dict):
        return {name: frozen(part) for name, part in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list) else value
