"""Answers that are given: the agents think about the context, and the judger says how likely each continuation is.

One chain serves all continuations of a context: they read its relay, or its messages, and change nothing in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.planning import Plan
from lm_eval_latentmas.records import Record
from lm_eval_latentmas.rollout import NonFiniteState, prefill, read
from lm_eval_latentmas.underway import Handed

#: A context's place in a batch, and the tokens of one of its continuations.
Continuation = tuple[int, tuple[int, ...]]


def score(
    chain: Chain, plans: Sequence[Plan], batch_size: int, *, progress: Callable[[str], None] | None = None
) -> Iterator[tuple[Plan, Record]]:
    """Score the continuations of planned questions; thinks about and scores at most ``batch_size`` rows at a time."""
    say = progress or (lambda phase: None)
    say("thinking")
    for handed in chain.thoughts(plans, batch_size):
        say("scoring")
        started = time.perf_counter()
        try:
            scores = score_continuations(chain.adapter, handed, batch_size)
        except NonFiniteState as error:
            raise error.at(f"{handed[error.row].plan}, agent {chain.prompts.judger.name}") from None
        share = (time.perf_counter() - started) / len(handed)
        for left, pairs in zip(handed, scores, strict=True):
            record = chain.handed_record(left)
            yield left.plan, replace(record, seconds={**left.seconds, "scoring": share}, stop="scored", scores=pairs)
        say("thinking")


@torch.inference_mode()
def score_continuations(
    adapter: ModelAdapter, handed: Sequence[Handed], rows: int
) -> list[tuple[tuple[float, bool], ...]]:
    """Per context and continuation, the summed log-probability of its tokens, and whether each was the likeliest.

    The judger's prompt is read once per context. At most ``rows`` continuations are read at a time.
    Raises NonFiniteState where a score is NaN.
    """
    plans = [left.plan for left in handed]
    cache = _loaded(adapter, handed)
    last = prefill(adapter, cache, [plan.prompts[-1] for plan in plans])
    first = adapter.logits(last)
    waiting = [(place, tokens) for place, plan in enumerate(plans) for tokens in plan.continuations]
    order = sorted(range(len(waiting)), key=lambda index: -len(waiting[index][1]))
    scores: dict[int, Tensor] = {}
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        scores |= zip(chosen, _scores(adapter, cache, first, [waiting[index] for index in chosen]), strict=True)
    sums, greedy = torch.stack([scores[index] for index in range(len(waiting))]).cpu().unbind(dim=1)
    if bool(sums.isnan().any()):
        place, _ = waiting[int(sums.isnan().nonzero()[0])]
        raise NonFiniteState(row=place, step=0)
    pairs = iter(zip(sums.tolist(), greedy.bool().tolist(), strict=True))
    return [tuple(next(pairs) for _ in plan.continuations) for plan in plans]


def _loaded(adapter: ModelAdapter, handed: Sequence[Handed]) -> LiveCache:
    """A cache of the contexts' relays, with room for the judger's prompts."""
    reserve = max(len(left.plan.prompts[-1]) for left in handed)
    if handed[0].relay is not None:
        relay = Relay.join([left.relay for left in handed])
        return LiveCache.from_relay(relay, [left.cursor for left in handed], reserve=reserve)
    cache = LiveCache(adapter.layers, len(handed))
    cache.reserve(reserve)
    return cache


def _scores(
    adapter: ModelAdapter, cache: LiveCache, first: Tensor, continuations: Sequence[Continuation]
) -> Iterator[Tensor]:
    """Per continuation (summed log-probability, 1 if greedy), float32.

    first: logits of the continuations' first tokens, (contexts, vocabulary). The rest is read behind copies of the
    contexts' rows; the last token is never read, nothing follows it.
    """
    longer = [index for index, (_, tokens) in enumerate(continuations) if len(tokens) > 1]
    states: dict[int, Tensor] = {}
    if longer:
        unread = [continuations[index][1][:-1] for index in longer]
        branch = cache.branch([continuations[index][0] for index in longer], reserve=max(map(len, unread)))
        hidden = read(adapter, branch, unread)
        states = dict(zip(longer, hidden, strict=True))
    for index, (place, tokens) in enumerate(continuations):
        logits = first[place : place + 1]
        if index in states:
            # by row, so that the vocabulary's width is never multiplied by the batch
            rest = adapter.logits(states[index][: len(tokens) - 1])
            logits = torch.cat([logits, rest.to(logits.device)])
        wanted = torch.tensor(tokens, device=logits.device)[:, None]
        chosen = logits.log_softmax(dim=-1).gather(-1, wanted)
        greedy = (logits.argmax(dim=-1, keepdim=True) == wanted).all()
        yield torch.stack([chosen.sum(), greedy.float()])
