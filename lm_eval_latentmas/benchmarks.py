"""The benchmarks: where the rows come from, what makes a document of one, and the form of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Literal

import yaml

from lm_eval_latentmas import documents
from lm_eval_latentmas.documents import Row


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    document: from a row of the source to a document. hub, config, split, revision: a data set on the Hub, with the
    commit that is read. url: a file of JSON lines, gzipped. gated: access has to be asked for.
    """

    document: Callable[[Row], Row]
    form: Literal["number", "choice", "code"]
    hub: str | None = None
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    url: str | None = None
    gated: bool = False

    @property
    def packaged(self) -> bool:
        """Whether the rows are a file of this package."""
        return self.hub is None and self.url is None


_ARC = {"hub": "allenai/ai2_arc", "revision": "210d026faf9955653af8916fad021475a3f00453"}
_EVALPLUS = "https://github.com/evalplus/{0}_release/releases/download/{1}/{2}.jsonl.gz"

BENCHMARKS = {
    "demo": Benchmark(documents.number_problem, "number"),
    "gsm8k": Benchmark(
        documents.gsm8k, "number", "openai/gsm8k", "main", revision="e53f048856ff4f594e959d75785d2c2d37b678ee"
    ),
    "aime24": Benchmark(
        documents.number_problem,
        "number",
        "Maxwell-Jia/AIME_2024",
        split="train",
        revision="8d88b2876a82a080e2f172cc9b25d0d9d2cb4792",
    ),
    "aime25": Benchmark(
        documents.number_problem, "number", "math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b"
    ),
    "gpqa_diamond": Benchmark(
        documents.gpqa,
        "choice",
        "Idavidrein/gpqa",
        "gpqa_diamond",
        split="train",
        revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
        gated=True,
    ),
    "medqa": Benchmark(
        documents.medqa, "choice", "GBaker/MedQA-USMLE-4-options", revision="0fb93dd23a7339b6dcd27e241cb9b5eca62d4d18"
    ),
    "arc_easy": Benchmark(documents.arc, "choice", config="ARC-Easy", **_ARC),
    "arc_challenge": Benchmark(documents.arc, "choice", config="ARC-Challenge", **_ARC),
    "mbpp_plus": Benchmark(documents.mbpp_plus, "code", url=_EVALPLUS.format("mbppplus", "v0.2.0", "MbppPlus")),
    "humaneval_plus": Benchmark(
        documents.humaneval_plus, "code", url=_EVALPLUS.format("humanevalplus", "v0.1.10", "HumanEvalPlus")
    ),
}


def benchmarks_of(tasks: Iterable[str]) -> list[str]:
    """The benchmarks behind names of this package's tasks and groups, or patterns of them, without repetition.

    Names of other tasks are passed over.
    """
    ranked = [name for name, benchmark in BENCHMARKS.items() if benchmark.form == "choice"]
    members = {f"latentmas_{name}": [name] for name in BENCHMARKS} | _groups()
    members |= {f"latentmas_{name}_rank": [name] for name in ranked}
    found: dict[str, None] = {}
    pending = [known for task in tasks for known in members if fnmatchcase(known, task)]
    while pending:
        for member in members[pending.pop(0)]:
            if member in BENCHMARKS:
                found[member] = None
            elif member in members:
                pending.append(member)
    return list(found)


class _PlainLoader(yaml.SafeLoader):
    """YAML with lm-eval's own tags left out: nothing is imported to learn which tasks a group holds."""


_PlainLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _groups() -> dict[str, list[str]]:
    """The members of each group, by its name."""
    configs = [file for file in files("lm_eval_latentmas.task_configs").iterdir() if file.name.endswith(".yaml")]
    parsed = [yaml.load(file.read_text("utf-8"), _PlainLoader) for file in configs]
    return {config["group"]: config["task"] for config in parsed if "group" in config}
