"""The loop over the agents: read, think, compress, hand on; the last agent speaks (method, section 1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from lm_eval_latentmas.agents import PromptSet
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.decoding import Decoder, Job, Thought
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.records import Record
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.rollout import LatentSpace, NonFiniteState, prefill, think
from lm_eval_latentmas.sampling import Draws, Generation, seed_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """One request: what is asked, where it comes from, and how the answer is to be decoded.

    system: replaces the prompt set's system line. prefix: the judger's answer begins with it.
    """

    task: str
    doc_id: int
    repeat: int
    text: str
    generation: Generation
    system: str | None = None
    prefix: str = ""

    def __str__(self) -> str:
        return f"task {self.task}, document {self.doc_id}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes this sample itself, the same in any order, subset or shard: never the document's number."""
        return (self.task, self.system, self.text, self.prefix, self.repeat)

    def seed(self, seed: int) -> int:
        """The seed of this question's draws."""
        return seed_of(seed, *self.identity)


@dataclass(frozen=True)
class Plan:
    """A question with every agent's prompt in tokens.

    key: what the caller knows the sample by. clamped: new tokens were cut to the context. opened: the judger's prompt
    ends inside a thought.
    """

    question: Question
    key: str
    prompts: tuple[tuple[int, ...], ...]
    generation: Generation
    clamped: bool
    opened: bool

    def __str__(self) -> str:
        return str(self.question)

    @property
    def thinker_tokens(self) -> int:
        """L: prompt tokens of the agents that think (method, section 4)."""
        return sum(map(len, self.prompts[:-1]))


@dataclass
class Handed:
    """What the thinking agents leave for the judger of one question."""

    plan: Plan
    relay: Relay | None
    cursor: int
    relay_bytes: tuple[int, ...] = ()
    relay_states: tuple[float, ...] = ()
    kept_states: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)


