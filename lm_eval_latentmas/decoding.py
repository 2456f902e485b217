"""The last agent's answers: continuous decoding, where a finished row's place goes to the next waiting relay.

A row's text never depends on its neighbours: positions, masks, draws and stops are its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import NonFiniteState, prefill, step
from lm_eval_latentmas.sampling import Draws, Generation, next_tokens

_GROWTH = 64  # slots added at a time when a decoding row outgrows its buffer


@dataclass(frozen=True)
class Thought:
    """When a thought is over: ``close`` as text or token id; ``open`` already stood at the end of the prompt."""

    open: str = "<think>"
    close: str | int = "</think>"
    expected: bool = False


@dataclass
class Job:
    """One answer to decode: what the judger reads, how it writes, and what comes out."""

    key: Any
    relay: Relay | None
    prompt: list[int]
    cursor: int
    generation: Generation
    draws: Draws
    thought: Thought = field(default_factory=Thought)
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


class Decoder:
    """Decodes jobs in at most ``rows`` rows at a time; fed by `admit`, driven by `run`."""

    def __init__(self, adapter: ModelAdapter, rows: int) -> None:
        self.adapter, self.rows = adapter, rows
        self._cache: LiveCache | None = None
        self._jobs: list[Job | None] = []
        self._eos = adapter.eos_ids

    @property
    def free(self) -> int:
        """Rows that a waiting job could take."""
        return self.rows - self.busy

    @property
    def busy(self) -> int:
        """Rows that are decoding."""
        return sum(job is not None for job in self._jobs)

    @torch.inference_mode()
    def admit(self, jobs: list[Job]) -> list[Job]:
        """Prefill the jobs' prompts on their relays and give them rows; returns those whose first token ends them."""
        started = time.perf_counter()
        cache = self._loaded(jobs)
        hidden = prefill(self.adapter, cache, [job.prompt for job in jobs])
        places = self._places(len(jobs))
        if self._cache is None:
            self._cache, self._jobs = cache, [None] * len(jobs)
        else:
            self._cache.replace_rows(places, cache)
            self._jobs += [None] * (self._cache.rows - len(self._jobs))
        for place, job in zip(places, jobs, strict=True):
            self._jobs[place] = job
        self._extend(places, hidden)
        self._charge(jobs, started)
        return self._finished()

    def run(self) -> list[Job]:
        """Decode until at least one row finishes; returns every job that did."""
        done: list[Job] = []
        while self.busy and not done:
            done = self._step()
        return done

    @torch.inference_mode()
    def _step(self) -> list[Job]:
        started = time.perf_counter()
        self._drop_idle_rows()
        busy = [job for job in self._jobs if job is not None]
        last = torch.tensor([job.tokens[-1] if job else 0 for job in self._jobs], device=self.adapter.device)
        hidden = step(self.adapter, self._cache, self.adapter.embed(last))
        places = [place for place, job in enumerate(self._jobs) if job is not None]
        self._extend(places, hidden[torch.tensor(places, device=hidden.device)])
        self._charge(busy, started)
        return self._finished()

    def _loaded(self, jobs: list[Job]) -> LiveCache:
        reserve = max(len(job.prompt) for job in jobs) + _GROWTH
        if jobs[0].relay is None:
            cache = LiveCache(self.adapter.layers, len(jobs))
            cache.reserve(reserve)
            return cache
        relay = Relay.join([job.relay for job in jobs])
        for job in jobs:
            job.relay = None  # the rows hold a copy from here on
        return LiveCache.from_relay(relay, [job.cursor for job in jobs], reserve=reserve)

    def _places(self, count: int) -> list[int]:
        idle = [place for place, job in enumerate(self._jobs) if job is None]
        return [*idle, *range(len(self._jobs), self.rows)][:count]

    def _drop_idle_rows(self) -> None:
        """Rows that nobody waits for cost as much as busy ones, so they go once they are half of the batch."""
        busy = [place for place, job in enumerate(self._jobs) if job is not None]
        if len(busy) * 2 <= len(self._jobs):
            self._cache.keep_rows(busy)
            self._jobs = [self._jobs[place] for place in busy]

    def _extend(self, places: list[int], hidden: torch.Tensor) -> None:
        jobs = [self._jobs[place] for place in places]
        logits = self.adapter.logits(hidden)
        finite = logits.isfinite().any(dim=-1) & ~logits.isnan().any(dim=-1)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0])
            raise NonFiniteState(row=row, step=len(jobs[row].tokens)).at(jobs[row].key)
        tokens = next_tokens(logits, [job.generation for job in jobs], [job.draws for job in jobs])
        for job, token in zip(jobs, tokens, strict=True):
            job.tokens.append(token)

    @staticmethod
    def _charge(jobs: list[Job], started: float) -> None:
        share = (time.perf_counter() - started) / len(jobs)
        for job in jobs:
            job.seconds += share

    def _finished(self) -> list[Job]:
        done = [(place, job) for place, job in enumerate(self._jobs) if job is not None and self._is_done(job)]
        for place, _ in done:
            self._jobs[place] = None
        if not self.busy:
            self._cache, self._jobs = None, []
        return [job for _, job in done]

    def _is_done(self, job: Job) -> bool:
        if job.tokens[-1] in self._eos:
            job.stop, job.text = "eos", self._text(job.tokens[:-1])
        elif self._meets_until(job):
            job.stop = "until"
        elif len(job.tokens) >= job.generation.max_gen_toks:
            job.stop, job.text = "length", self._text(job.tokens)
        return bool(job.stop)

    def _text(self, tokens: list[int]) -> str:
        return self.adapter.tokenizer.decode(tokens, skip_special_tokens=True)

    def _meets_until(self, job: Job) -> bool:
        """Whether a stop string has appeared after the thought; cuts the text there."""
        until = job.generation.until
        if not until:
            return False
        # A string of n bytes spans at most n tokens, so the end of the text is enough to notice one.
        tail = job.tokens[-(max(len(text.encode()) for text in until) + 4) :]
        tail_text = self.adapter.tokenizer.decode(tail, skip_special_tokens=False)
        if not any(text in tail_text for text in until):
            return False
        for skip_special in (True, False):  # a stop string may itself be a special token, which decoding leaves out
            text = self.adapter.tokenizer.decode(job.tokens, skip_special_tokens=skip_special)
            start = job.answer_start(self.adapter.tokenizer, text)
            found = [place for stop in until if (place := text.find(stop, start)) >= 0] if start is not None else []
            if found:
                job.text = text[: min(found)]
                return True
        return False
