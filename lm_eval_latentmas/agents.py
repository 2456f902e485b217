"""The agents as data: a prompt set read from YAML, and the turns that one agent is shown for a question."""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from lm_eval_latentmas.naming import nearest

Turn = dict[str, str]

_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]+\S", re.MULTILINE)


@dataclass(frozen=True)
class Agent:
    """One member of the chain: a name and a message with the field ``{question}``."""

    name: str
    prompt: str


@dataclass(frozen=True)
class PromptSet:
    """The agents in speaking order, the system line they share, and how the last one should write its answer.

    answer_styles: style name to the sentence that replaces ``{answer_form}``; ``{letters}`` in it becomes the letters
        of the question's own options. tasks: (pattern, style) pairs, first match wins.
    """

    system: str
    agents: tuple[Agent, ...]
    answer_styles: dict[str, str]
    tasks: tuple[tuple[str, str], ...]
    source: str

    @property
    def judger(self) -> Agent:
        """The agent that writes the answer."""
        return self.agents[-1]

    @property
    def thinkers(self) -> tuple[Agent, ...]:
        """The agents that think in latent space, in order."""
        return self.agents[:-1]

    def as_dict(self) -> dict[str, Any]:
        """The set as plain JSON, in the form of its file."""
        return {
            "source": self.source,
            "system": self.system,
            "agents": [{"name": agent.name, "prompt": agent.prompt} for agent in self.agents],
            "answer_styles": self.answer_styles,
            "tasks": dict(self.tasks),
        }

    @property
    def digest(self) -> str:
        """SHA-256 over everything that reaches the model."""
        text = repr((self.system, self.agents, sorted(self.answer_styles.items()), self.tasks))
        return hashlib.sha256(text.encode()).hexdigest()

    def answer_style(self, task: str) -> str:
        """The answer style of a task, by the first pattern that its name matches."""
        return next((style for pattern, style in self.tasks if fnmatchcase(task, pattern)), "free")

    def turns(self, agent: Agent, question: str, *, task: str, system: str | None = None) -> list[Turn]:
        """The chat turns that ``agent`` is shown; ``system`` replaces the set's own system line."""
        form = self.answer_styles[self.answer_style(task)].format(letters=_letters(question))
        message = agent.prompt.replace("{answer_form}", form).replace("{question}", question)
        line = self.system if system is None else system
        return ([{"role": "system", "content": line}] if line else []) + [{"role": "user", "content": message}]


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
    """Read a prompt set: the package's own for None, else the YAML file at ``source``.

    Raises ValueError, naming file and field, for a missing role, question field or answer style.
    """
    if source is None:
        name, text = "default", resources.files("lm_eval_latentmas").joinpath("prompts/default.yaml").read_text("utf-8")
    else:
        path = Path(source).expanduser()
        if not path.is_file():
            raise ValueError(f"prompts={source}: no such file; give a YAML file, or leave it out for the package's own")
        name, text = str(source), path.read_text("utf-8")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"prompts={name}: not YAML: {' '.join(str(error).split())}") from error
    return _checked(data, name)


_KEYS = ("system", "agents", "answer_styles", "tasks")


def _checked(data: Any, name: str) -> PromptSet:
    def wrong(what: str) -> ValueError:
        return ValueError(f"prompts={name}: {what}")

    if not isinstance(data, dict):
        raise wrong(f"expected a mapping with {', '.join(_KEYS)}")
    for key in data:
        if key not in _KEYS:
            raise wrong(f"unknown key {nearest(key, _KEYS)}")
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
    return PromptSet(str(data.get("system") or ""), agents, styles, tasks, name)


def _agent(entry: Any, position: int, wrong: Any) -> Agent:
    if not isinstance(entry, dict) or not {"name", "prompt"} <= set(entry):
        raise wrong(f"agent {position} needs 'name' and 'prompt'")
    if "{question}" not in entry["prompt"]:
        raise wrong(f"agent '{entry['name']}' never shows the question: its prompt lacks {{question}}")
    return Agent(str(entry["name"]), str(entry["prompt"]))


def _check_fields(text: str, allowed: set[str], where: str, wrong: Any) -> None:
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError as error:
        raise wrong(f"{where}: {error}; a literal brace is written {{{{ or }}}}") from error
    if unknown := fields - allowed:
        raise wrong(f"{where} has the field {sorted(unknown)}; known: {sorted(allowed)}; a literal brace is doubled")
