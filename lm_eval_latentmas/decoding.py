"""The last agent's answers: continuous decoding, where a finished row's place goes to the next waiting relay.

A row's text never depends on its neighbours: positions, masks, draws and stops are its own.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay, on_device
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import NonFiniteState, prefill, step
from lm_eval_latentmas.sampling import Draws, Generation, next_tokens

_GROWTH = 64  # slots for an answer to begin with; a row that outgrows its buffer enlarges it

_STRIDE = 8  # on a GPU: waiting for every token would leave it idle, and a row that ends decodes this far at most


@dataclass(frozen=True)
class Thought:
    """When a thought is over: ``close`` as text or token id; ``open`` already stood at the end of the prompt."""

    open: str = "<think>"
    close: str | int = "</think>"
    expected: bool = False


@dataclass
class Job:
    """One answer to decode: what an agent reads, how it writes, and what comes out.

    key: what the caller knows it by, and an error calls it by. agent: who writes, named in an error too.
    """

    key: Any
    relay: Relay | None
    prompt: list[int]
    cursor: int
    generation: Generation
    draws: Draws
    thought: Thought = field(default_factory=Thought)
    agent: str = "judger"
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stop: str = ""
    seconds: float = 0.0

    def answer_start(self, tokenizer: Any, text: str | None = None) -> int | None:
        """Where the answer begins in ``text``: 0 without a thought, None while a thought is open."""
        text = self.text if text is None else text
        close = self.thought.close
        close = tokenizer.decode([close]) if isinstance(close, int) else close
        end = text.rfind(close)
        if end >= 0:
            return end + len(close)
        return None if self.thought.expected or text.lstrip().startswith(self.thought.open) else 0

    def may_open(self, text: str) -> bool:
        """Whether ``text`` is too short yet to tell that no thought begins it."""
        return self.thought.open.startswith(text.lstrip())


class Decoder:
    """Decodes jobs in at most ``rows`` rows at a time; fed by `admit`, driven by `run`.

    stride: tokens decoded between looks at them; None for every one on a CPU, where a look costs nothing.
    """

    def __init__(self, adapter: ModelAdapter, rows: int, *, stride: int | None = None) -> None:
        self.adapter, self.rows = adapter, rows
        self._stride = stride or (_STRIDE if adapter.device.type == "cuda" else 1)
        self._cache: LiveCache | None = None
        self._jobs: list[Job] = []  # one a row of the cache
        self._eos = adapter.eos_ids
        special = list(adapter.tokenizer.all_special_ids)
        self._special = dict(zip(adapter.tokenizer.convert_ids_to_tokens(special), special, strict=True))

    @property
    def free(self) -> int:
        """Rows that a waiting job could take."""
        return self.rows - self.busy

    @property
    def busy(self) -> int:
        """Rows that are decoding."""
        return len(self._jobs)

    @torch.inference_mode()
    def admit(self, jobs: list[Job]) -> list[Job]:
        """Prefill the jobs' prompts on their relays and give them rows; returns those whose first token ends them."""
        started = time.perf_counter()
        if self._cache is None:
            self._cache = LiveCache(self.adapter.layers, 0)
        reserve = max(len(job.prompt) for job in jobs) + _GROWTH
        cache = self._cache.opened([job.relay for job in jobs], [job.cursor for job in jobs], reserve=reserve)
        for job in jobs:
            job.relay = None  # the rows hold a copy from here on
        hidden = prefill(self.adapter, cache, [job.prompt for job in jobs])
        self._cache.take_in(cache)
        self._jobs += jobs
        self._extend(jobs, [self._next(jobs, hidden)])
        self._charge(jobs, started)
        return self._finished()

    def run(self, until: Callable[[], bool] = lambda: False) -> list[Job]:
        """Decode until at least one row finishes, or ``until`` says so; returns every job that finished."""
        done: list[Job] = []
        while self.busy and not done and not until():
            done = self._step()
        return done

    @torch.inference_mode()
    def _step(self) -> list[Job]:
        """Decode until the next look at the tokens; what a row decodes beyond its own end is dropped with the row."""
        started = time.perf_counter()
        left = min(job.generation.max_gen_toks - len(job.tokens) for job in self._jobs)
        tokens = on_device([job.tokens[-1] for job in self._jobs], self.adapter.device)
        read = []
        for _ in range(min(self._stride, left)):
            hidden = step(self.adapter, self._cache, self.adapter.embed(tokens))
            read.append(self._next(self._jobs, hidden))
            tokens = read[-1][0]
        self._extend(self._jobs, read)
        self._charge(self._jobs, started)
        return self._finished()

    def _next(self, jobs: list[Job], hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The next token of every row, and whether its logits were numbers; both stay on the device."""
        logits = self.adapter.logits(hidden)
        # the largest logit is NaN where any is, and infinite where all or the wrong ones are
        finite = logits.amax(dim=-1).isfinite()
        return next_tokens(logits, [job.generation for job in jobs], [job.draws for job in jobs]), finite

    def _extend(self, jobs: list[Job], read: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Give the rows their new tokens, one look at the device for all of them."""
        tokens, finite = (torch.stack(parts).tolist() for parts in zip(*read, strict=True))
        for row, job in enumerate(jobs):
            for taken, fine in zip(tokens, finite, strict=True):
                if not fine[row]:
                    raise NonFiniteState(row=row, step=len(job.tokens)).at(f"{job.key}, agent {job.agent}")
                job.tokens.append(taken[row])
                if self._is_done(job):
                    break

    @staticmethod
    def _charge(jobs: list[Job], started: float) -> None:
        share = (time.perf_counter() - started) / len(jobs)
        for job in jobs:
            job.seconds += share

    def _finished(self) -> list[Job]:
        """Take out the jobs that are done; rows stay dense, so that no pass works for nobody."""
        done = []
        for place in reversed(range(self.busy)):
            if self._jobs[place].stop:
                done.append(self._jobs[place])
                self._jobs[place] = self._jobs[-1]
                self._jobs.pop()
                self._cache.drop_row(place)
        if not self.busy:
            self._cache = None
        return done[::-1]

    def _is_done(self, job: Job) -> bool:
        if job.tokens[-1] in self._eos:
            job.stop, job.text = "eos", self._text(job, job.tokens[:-1])
        elif self._meets_until(job):
            job.stop = "until"
        elif len(job.tokens) >= job.generation.max_gen_toks:
            job.stop, job.text = "length", self._text(job, job.tokens)
        return bool(job.stop)

    def _text(self, job: Job, tokens: list[int]) -> str:
        """The text without special tokens, but with those of the marks of a thought: nothing else shows where it is."""
        tokenizer = self.adapter.tokenizer
        marks = (job.thought.open, job.thought.close)
        texts = [mark for mark in marks if isinstance(mark, str)]
        parts = {token for name, token in self._special.items() if any(name in text for text in texts)}
        shown = parts.union(mark for mark in marks if mark in self._special.values())
        if not shown.intersection(tokens):
            return tokenizer.decode(tokens, skip_special_tokens=True)
        runs = groupby(tokens, key=shown.__contains__)
        return "".join(tokenizer.decode(list(run), skip_special_tokens=not mark) for mark, run in runs)

    def _meets_until(self, job: Job) -> bool:
        """Whether a stop string has appeared after the thought; cuts the text there.

        Where a thought ends is seen in the text as it is returned: among special tokens, which that leaves out, the
        marks of a thought may read otherwise. A stop string may itself be a special token.
        """
        until = job.generation.until
        if not until:
            return False
        tokenizer = self.adapter.tokenizer
        # A string of n bytes spans at most n tokens, so the end of the text is enough to notice one.
        longest = max(len(text.encode()) for text in until) + len(job.thought.open.encode())
        tail = tokenizer.decode(job.tokens[-(longest + 4) :], skip_special_tokens=False)
        if not any(text in tail for text in until):
            return False
        text = self._text(job, job.tokens)
        start = job.answer_start(tokenizer, text)
        if start is None or job.may_open(text):
            return False
        if (place := _first(until, text, start)) is not None:
            job.text = text[:place]
            return True
        behind = bisect_left(range(len(job.tokens)), start, key=lambda count: len(self._text(job, job.tokens[:count])))
        answer = tokenizer.decode(job.tokens[behind:], skip_special_tokens=False)
        if (place := _first(until, answer)) is None:
            return False
        answer = answer[:place]
        for token in tokenizer.all_special_tokens:
            answer = answer.replace(token, "")
        job.text = text[:start] + answer
        return True


def _first(stops: Sequence[str], text: str, start: int = 0) -> int | None:
    """Where the first of some stop strings begins, from ``start`` on."""
    return min((place for stop in stops if (place := text.find(stop, start)) >= 0), default=None)
