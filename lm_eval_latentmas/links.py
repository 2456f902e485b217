"""How a relay gets from one agent to the next: held in memory, moved to another device, or written as messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.relay import wire


@dataclass(frozen=True)
class Carried:
    """relay: as the next agent gets it; None where it leaves the process, as ``messages``.

    sizes: bytes of each row's message.
    """

    relay: Relay | None
    sizes: Sequence[int]
    messages: Sequence[bytes] = ()


class Link(Protocol):
    """The way of one hop. moves: whether it takes time that is worth a figure."""

    moves: bool

    def carry(self, relay: Relay) -> Carried:
        """Bring a relay to the next agent."""
        ...


@dataclass(frozen=True)
class Memory:
    """The relay as it is, its encoded parts moved where the next agent's layers are on other devices.

    devices: of the next agent's layers, None where they are those of the one before.
    """

    devices: Sequence[torch.device] | None = None

    @property
    def moves(self) -> bool:
        """Whether anything is copied."""
        return self.devices is not None

    def carry(self, relay: Relay) -> Carried:
        """See `Link.carry`."""
        sizes = [relay.message_bytes(row) for row in range(relay.rows)]
        return Carried(relay if self.devices is None else relay.to(self.devices), sizes)


@dataclass(frozen=True)
class Wire:
    """The relay written as messages, one a row, and read back. fingerprint: of the model whose states these are."""

    fingerprint: str
    devices: Sequence[torch.device] | None = None
    moves: bool = True

    def carry(self, relay: Relay) -> Carried:
        """See `Link.carry`."""
        messages = written(relay, self.fingerprint)
        devices = self.devices or [positions.device for positions in relay.positions]
        return Carried(received(messages, self.fingerprint, devices), [len(message) for message in messages])


def written(relay: Relay, fingerprint: str) -> list[bytes]:
    """One message per row."""
    return [wire.encode(relay, fingerprint=fingerprint, row=row) for row in range(relay.rows)]


def received(messages: Sequence[bytes], fingerprint: str, devices: Sequence[torch.device]) -> Relay:
    """The relay that messages carry, every layer on its device. Raises `wire.WireError`."""
    return Relay.join([wire.decode(message, fingerprint=fingerprint, device=devices) for message in messages])
