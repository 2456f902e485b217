"""A batch underway as a message to the next process, and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.links import Carried, received, written
from lm_eval_latentmas.pipeline.channel import BadMessage, Message
from lm_eval_latentmas.planning import Plan, Question
from lm_eval_latentmas.records import frozen
from lm_eval_latentmas.sampling import Generation
from lm_eval_latentmas.underway import Underway

_NOTED = ("agent", "bytes", "states", "hop_seconds", "seconds")


class Departure:
    """The hop out of this process: the relay becomes messages, which the batch holds until they are sent."""

    moves = True

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def carry(self, relay: Relay) -> Carried:
        """See `Link.carry`."""
        messages = written(relay, self.fingerprint)
        return Carried(None, [len(message) for message in messages], messages)


def letter(number: int, batch: Underway) -> tuple[dict[str, Any], Sequence[bytes]]:
    """Header and bodies of the message that carries a batch."""
    noted = {name: getattr(batch, name) for name in _NOTED}
    header = {"kind": "batch", "number": number, "plans": [asdict(plan) for plan in batch.plans], **noted}
    return header, batch.messages


def opened(message: Message, sender: str, fingerprint: str, devices: Sequence[torch.device]) -> tuple[int, Underway]:
    """The batch that a message carries, and its number. sender: named where it cannot be read, by BadMessage."""
    started = time.perf_counter()
    try:
        header = message.header
        if header["kind"] != "batch":
            raise ValueError(f"unknown kind '{header['kind']}'")
        batch = Underway([_plan(plan) for plan in header["plans"]], **{name: header[name] for name in _NOTED})
        if message.bodies:
            batch.relay = received(message.bodies, fingerprint, devices)
            if batch.relay.rows != len(batch.plans):
                raise ValueError(f"{batch.relay.rows} relays for {len(batch.plans)} questions")
            seconds = message.seconds + time.perf_counter() - started
            batch.hop_seconds[-1] += seconds
            batch.spend("transport", seconds)
        return header["number"], batch
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadMessage(f"{sender} sent a message that cannot be read: {type(error).__name__}: {error}") from error


def _plan(fields: dict[str, Any]) -> Plan:
    made = {name: frozen(value) for name, value in fields.items()}
    for name in ("question", "thinking_about"):
        made[name] = Question(**made[name] | {"generation": Generation(**made[name]["generation"])})
    return Plan(**made | {"generation": Generation(**made["generation"])})
