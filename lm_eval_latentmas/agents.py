"""The agents as data: a prompt set read from YAML, and the turns that one agent is shown for a question."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from lm_eval_latentmas.naming import nearest

Turn = dict[str, str]
TOPOLOGIES = ("sequential", "hierarchical")

_FIELD = re.compile(r"\{(question|messages|answer_form)\}")
_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]+\S", re.MULTILINE)


@dataclass(frozen=True)
class Agent:
    """One member of the chain: a name and a message with the field ``{question}``.

    text: the message where agents hand on text, with the field ``{messages}`` too; None for one that is handed none.
    """

    name: str
    prompt: str
    text: str | None = None


@dataclass(frozen=True)
class PromptSet:
    """The agents in speaking order, the system line they share, and how the last one should write its answer.

    answer_styles: style name to the sentence that replaces ``{answer_form}``; ``{letters}`` in it becomes the letters
        of the question's own options. tasks: (pattern, style) pairs, first match wins. The style ``continue`` is that
        of answers which are given and scored, in any task.
    topology: ``sequential``, each agent holds what all before it hand on; or ``hierarchical``, all but the last work
        side by side and the last one holds what they all hand on.
    """

    system: str
    agents: tuple[Agent, ...]
    answer_styles: dict[str, str]
    tasks: tuple[tuple[str, str], ...]
    source: str
    topology: str = "sequential"

    @property
    def judger(self) -> Agent:
        """The agent that writes the answer."""
        return self.agents[-1]

    @property
    def thinkers(self) -> tuple[Agent, ...]:
        """The agents that think in latent space, in order."""
        return self.agents[:-1]

    @property
    def side_by_side(self) -> bool:
        """Whether the thinking agents work without seeing each other."""
        return self.topology == "hierarchical"

    def heard_by(self, index: int) -> tuple[Agent, ...]:
        """The agents that hand on to the agent at ``index``."""
        alone = self.side_by_side and index < len(self.thinkers)
        return () if alone else self.agents[:index]

    def as_dict(self) -> dict[str, Any]:
        """The set as plain JSON, in the form of its file."""
        return {
            "source": self.source,
            "system": self.system,
            "topology": self.topology,
            "agents": [
                {"name": agent.name, "prompt": agent.prompt} | ({} if agent.text is None else {"text": agent.text})
                for agent in self.agents
            ],
            "answer_styles": self.answer_styles,
            "tasks": dict(self.tasks),
        }

    @property
    def digest(self) -> str:
        """SHA-256 over everything that reaches the model."""
        text = repr((self.system, self.topology, self.agents, sorted(self.answer_styles.items()), self.tasks))
        return hashlib.sha256(text.encode()).hexdigest()

    def answer_style(self, task: str) -> str:
        """The answer style of a task, by the first pattern that its name matches."""
        return next((style for pattern, style in self.tasks if fnmatchcase(task, pattern)), "free")

    def turns(
        self,
        agent: Agent,
        question: str,
        *,
        task: str,
        system: str | None = None,
        scored: bool = False,
        messages: str | None = None,
    ) -> list[Turn]:
        """The chat turns that ``agent`` is shown.

        system: replaces the set's own system line. scored: the answer is given and only its likelihood is asked for.
        messages: what other agents hand on as text; None where they hand on relays.
        """
        values = {
            "question": question,
            "messages": messages or "",
            "answer_form": self._answer_form(question, task, scored),
        }
        message = agent.prompt if messages is None or agent.text is None else agent.text
        # in one pass, so that a question about braces is never filled in itself
        content = _FIELD.sub(lambda field: values[field[1]], message)
        line = self.system if system is None else system
        return ([{"role": "system", "content": line}] if line else []) + [{"role": "user", "content": content}]

    def _answer_form(self, question: str, task: str, scored: bool) -> str:
        form = self.answer_styles.get("continue", "") if scored else self.answer_styles[self.answer_style(task)]
        return form.format(letters=_letters(question))

    def check_text(self) -> None:
        """Raise ValueError, naming the agent, where one that hears others has no place for their messages."""
        for index, agent in enumerate(self.agents):
            if self.heard_by(index) and "{messages}" not in (agent.text or ""):
                raise ValueError(
                    f"prompts={self.source}: mode=text hands on messages, and agent '{agent.name}' has no place for "
                    "them; give it a 'text' with {messages}"
                )


def joined_messages(messages: Sequence[tuple[Agent, str]]) -> str:
    """What agents said, as the text that the next one is shown in place of ``{messages}``."""
    return "\n\n".join(f"{agent.name[:1].upper()}{agent.name[1:]}:\n{text.strip()}" for agent, text in messages)


def _letters(question: str) -> str:
    """The letters of the options listed in a question, as ``A, B, C or D``; ``A to Z`` style text when none are."""
    found = _OPTION.findall(question)
    # Only a list that starts with A and has no gap is a list of options; the last such run counts (few-shot examples).
    run: list[str] = []
    for letter in found:
        if letter == "A":
            run = ["A"]
        elif run and ord(letter) == ord(run[-1]) + 1:
            run.append(letter)
    if len(run) < 2:
        return "the options"
    return ", ".join(run[:-1]) + " or " + run[-1]


def load_prompts(source: str | None = None) -> PromptSet:
    """Read a prompt set: the package's own for None, one that ships with it by name, or a YAML file.

    Raises ValueError, naming file and field, for a missing role, question field or answer style.
    """
    name = source or "default"
    packaged = _packaged()
    data = _read(packaged.get(name) or Path(name).expanduser(), name)
    if isinstance(data, dict) and (included := data.pop("include", None)) is not None:
        if included not in packaged:
            raise ValueError(f"prompts={name}: include takes {', '.join(packaged)}, not '{included}'")
        data = _read(packaged[included], included) | data
    return _checked(data, name)


def _packaged() -> dict[str, Any]:
    """The files of the prompt sets that ship with the package, by name."""
    files = resources.files(__package__).joinpath("prompts").iterdir()
    return {file.name.removesuffix(".yaml"): file for file in sorted(files, key=lambda file: file.name)}


def _read(file: Any, name: str) -> Any:
    if not file.is_file():
        raise ValueError(f"prompts={name}: no such file; give a YAML file, or one of {', '.join(_packaged())}")
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"prompts={name}: not YAML: {' '.join(str(error).split())}") from error


_KEYS = ("system", "topology", "agents", "answer_styles", "tasks")
_AGENT_KEYS = ("name", "prompt", "text")


def _checked(data: Any, name: str) -> PromptSet:
    def wrong(what: str) -> ValueError:
        return ValueError(f"prompts={name}: {what}")

    if not isinstance(data, dict):
        raise wrong(f"expected a mapping with {', '.join(_KEYS)}")
    for key in data:
        if key not in _KEYS:
            raise wrong(f"unknown key {nearest(key, (*_KEYS, 'include'))}")
    entries = data.get("agents")
    if not isinstance(entries, list) or not entries:
        raise wrong("'agents' must be a list of at least one agent (the last one writes the answer)")
    agents = tuple(_agent(entry, position, wrong) for position, entry in enumerate(entries, 1))
    names = [agent.name for agent in agents]
    if len(set(names)) != len(names):
        raise wrong(f"two agents share a name: {', '.join(names)}")
    styles = {str(key): str(value) for key, value in (data.get("answer_styles") or {"free": ""}).items()}
    tasks = tuple((str(pattern), str(style)) for pattern, style in (data.get("tasks") or {"*": "free"}).items())
    for style in {style for _, style in tasks} | {"free"}:
        if style not in styles:
            raise wrong(f"answer style '{style}' is used but 'answer_styles' has only {', '.join(styles)}")
    for style, text in styles.items():
        _check_fields(text, {"letters"}, f"answer style '{style}'", wrong)
    topology = data.get("topology", TOPOLOGIES[0])
    if topology not in TOPOLOGIES:
        raise wrong(f"topology '{topology}': allowed are {', '.join(TOPOLOGIES)}")
    return PromptSet(str(data.get("system") or ""), agents, styles, tasks, name, topology)


def _agent(entry: Any, position: int, wrong: Any) -> Agent:
    if not isinstance(entry, dict) or not {"name", "prompt"} <= set(entry):
        raise wrong(f"agent {position} needs 'name' and 'prompt'")
    for key in entry:
        if key not in _AGENT_KEYS:
            raise wrong(f"agent '{entry['name']}': unknown key {nearest(key, _AGENT_KEYS)}")
    agent = Agent(**{key: str(value) for key, value in entry.items()})
    for key in ("prompt", "text"):
        if "{question}" not in entry.get(key, "{question}"):
            raise wrong(f"agent '{agent.name}' never shows the question: its {key} lacks {{question}}")
    if "{messages}" in agent.prompt:
        raise wrong(f"agent '{agent.name}': {{messages}} belongs in its 'text', which mode=text shows")
    return agent


def _check_fields(text: str, allowed: set[str], where: str, wrong: Any) -> None:
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError as error:
        raise wrong(f"{where}: {error}; a literal brace is written {{{{ or }}}}") from error
    if unknown := fields - allowed:
        raise wrong(f"{where} has the field {sorted(unknown)}; known: {sorted(allowed)}; a literal brace is doubled")
