"""What a first prompt begins with before its question: system line and role head, read once for all documents.

Later agents read behind what the ones before them left, so no two of their states are alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import reduce

from lm_eval_latentmas.continuations import Tokens, common
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import prefill

#: Questions that begin in every way that could join the tokens before them.
_OPENINGS = ("Which", "which", "7", " which", "\nWhich", "\n\n", '"', "'s", "$", "\\", "(", ".", "é", "问", "😀")
_KEPT = 16


def head(prompt_of: Callable[[str], Sequence[int]]) -> Tokens:
    """The tokens that prompts begin with whatever the question: those that questions of every kind have in common."""
    prompts = (tuple(prompt_of(opening)) for opening in _OPENINGS)
    return reduce(lambda one, other: one[: common(one, other)], prompts)


class Prefixes:
    """The states of heads that were read, the latest few of them."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self._adapter = adapter
        self._read: OrderedDict[Tokens, LiveCache] = OrderedDict()

    def begin(self, prompts: Sequence[Tokens], heads: Sequence[Tokens], *, reserve: int) -> LiveCache:
        """A cache of a row per prompt that holds its head; nothing where the prompt begins otherwise, or ends there.

        reserve: states per row that will be written, the head included.
        """
        rows = [
            self._states(own if self._opens(prompt, own) else ()) for prompt, own in zip(prompts, heads, strict=True)
        ]
        longest = max(cache.lengths[0] for cache in rows)
        return LiveCache.copied([(cache, 0) for cache in rows], reserve=reserve - longest)

    @staticmethod
    def _opens(prompt: Tokens, own: Tokens) -> bool:
        # the state at a prompt's end is asked for, so a token is left to read
        return len(own) < len(prompt) and prompt[: len(own)] == own

    def _states(self, tokens: Tokens) -> LiveCache:
        if tokens not in self._read:
            self._read[tokens] = LiveCache(self._adapter.layers, 1)
            if tokens:
                # alone, so that no other head of a batch has a part in it
                prefill(self._adapter, self._read[tokens], [tokens])
        self._read.move_to_end(tokens)
        if len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return self._read[tokens]
