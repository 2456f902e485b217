"""A batch of questions between its agents, and what the thinking agents leave for the judger of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.links import Carried
from lm_eval_latentmas.planning import Plan


@dataclass
class Handed:
    """What the thinking agents leave for the judger of one question: a relay, or messages that its prompt shows."""

    plan: Plan
    relay: Relay | None
    cursor: int
    relay_bytes: tuple[int, ...] = ()
    relay_states: tuple[float, ...] = ()
    relay_seconds: tuple[float, ...] = ()
    kept_states: float = 0.0
    latent_passes: int = 0
    messages: tuple[str, ...] = ()
    message_tokens: tuple[int, ...] = ()
    messages_truncated: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Underway:
    """Questions whose first ``agent`` thinking agents have had their turn.

    relay: what the next agent gets, a row per question (side by side: per agent and question); None before the first,
        and where it is written as ``messages`` for another process, one a row.
    bytes, states: per hop and row, of the message and in the relay. hop_seconds: per hop, what its way took.
    seconds: per phase.
    """

    plans: Sequence[Plan]
    agent: int = 0
    relay: Relay | None = None
    messages: Sequence[bytes] = ()
    bytes: list[list[int]] = field(default_factory=list)
    states: list[list[float]] = field(default_factory=list)
    hop_seconds: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def spend(self, phase: str, seconds: float) -> None:
        """Count seconds of a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def arrived(self, carried: Carried, states: Sequence[float], hops: int, seconds: float) -> None:
        """Note a hand-off of ``hops`` agents that worked at once.

        states: per row, in the relay that was handed on. seconds: that its way took.
        """
        self.relay, self.messages = carried.relay, carried.messages
        self.agent += hops
        rows = len(self.plans)
        for start in range(0, hops * rows, rows):
            self.bytes.append(list(carried.sizes[start : start + rows]))
            self.states.append(list(states[start : start + rows]))
            self.hop_seconds.append(seconds / hops)
        if "transport" in self.seconds:
            self.spend("transport", seconds)