class Chain:
    """The agents over one model: `plan` questions, then `answer` them."""

    def __init__(
        self,
        adapter: ModelAdapter,
        compressor: Compressor,
        prompts: PromptSet,
        settings: ChainSettings,
        *,
        max_length: int,
        seed: int,
        think_end_token: str | int | None = None,
        probe: Callable[..., None] | None = None,
    ) -> None:
        self.adapter, self.compressor, self.prompts, self.settings = adapter, compressor, prompts, settings
        self.max_length, self.seed, self.probe = max_length, seed, probe
        self._space: LatentSpace | None = None
        self._strip_thought = think_end_token is not None
        opening, closing = adapter.thought
        self._thought = Thought(opening, think_end_token if think_end_token is not None else closing)

    # -- before anything runs -----------------------------------------------------------------------

    def plan(self, question: Question, key: str = "") -> Plan:
        """Render and count every prompt of a question.

        Raises ValueError with the numbers where the prompts and latent steps leave no room for an answer.
        """
        texts = [
            self.adapter.render(self.prompts.turns(agent, question.text, task=question.task, system=question.system))
            for agent in self.prompts.agents
        ]
        texts[-1] += question.prefix
        prompts = tuple(tuple(self.adapter.encode(text)) for text in texts)
        thinking = self.settings.latent_steps * (len(prompts) - 1)
        used = sum(map(len, prompts)) + thinking
        room = self.max_length - used
        if room < 1:
            counts = ", ".join(f"{a.name} {len(p)}" for a, p in zip(self.prompts.agents, prompts, strict=True))
            raise ValueError(
                f"{question}: prompts ({counts} tokens) and latent steps ({thinking}) need {used} positions, and "
                f"the model has {self.max_length}; nothing is cut. Shorten the question or lower latent_steps"
            )
        wanted = question.generation.max_gen_toks
        generation = replace(question.generation, max_gen_toks=min(wanted, room))
        opened = texts[-1].rstrip().endswith(self._thought.open)
        return Plan(question, key, prompts, generation, wanted > room, opened)

    # -- the agents that think ----------------------------------------------------------------------

    @torch.inference_mode()
    def think(self, plans: Sequence[Plan]) -> list[Handed]:
        """Run the thinking agents over a batch; one relay per question, each of exactly its own size."""
        if len(self.prompts.agents) == 1:
            return [Handed(plan, None, 0) for plan in plans]
        if self._space is None:
            self._space = LatentSpace.of(self.adapter, realign=self.settings.latent_realign)
        relay: Relay | None = None
        spent = {"latent": 0.0, "compression": 0.0}
        bytes_per_hop: list[list[int]] = []
        states_per_hop: list[list[float]] = []
        for index in range(len(self.prompts.thinkers)):
            relay = self._hand_off(plans, index, relay, spent)
            bytes_per_hop.append([relay.message_bytes(row) for row in range(relay.rows)])
            states_per_hop.append([relay.states(row) for row in range(relay.rows)])
        cursors = self._cursors(relay)
        return [
            Handed(
                plan,
                relay.row(row),
                cursors[row],
                tuple(sizes[row] for sizes in bytes_per_hop),
                tuple(states[row] for states in states_per_hop),
                relay.prompt_states(row),
                {phase: seconds / len(plans) for phase, seconds in spent.items()},
            )
            for row, plan in enumerate(plans)
        ]

    def _hand_off(self, plans: Sequence[Plan], index: int, relay: Relay | None, spent: dict[str, float]) -> Relay:
        """One agent reads, thinks and compresses; returns the relay for the next."""
        started = time.perf_counter()
        prompts = [plan.prompts[index] for plan in plans]
        room = max(map(len, prompts)) + self.settings.latent_steps
        if relay is None:
            cache = LiveCache(self.adapter.layers, len(plans))
            cache.reserve(room)
        else:
            cache = LiveCache.from_relay(relay, self._cursors(relay), reserve=room)
        hidden = prefill(self.adapter, cache, prompts)
        if self.compressor.mass == "latent":
            cache.track_mass()
        try:
            norms = think(self.adapter, cache, hidden, self.settings.latent_steps, self._space)
        except NonFiniteState as error:
            raise error.at(f"{plans[error.row].question}, agent {self.prompts.agents[index].name}") from None
        logger.debug("%s: state norms per step %s", self.prompts.agents[index].name, norms.mean(dim=1).tolist())
        self._wait()
        thought = time.perf_counter()
        relay = self.compressor(self._segment(cache, plans, prompts, relay))
        self._wait()
        spent["latent"] += thought - started
        spent["compression"] += time.perf_counter() - thought
        return relay

    def _segment(
        self, cache: LiveCache, plans: Sequence[Plan], prompts: Sequence[Sequence[int]], relay: Relay | None
    ) -> Segment:
        lengths = [len(prompt) for prompt in prompts]
        sink = self.settings.relay.sink_size
        return cache.segment(
            prompt=lengths,
            latent=self.settings.latent_steps,
            sink=[min(sink, n) for n in lengths] if relay is None else relay.sinks,
            origins=None if relay is None else relay.origins,
            seeds=tuple(plan.question.seed(self.seed) for plan in plans),
        )

    def _cursors(self, relay: Relay) -> Sequence[int]:
        """Where the next agent's positions begin: after every token ever read, or after the states still held."""
        return relay.lengths if self.settings.positions == "compact" else relay.cursors

    def _wait(self) -> None:
        """Let a GPU finish before a phase is timed; three waits an agent, none within a phase."""
        if self.adapter.device.type == "cuda":
            torch.cuda.synchronize(self.adapter.device)

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
                    handed[id(left.plan)] = left
                    ready.append(self._job(left))
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
        )

    def _said(self, job: Job, *, opened: bool) -> str:
        """The text as the harness gets it: without its thought, where the caller named the token that ends one."""
        if self._strip_thought and (end := job.answer_start(self.adapter.tokenizer)):
            return job.text[end:].lstrip()
        # A thought that the prompt opened is opened in the text too, so that whoever reads it can tell.
        return f"{self._thought.open}\n{job.text}" if opened else job.text

    def _record(self, left: Handed, job: Job) -> Record:
        question = left.plan.question
        return Record(
            task=question.task,
            doc_id=question.doc_id,
            repeat=question.repeat,
            text=self._said(job, opened=left.plan.opened),
            prompt_tokens=left.plan.thinker_tokens,
            judger_tokens=len(left.plan.prompts[-1]),
            latent_passes=self.settings.latent_steps * (len(left.plan.prompts) - 1),
            decoded_tokens=len(job.tokens),
            kept_states=left.kept_states,
            relay_bytes=left.relay_bytes,
            relay_states=left.relay_states,
            seconds={**left.seconds, "decoding": job.seconds},
            stop=job.stop,
            clamped=left.plan.clamped,
        )
