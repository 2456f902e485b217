"""Questions, and what every agent is shown of one: rendered, counted and checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lm_eval_latentmas.agents import Agent, PromptSet
from lm_eval_latentmas.config import ChainSettings
from lm_eval_latentmas.continuations import Tokens, placed, reply_opening
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.prefix import head
from lm_eval_latentmas.relay_probe import split_upstream
from lm_eval_latentmas.sampling import Generation, seed_of


@dataclass(frozen=True)
class Question:
    """One request: what is asked, where it comes from, and how the answer is to be decoded.

    system: replaces the prompt set's system line. prefix: the judger's answer begins with it.
    continuations: answers that are given and scored; none where one is to be decoded.
    """

    task: str
    doc_id: int
    repeat: int
    text: str
    generation: Generation
    system: str | None = None
    prefix: str = ""
    continuations: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"task {self.task}, document {self.doc_id}"

    @property
    def document(self) -> tuple[object, ...]:
        """The question without its repeat."""
        return (self.task, self.system, self.text, self.prefix)

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes this sample itself, the same in any order, subset or shard: never the document's number."""
        return (*self.document, self.repeat)

    def seed(self, seed: int) -> int:
        """The seed of this question's draws."""
        return seed_of(seed, *self.identity)


@dataclass(frozen=True)
class Plan:
    """A question with every agent's prompt in tokens.

    key: what the caller knows the sample by.
    prompts: one per agent that runs; those of the thinking agents are another document's where relays are shuffled.
    thinking_about: that other document, or the question. continuations: the tokens of each, behind the last prompt.
    clamped: new tokens were cut to the context. opened: the judger's prompt ends inside a thought.
    heads: for thinking agents without history, what their prompts begin with whatever the question.
    """

    question: Question
    key: str
    prompts: tuple[Tokens, ...]
    generation: Generation
    clamped: bool
    opened: bool
    thinking_about: Question
    continuations: tuple[Tokens, ...] = ()
    heads: tuple[Tokens, ...] = ()

    def __str__(self) -> str:
        return str(self.question)

    @property
    def thinker_tokens(self) -> int:
        """L: prompt tokens of the agents that think (method, section 4)."""
        return sum(map(len, self.prompts[:-1]))


