"""The agents that hand on text (``mode=text``): each decodes a message, and the prompts of later ones show it.

A baseline for the latent chain: same agents, same questions, same statistics, no relay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lm_eval_latentmas.agents import Agent, joined_messages
from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.continuations import Tokens, opens_thought
from lm_eval_latentmas.decoding import Decoder, Job
from lm_eval_latentmas.planning import Plan, Planner
from lm_eval_latentmas.sampling import Draws, seed_of
from lm_eval_latentmas.underway import Handed


class TextPlanner(Planner):
    """Plans before the messages are known, with room for the longest, and again when they are."""

    _remedy = "Shorten the question or lower text_tokens"

    def no_messages(self, index: int) -> str | None:
        """The speakers of the messages, which are yet to come."""
        return joined_messages([(agent, "") for agent in self.heard_by(index)])

    def heard_by(self, index: int) -> tuple[Agent, ...]:
        """The agents whose messages the agent at ``index`` is shown."""
        return self.prompts.heard_by(index)[: len(self.thinkers)]

    def with_messages(self, plan: Plan, thinking: Sequence[Tokens], messages: str) -> Plan:
        """The plan with the prompts that were and will be read."""
        return self.fitted(plan.question, plan.key, plan.thinking_about, thinking, messages, self._read)

    def _used(self, prompts: Sequence[Tokens]) -> tuple[int, str]:
        """Positions that the fullest of the agents' conversations can take: each agent has one of its own."""
        most = self.settings.text_tokens
        agents = range(len(self.prompts.agents) - len(prompts), len(self.prompts.agents))
        heard = [len(self.heard_by(index)) for index in agents]
        written = [1] * (len(prompts) - 1) + [0]
        used = max(len(p) + most * (h + w) for p, h, w in zip(prompts, heard, written, strict=True))
        return used, f"the fullest of {self._counted(prompts)} and its messages (at most {most} tokens each)"

    def _read(self, prompts: Sequence[Tokens]) -> tuple[int, str]:
        return len(prompts[-1]), f"the last of {self._counted(prompts)}, messages included,"


@dataclass
class Talk:
    """What the agents have read and said about one question so far, by their places in the chain."""

    plan: Plan
    prompts: dict[int, Tokens] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Place:
    """Whose message is being decoded."""

    talk: Talk
    index: int

    def __str__(self) -> str:
        return str(self.talk.plan)


class TextChain(Chain):
    """A chain whose thinking agents write messages; planning, scoring and the judger's decoding are the same."""

    planner_class = TextPlanner

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.prompts.check_text()
        self._opens_thought = opens_thought(self.adapter)

    @torch.inference_mode()
    def think(self, plans: Sequence[Plan]) -> list[Handed]:
        """Let the thinking agents of a batch write; an agent begins as soon as those that it hears have finished."""
        talks = [Talk(plan) for plan in plans]
        together = len(self.planner.thinkers) if self.prompts.side_by_side else 1
        decoder = Decoder(self.adapter, max(1, len(plans) * together))
        ready = [job for talk in talks for job in self._messages(talk)]
        while ready or decoder.busy:
            done: list[Job] = []
            if ready and decoder.free:
                admitted, ready = ready[: decoder.free], ready[decoder.free :]
                done = decoder.admit(admitted)
            for job in done or decoder.run():
                job.key.talk.messages[job.key.index] = self._message(job)
                ready += self._messages(job.key.talk)
        return [self._handed(talk) for talk in talks]

    def _messages(self, talk: Talk) -> list[Job]:
        """The messages that can be begun now."""
        waiting = [index for index in range(len(self.planner.thinkers)) if index not in talk.jobs]
        can_begin = [index for index in waiting if len(self.prompts.heard_by(index)) <= len(talk.messages)]
        return [self._begin(talk, index) for index in can_begin]

    def _begin(self, talk: Talk, index: int) -> Job:
        plan, agent = talk.plan, self.prompts.agents[index]
        prompt = self.planner.thinker(index, plan.thinking_about, self._heard(talk, index))
        room = self.max_length - len(prompt)
        if room < 1:
            raise ValueError(
                f"{plan}, agent {agent.name}: the prompt with its messages needs {len(prompt) + 1} positions, and the "
                f"model has {self.max_length}; nothing is cut. Lower text_tokens"
            )
        generation = replace(plan.question.generation, until=(), max_gen_toks=min(self.settings.text_tokens, room))
        seed = seed_of(plan.question.seed(self.seed), agent.name)
        thought = replace(self._thought, expected=self._opens_thought)
        job = Job(Place(talk, index), None, list(prompt), 0, generation, Draws(seed), thought, agent.name)
        talk.prompts[index], talk.jobs[index] = prompt, job
        return job

    def _heard(self, talk: Talk, index: int) -> str:
        return joined_messages([(agent, talk.messages[i]) for i, agent in enumerate(self.planner.heard_by(index))])

    def _message(self, job: Job) -> str:
        """What was written after the thought, or all of it where the thought never ended."""
        tokenizer = self.adapter.tokenizer
        start = job.answer_start(tokenizer)
        if start is None and self.adapter.answers_apart:  # its marks would begin messages in the prompts that show it
            return tokenizer.decode(job.tokens, skip_special_tokens=True).strip()
        return job.text[start or 0 :].strip()

    def _handed(self, talk: Talk) -> Handed:
        places = range(len(self.planner.thinkers))
        jobs = [talk.jobs[index] for index in places]
        messages = [talk.messages[index] for index in places]
        thinking = [talk.prompts[index] for index in places]
        heard = self._heard(talk, len(self.prompts.thinkers))
        return Handed(
            self.planner.with_messages(talk.plan, thinking, heard),
            None,
            0,
            relay_bytes=tuple(len(text.encode()) for text in self._handed_on(messages)),
            messages=tuple(messages),
            message_tokens=tuple(len(job.tokens) for job in jobs),
            messages_truncated=sum(job.stop == "length" for job in jobs),
            seconds={"messages": sum(job.seconds for job in jobs)} if jobs else {},
        )

    def _handed_on(self, messages: Sequence[str]) -> list[str]:
        """Per hop the text that goes to the next agent: all messages so far, or side by side the agent's own."""
        said = list(zip(self.prompts.agents, messages, strict=False))
        begins = range(len(said)) if self.prompts.side_by_side else [0] * len(said)
        return [joined_messages(said[begin : index + 1]) for index, begin in enumerate(begins)]
