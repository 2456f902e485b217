"""The loop over the agents: read, think, compress, hand on; the last agent speaks (method, section 1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from lm_eval_latentmas.agents import PromptSet
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.compiled import compiled
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.decoding import Decoder, Job, Thought
from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.links import Link, Memory, Wire
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.model_adapters.rebase import Rotation
from lm_eval_latentmas.planning import Plan, Planner, Question
from lm_eval_latentmas.records import Record
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.rollout import NonFiniteState, prefill, think
from lm_eval_latentmas.sampling import Draws
from lm_eval_latentmas.seats import Seat
from lm_eval_latentmas.topology import side_by_side
from lm_eval_latentmas.underway import Handed, Underway

logger = logging.getLogger(__name__)


class Chain:
    """The agents over one model: `plan` questions, then `answer` them.

    elsewhere: by name, the adapters of agents that sit on another copy of the model.
    links: the way of every hop to the next agent.
    """

    planner_class: type[Planner] = Planner

    def __init__(
        self,
        adapter: ModelAdapter,
        compressor: Compressor,
        prompts: PromptSet,
        settings: ChainSettings,
        *,
        max_length: int,
        seed: int,
        fingerprint: str = "",
        think_end_token: str | int | None = None,
        diagnostics: HopDiagnostics | None = None,
        elsewhere: Mapping[str, ModelAdapter] | None = None,
    ) -> None:
        self.compressor, self.prompts, self.settings = compressor, prompts, settings
        self.max_length, self.seed, self.fingerprint, self.diagnostics = max_length, seed, fingerprint, diagnostics
        self.seats = self._seated([(elsewhere or {}).get(agent.name, adapter) for agent in prompts.agents])
        self.adapter = self.seats[-1].adapter
        self.links = [self._link(*seats) for seats in pairwise(self.seats)]
        self._rotation = Rotation.of(adapter) if settings.mode == "latent" and prompts.side_by_side else None
        self._strip_thought = think_end_token is not None or adapter.answers_apart
        opening, closing = adapter.thought
        given = think_end_token is not None and not adapter.answers_apart
        self._thought = Thought(opening, think_end_token if given else closing)
        self.planner = self.planner_class(adapter, prompts, settings, max_length=max_length, seed=seed)

    # -- before anything runs -----------------------------------------------------------------------

    def thought_about(self, questions: Sequence[Question]) -> list[Question]:
        """See `Planner.thought_about`."""
        return self.planner.thought_about(questions)

    def plan(self, question: Question, key: str = "", *, thinking_about: Question | None = None) -> Plan:
        """See `Planner.plan`."""
        return self.planner.plan(question, key, thinking_about=thinking_about)

    # -- the agents that think ----------------------------------------------------------------------

    def thoughts(self, plans: Sequence[Plan], batch_size: int) -> Iterator[list[Handed]]:
        """`think` batch after batch, each when it is asked for."""
        for start in range(0, len(plans), batch_size):
            yield self.think(plans[start : start + batch_size])

    def working(self) -> AbstractContextManager[None]:
        """To be held around all of an evaluation's `answer` or `thoughts`."""
        return nullcontext()

    @property
    def has_thought(self) -> bool:
        """Whether the next of `thoughts` can be had without waiting for others."""
        return True

    def think(self, plans: Sequence[Plan]) -> list[Handed]:
        """Run the thinking agents over a batch; one relay per question, each of exactly its own size."""
        agents = len(plans[0].prompts) - 1
        if agents == 0:
            return [Handed(plan, None, 0) for plan in plans]
        batch = self.underway(plans)
        self.advance(batch, agents)
        return self.handed(batch)

    def underway(self, plans: Sequence[Plan]) -> Underway:
        """A batch that no agent has seen yet."""
        phases = ("latent", "compression", *(["transport"] if any(link.moves for link in self.links) else []))
        return Underway(plans, seconds=dict.fromkeys(phases, 0.0))

    @torch.inference_mode()
    def advance(self, batch: Underway, until: int) -> None:
        """Give their turn to the agents before the one at ``until``."""
        while batch.agent < until:
            together = range(until) if self.prompts.side_by_side else [batch.agent]
            relay = self._compressed([(plan, index) for index in together for plan in batch.plans], batch)
            states = [relay.states(row) for row in range(relay.rows)]
            started = self._now()
            carried = self.links[together[-1]].carry(relay)
            batch.arrived(carried, states, len(together), self._now() - started)

    def handed(self, batch: Underway) -> list[Handed]:
        """What a batch whose thinking agents have all had their turn leaves for the judger."""
        plans, rows = batch.plans, len(batch.plans)
        if self.diagnostics is not None:
            self.diagnostics.write([plan.key for plan in plans])
        left = [self._gathered(batch.relay, range(row, batch.relay.rows, rows)) for row in range(rows)]
        hop_seconds = batch.hop_seconds if "transport" in batch.seconds else []
        return [
            Handed(
                plan,
                held,
                self._cursors(held)[0],
                tuple(sizes[row] for sizes in batch.bytes),
                tuple(states[row] for states in batch.states),
                tuple(seconds / rows for seconds in hop_seconds),
                held.prompt_states(0),
                latent_passes=self.settings.latent_steps * batch.agent,
                seconds={phase: seconds / rows for phase, seconds in batch.seconds.items()},
            )
            for row, (plan, held) in enumerate(zip(plans, left, strict=True))
        ]

    def _seated(self, adapters: Sequence[ModelAdapter]) -> list[Seat]:
        """A seat per agent, the same one for agents of one adapter."""
        realign = self.settings.latent_realign
        different = {id(adapter): adapter for adapter in adapters}
        seats = {key: Seat(self._runner(adapter), realign=realign) for key, adapter in different.items()}
        return [seats[id(adapter)] for adapter in adapters]

    def _runner(self, adapter: ModelAdapter) -> ModelAdapter:
        """The adapter as the agents run it."""
        return compiled(adapter) if self.settings.compile else adapter

    def _link(self, here: Seat, there: Seat) -> Link:
        devices = None if here is there else there.adapter.layer_devices
        return Wire(self.fingerprint, devices) if self.settings.transport == "wire" else Memory(devices)

    def _gathered(self, relay: Relay, rows: Sequence[int]) -> Relay:
        """One question's relay: of several rows where agents worked side by side."""
        relays = [relay.row(row) for row in rows]
        if len(relays) == 1:
            return relays[0]
        return side_by_side(relays, self._rotation, compact=self.settings.positions == "compact")

    def _compressed(self, turns: Sequence[tuple[Plan, int]], batch: Underway) -> Relay:
        """Agents read, think and compress, one a row; returns the relay for the next.

        turns: per row a plan and which of its agents has its turn; all of them sit in one seat.
        """
        started = time.perf_counter()
        seat, relay = self.seats[turns[0][1]], batch.relay
        prompts = [plan.prompts[index] for plan, index in turns]
        oracle = self.compressor.mass == "next"
        following = [self._following(*turn) for turn in turns] if oracle or self.diagnostics else None
        room = max(map(len, prompts)) + self.settings.latent_steps + max(map(len, following or [()]))
        if relay is None:
            heads = [plan.heads[index] for plan, index in turns]
            starts, cache = [0] * len(turns), seat.prefixes.begin(prompts, heads, reserve=room)
            unread = [prompt[read:] for prompt, read in zip(prompts, cache.lengths, strict=True)]
        else:
            starts, cache = list(self._cursors(relay)), LiveCache.from_relay(relay, self._cursors(relay), reserve=room)
            unread = prompts
        hidden = prefill(seat.adapter, cache, unread)
        if self.compressor.mass == "latent":
            cache.track_mass()
        try:
            norms = think(seat.adapter, cache, hidden, self.settings.latent_steps, seat.space)
        except NonFiniteState as error:
            plan, index = turns[error.row]
            raise error.at(f"{plan}, agent {self.prompts.agents[index].name}") from None
        logger.debug("agents %s: state norms per step %s", {index for _, index in turns}, norms.mean(dim=1).tolist())
        ended = self._now()
        if following is not None:
            with cache.looking_ahead(mass=oracle):  # what the next agent's prompt would attend to
                prefill(seat.adapter, cache, following)
            if oracle:
                ended = self._now()
        batch.spend("latent", ended - started)
        began = self._now()
        segment = self._segment(cache, turns, prompts, relay)
        relay = self.compressor(segment)
        batch.spend("compression", self._now() - began)
        if self.diagnostics is not None:
            about = [self._told(*turn, start) for turn, start in zip(turns, starts, strict=True)]
            self.diagnostics.note(segment, relay, cache, list(map(len, following)), about)
        return relay

    def _told(self, plan: Plan, index: int, start: int) -> dict[str, Any]:
        """What the diagnostics of one row are about."""
        question = plan.thinking_about
        return {
            "key": plan.key,
            "task": plan.question.task,
            "doc_id": question.doc_id,
            "repeat": plan.question.repeat,
            "agent": self.prompts.agents[index].name,
            "hop": index,
            "prompt": plan.prompts[index],
            "start": start,
        }

    def _following(self, plan: Plan, index: int) -> tuple[int, ...]:
        """The prompt of the agent that reads what the agent at ``index`` hands on."""
        return plan.prompts[-1 if self.prompts.side_by_side else index + 1]

    def _segment(
        self, cache: LiveCache, turns: Sequence[tuple[Plan, int]], prompts: Sequence[Sequence[int]], relay: Relay | None
    ) -> Segment:
        lengths = [len(prompt) for prompt in prompts]
        sink = self.settings.hand_off.sink_size
        return cache.segment(
            prompt=lengths,
            latent=self.settings.latent_steps,
            sink=[min(sink, n) for n in lengths] if relay is None else relay.sinks,
            origins=None if relay is None else relay.origins,
            seeds=tuple(plan.question.seed(self.seed) for plan, _ in turns),
        )

    def _cursors(self, relay: Relay) -> Sequence[int]:
        """Where the next agent's positions begin: after every token ever read, or after the states still held."""
        return relay.lengths if self.settings.positions == "compact" else relay.cursors

    def _now(self) -> float:
        """The time when everything before has run: a GPU is waited for between phases, never within one."""
        for device in {seat.adapter.device for seat in self.seats}:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return time.perf_counter()

    # -- the agent that speaks ----------------------------------------------------------------------

    def answer(
        self, plans: Sequence[Plan], batch_size: int, *, progress: Callable[[str], None] | None = None
    ) -> Iterator[tuple[Plan, Record]]:
        """Answer planned questions, ``batch_size`` at a time; yields each record as soon as its text is finished."""
        say = progress or (lambda phase: None)
        thoughts, unthought = self.thoughts(plans, batch_size), len(plans)
        handed: dict[int, Handed] = {}
        ready: list[Job] = []
        decoder = Decoder(self.adapter, batch_size)

        def wanting() -> bool:
            """Whether another batch is to be had and would find room; looked at while rows decode."""
            return bool(unthought and not ready and decoder.free and (self.has_thought or not decoder.busy))

        while unthought or ready or decoder.busy:
            if wanting():
                say("thinking")
                for left in next(thoughts):
                    unthought -= 1
                    ready.append(self._job(left))
                    handed[id(left.plan)] = replace(left, relay=None)  # the job alone holds it, and lets go of it
                del left
            done = []
            if ready and decoder.free:
                say("answering")
                admitted, ready = ready[: decoder.free], ready[decoder.free :]
                done = decoder.admit(admitted)
            done = done or decoder.run(wanting)
            for job in done:
                yield job.key, self._record(handed.pop(id(job.key)), job)

    def _job(self, left: Handed) -> Job:
        plan = left.plan
        return Job(
            key=plan,
            relay=left.relay,
            prompt=list(plan.prompts[-1]),
            cursor=left.cursor,
            generation=plan.generation,
            draws=Draws(plan.question.seed(self.seed)),
            thought=replace(self._thought, expected=plan.opened),
            agent=self.prompts.judger.name,
        )

    def _said(self, job: Job, *, opened: bool) -> str:
        """The text as the harness gets it: without its thought, where the caller named the token that ends one.

        Where an answer is a message of its own, nothing else is text, and without such a message there is none.
        """
        end = job.answer_start(self.adapter.tokenizer) if self._strip_thought else 0
        if end is None and self.adapter.answers_apart:
            return ""
        if end:
            return job.text[end:].lstrip()
        # A thought that the prompt opened is opened in the text too, so that whoever reads it can tell.
        return f"{self._thought.open}\n{job.text}" if opened else job.text

    def _record(self, left: Handed, job: Job) -> Record:
        return replace(
            self.handed_record(left),
            text=self._said(job, opened=left.plan.opened),
            decoded_tokens=len(job.tokens),
            seconds={**left.seconds, "decoding": job.seconds},
            stop=job.stop,
            clamped=left.plan.clamped,
        )

    @staticmethod
    def handed_record(left: Handed) -> Record:
        """What is known of a sample before the judger speaks."""
        plan = left.plan
        return Record(
            task=plan.question.task,
            doc_id=plan.question.doc_id,
            repeat=plan.question.repeat,
            text="",
            prompt_tokens=plan.thinker_tokens,
            judger_tokens=len(plan.prompts[-1]),
            latent_passes=left.latent_passes,
            message_tokens=left.message_tokens,
            messages_truncated=left.messages_truncated,
            messages=left.messages,
            kept_states=left.kept_states,
            relay_bytes=left.relay_bytes,
            relay_states=left.relay_states,
            relay_seconds=left.relay_seconds,
            seconds=left.seconds,
        )