class Planner:
    """Makes plans of questions for one model, prompt set and configuration."""

    _remedy = "Shorten the question or lower latent_steps"

    def __init__(
        self, adapter: ModelAdapter, prompts: PromptSet, settings: ChainSettings, *, max_length: int, seed: int
    ) -> None:
        self.adapter, self.prompts, self.settings = adapter, prompts, settings
        self.max_length, self.seed = max_length, seed
        self._reply_opening = reply_opening(adapter)
        self._heads: dict[tuple[object, ...], Tokens] = {}

    def thought_about(self, questions: Sequence[Question]) -> list[Question]:
        """For every question the one that its thinking agents are shown: itself, or its partner in a shuffle."""
        return self._partners(questions) if self.settings.relay == "shuffled" else list(questions)

    def plan(self, question: Question, key: str = "", *, thinking_about: Question | None = None) -> Plan:
        """Render and count every prompt of a question.

        Raises ValueError with the numbers where the prompts and latent steps leave no room for an answer.
        """
        about = thinking_about or question
        thinking = [self.thinker(index, about, self.no_messages(index)) for index in range(len(self.thinkers))]
        plan = self.fitted(question, key, about, thinking, self.no_messages(len(self.prompts.thinkers)), self._used)
        first = len(thinking) if self.prompts.side_by_side else 1
        return replace(plan, heads=tuple(self._head(index, about) for index in range(len(thinking[:first]))))

    def fitted(
        self,
        question: Question,
        key: str,
        about: Question,
        thinking: Sequence[Tokens],
        messages: str | None,
        used_by: Callable[[Sequence[Tokens]], tuple[int, str]],
    ) -> Plan:
        """The plan whose thinking agents' prompts are known, if there is room; ``used_by`` counts what is taken."""
        judger, continuations, opened = self.judger(question, messages)
        prompts = (*thinking, judger)
        used, counted = used_by(prompts)
        wanted = max(map(len, continuations), default=question.generation.max_gen_toks)
        room, least = self.max_length - used, wanted if continuations else 1
        if room < least:
            scored = f", and the longest continuation has {least} tokens" if continuations else ""
            raise ValueError(
                f"{question}: {counted} need {used} positions, and the model has {self.max_length}{scored}; "
                f"nothing is cut. {self._remedy}"
            )
        generation = replace(question.generation, max_gen_toks=min(wanted, room))
        return Plan(question, key, prompts, generation, wanted > room, opened, about, continuations)

    def no_messages(self, index: int) -> str | None:
        """Stands for what the agent at ``index`` hears while there is nothing; None where agents hand on relays."""
        return None

    def thinker(self, index: int, question: Question, messages: str | None) -> Tokens:
        """The prompt of a thinking agent, which sees the upstream part of a question that is marked in two."""
        shown, _ = split_upstream(question.text)
        return tuple(self.adapter.encode(self._text(self.prompts.agents[index], question, shown, messages)))

    def _head(self, index: int, question: Question) -> Tokens:
        """What the prompt of a thinking agent begins with for every question of the same task and system line."""
        key = (index, question.task, question.system, bool(question.continuations))
        if key not in self._heads:
            self._heads[key] = head(
                lambda opening: self.thinker(index, replace(question, text=opening), self.no_messages(index))
            )
        return self._heads[key]

    def judger(self, question: Question, messages: str | None) -> tuple[Tokens, tuple[Tokens, ...], bool]:
        """The judger's prompt, the tokens of the question's continuations, and whether the prompt opens a thought."""
        _, shown = split_upstream(question.text)
        text = self._text(self.prompts.judger, question, shown, messages)
        if question.prefix or question.continuations:
            text += self._reply_opening + question.prefix
        prompt, continuations = placed(self.adapter, text, question.continuations, verbatim=bool(question.prefix))
        return prompt, continuations, text.rstrip().endswith(self.adapter.thought[0])

    @property
    def thinkers(self) -> tuple[Agent, ...]:
        """The agents that think: none where the judger works alone."""
        alone = self.settings.relay == "none" or self.settings.mode == "single"
        return () if alone else self.prompts.thinkers

    def _text(self, agent: Agent, question: Question, shown: str, messages: str | None) -> str:
        turns = self.prompts.turns(
            agent,
            shown,
            task=question.task,
            system=question.system,
            scored=bool(question.continuations),
            messages=messages,
        )
        return self.adapter.render(turns)

    def _used(self, prompts: Sequence[Tokens]) -> tuple[int, str]:
        """Positions taken before the answer, and what takes them: all agents share one timeline."""
        steps = self.settings.latent_steps * (len(prompts) - 1)
        return sum(map(len, prompts)) + steps, f"{self._counted(prompts)} and latent steps ({steps})"

    def _counted(self, prompts: Sequence[Tokens]) -> str:
        agents = self.prompts.agents[-len(prompts) :]
        counts = ", ".join(f"{agent.name} {len(prompt)}" for agent, prompt in zip(agents, prompts, strict=True))
        return f"prompts ({counts} tokens)"

    def _partners(self, questions: Sequence[Question]) -> list[Question]:
        """For every question another document of its task, by a cycle that seed and documents alone decide."""
        partner: dict[tuple[object, ...], Question] = {}
        for task in {question.task for question in questions}:
            distinct = {q.document: q for q in questions if q.task == task}
            cycle = sorted(distinct.values(), key=lambda q: seed_of(self.seed, "shuffled", *q.document))
            if len(cycle) < 2:
                raise ValueError(f"relay=shuffled: task {task} has one document here; it takes at least two")
            partner |= {q.document: other for q, other in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
        return [partner[question.document] for question in questions]
