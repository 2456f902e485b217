"""The loop over the agents: read, think, compress, hand on; the last agent speaks (method, section 1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lm_eval_latentmas.agents import PromptSet
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.compiled import compiled
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.decoding import Decoder, Job, Thought
from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.model_adapters.rebase import Rotation
from lm_eval_latentmas.planning import Plan, Planner, Question
from lm_eval_latentmas.prefix import Prefixes
from lm_eval_latentmas.records import Record
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.rollout import LatentSpace, NonFiniteState, prefill, think
from lm_eval_latentmas.sampling import Draws
from lm_eval_latentmas.topology import side_by_side

logger = logging.getLogger(__name__)


@dataclass
class Handed:
    """What the thinking agents leave for the judger of one question: a relay, or messages that its prompt shows."""

    plan: Plan
    relay: Relay | None
    cursor: int
    relay_bytes: tuple[int, ...] = ()
    relay_states: tuple[float, ...] = ()
    kept_states: float = 0.0
    latent_passes: int = 0
    messages: tuple[str, ...] = ()
    message_tokens: tuple[int, ...] = ()
    messages_truncated: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Chain:
    """The agents over one model: `plan` questions, then `answer` them."""

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
    ) -> None:
        self.adapter = compiled(adapter) if settings.compile else adapter
        self.compressor, self.prompts, self.settings = compressor, prompts, settings
        self.max_length, self.seed, self.fingerprint, self.diagnostics = max_length, seed, fingerprint, diagnostics
        self._space: LatentSpace | None = None
        self._prefixes = Prefixes(self.adapter)
        self._rotation = Rotation.of(adapter) if settings.mode == "latent" and prompts.side_by_side else None
        self._strip_thought = think_end_token is not None
        opening, closing = adapter.thought
        self._thought = Thought(opening, think_end_token if think_end_token is not None else closing)
        self.planner = self.planner_class(adapter, prompts, settings, max_length=max_length, seed=seed)

    # -- before anything runs -----------------------------------------------------------------------

    def thought_about(self, questions: Sequence[Question]) -> list[Question]:
        """See `Planner.thought_about`."""
        return self.planner.thought_about(questions)

    def plan(self, question: Question, key: str = "", *, thinking_about: Question | None = None) -> Plan:
        """See `Planner.plan`."""
        return self.planner.plan(question, key, thinking_about=thinking_about)

    # -- the agents that think ----------------------------------------------------------------------

    @torch.inference_mode()
    def think(self, plans: Sequence[Plan]) -> list[Handed]:
        """Run the thinking agents over a batch; one relay per question, each of exactly its own size."""
        agents = len(plans[0].prompts) - 1
        if agents == 0:
            return [Handed(plan, None, 0) for plan in plans]
        if self._space is None:
            self._space = LatentSpace.of(self.adapter, realign=self.settings.latent_realign)
        relay: Relay | None = None
        spent = {"latent": 0.0, "compression": 0.0} | ({"transport": 0.0} if self._by_wire else {})
        bytes_per_hop: list[list[int]] = []
        states_per_hop: list[list[float]] = []
        together = [range(agents)] if self.prompts.side_by_side else [[index] for index in range(agents)]
        for indices in together:
            rows = [(plan, index) for index in indices for plan in plans]
            relay, sizes = self._hand_off(rows, relay, spent)
            for start in range(0, relay.rows, len(plans)):
                bytes_per_hop.append(sizes[start : start + len(plans)])
                states_per_hop.append([relay.states(row) for row in range(start, start + len(plans))])
        if self.diagnostics is not None:
            self.diagnostics.write([plan.key for plan in plans])
        left = [self._gathered(relay, range(row, relay.rows, len(plans))) for row in range(len(plans))]
        return [
            Handed(
                plan,
                held,
                self._cursors(held)[0],
                tuple(sizes[row] for sizes in bytes_per_hop),
                tuple(states[row] for states in states_per_hop),
                held.prompt_states(0),
                latent_passes=self.settings.latent_steps * agents,
                seconds={phase: seconds / len(plans) for phase, seconds in spent.items()},
            )
            for row, (plan, held) in enumerate(zip(plans, left, strict=True))
        ]

    def _gathered(self, relay: Relay, rows: Sequence[int]) -> Relay:
        """One question's relay: of several rows where agents worked side by side."""
        relays = [relay.row(row) for row in rows]
        if len(relays) == 1:
            return relays[0]
        return side_by_side(relays, self._rotation, compact=self.settings.positions == "compact")

    def _hand_off(
        self, turns: Sequence[tuple[Plan, int]], relay: Relay | None, spent: dict[str, float]
    ) -> tuple[Relay, list[int]]:
        """Agents read, think and compress, one a row; returns the relay for the next, and its bytes per row.

        turns: per row a plan and which of its agents has its turn.
        """
        started = time.perf_counter()
        prompts = [plan.prompts[index] for plan, index in turns]
        oracle = self.compressor.mass == "next"
        following = [self._following(*turn) for turn in turns] if oracle or self.diagnostics else None
        room = max(map(len, prompts)) + self.settings.latent_steps + max(map(len, following or [()]))
        if relay is None:
            heads = [plan.heads[index] for plan, index in turns]
            starts, cache = [0] * len(turns), self._prefixes.begin(prompts, heads, reserve=room)
            unread = [prompt[read:] for prompt, read in zip(prompts, cache.lengths, strict=True)]
        else:
            starts, cache = list(self._cursors(relay)), LiveCache.from_relay(relay, self._cursors(relay), reserve=room)
            unread = prompts
        hidden = prefill(self.adapter, cache, unread)
        if self.compressor.mass == "latent":
            cache.track_mass()
        try:
            norms = think(self.adapter, cache, hidden, self.settings.latent_steps, self._space)
        except NonFiniteState as error:
            plan, index = turns[error.row]
            raise error.at(f"{plan}, agent {self.prompts.agents[index].name}") from None
        logger.debug("agents %s: state norms per step %s", {index for _, index in turns}, norms.mean(dim=1).tolist())
        if following is not None:
            with cache.looking_ahead(mass=oracle):  # what the next agent's prompt would attend to
                prefill(self.adapter, cache, following)
        thought = self._now()
        segment = self._segment(cache, turns, prompts, relay)
        if self.diagnostics is None:
            relay = self.compressor(segment)
        else:
            relay = self.diagnostics.compress(
                segment,
                cache,
                list(map(len, following)),
                [self._told(*turn, start) for turn, start in zip(turns, starts, strict=True)],
            )
        compressed = self._now()
        spent["latent"] += thought - started
        spent["compression"] += compressed - thought
        if not self._by_wire:
            return relay, [relay.message_bytes(row) for row in range(relay.rows)]
        relay, sizes = self._sent(relay)
        spent["transport"] += self._now() - compressed
        return relay, sizes

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

    def _sent(self, relay: Relay) -> tuple[Relay, list[int]]:
        """A relay after its way through messages, one per question, and the messages' lengths."""
        devices = [positions.device for positions in relay.positions]
        messages = [wire.encode(relay.row(row), fingerprint=self.fingerprint) for row in range(relay.rows)]
        received = [wire.decode(message, fingerprint=self.fingerprint, device=devices) for message in messages]
        return Relay.join(received), [len(message) for message in messages]

    @property
    def _by_wire(self) -> bool:
        return self.settings.transport == "wire"

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
        if self.adapter.device.type == "cuda":
            torch.cuda.synchronize(self.adapter.device)
        return time.perf_counter()

    # -- the agent that speaks ----------------------------------------------------------------------

    def answer(
        self, plans: Sequence[Plan], batch_size: int, *, progress: Callable[[str], None] | None = None
    ) -> Iterator[tuple[Plan, Record]]:
        """Answer planned questions, ``batch_size`` at a time; yields each record as soon as its text is finished."""
        say = progress or (lambda phase: None)
        waiting = list(plans)
        handed: dict[int, Handed] = {}
        ready: list[Job] = []
        decoder = Decoder(self.adapter, batch_size)
        while waiting or ready or decoder.busy:
            if waiting and not ready and decoder.free:
                say("thinking")
                batch, waiting = waiting[:batch_size], waiting[batch_size:]
                for left in self.think(batch):
                    ready.append(self._job(left))
                    handed[id(left.plan)] = replace(left, relay=None)  # the job alone holds it, and lets go of it
            done = []
            if ready and decoder.free:
                say("answering")
                admitted, ready = ready[: decoder.free], ready[decoder.free :]
                done = decoder.admit(admitted)
            done = done or decoder.run()
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
        """The text as the harness gets it: without its thought, where the caller named the token that ends one."""
        if self._strip_thought and (end := job.answer_start(self.adapter.tokenizer)):
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
            seconds=left.seconds,
        )
