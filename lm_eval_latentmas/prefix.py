"""The tokens that every chain's first prompt begins with, read once for all of them.

Later agents read behind what the ones before them left, so no two of their states are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.rollout import prefill


class SharedPrefix:
    """What prompts have in common, system line and role head for the most part; its states are kept from first use."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self.tokens: tuple[int, ...] = ()
        if len(prompts) > 1:
            # what the first and the last in order share, all share
            pairs = zip(min(prompts), max(prompts), strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            # one token is left for every row: the state at a prompt's end is its own
            self.tokens = tuple(prompts[0][: min(shared, *(len(prompt) - 1 for prompt in prompts))])
        self._states: LiveCache | None = None

    def begin(self, adapter: Any, prompts: Sequence[Sequence[int]], *, reserve: int) -> LiveCache:
        """A cache of a row for each prompt that holds the shared tokens, or no token where a prompt begins otherwise.

        reserve: states per row that will be written, the shared ones included.
        """
        count = len(self.tokens)
        if not count or any(tuple(prompt[:count]) != self.tokens or len(prompt) == count for prompt in prompts):
            cache = LiveCache(adapter.layers, len(prompts))
            cache.reserve(reserve)
            return cache
        if self._states is None:
            self._states = LiveCache(adapter.layers, 1)
            prefill(adapter, self._states, [self.tokens])
        return self._states.branch([0] * len(prompts), reserve=reserve - count)
