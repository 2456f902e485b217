"""`latentmas-obf models`, `tasks` and `compressors`: what can be named on the command line, one a line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from lm_eval_latentmas.benchmarks import Benchmark

Entry = tuple[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Lists take no options."""


def run(arguments: argparse.Namespace) -> int:
    """Print the list that the command names."""
    entries = LISTS[arguments.command]()
    width = max(len(name) for name, _ in entries)
    print("\n".join(f"{name:<{width}}  {what}".rstrip() for name, what in entries))
    return 0


def tasks() -> list[Entry]:
    """This package's tasks and groups, and where their documents come from."""
    from lm_eval_latentmas.benchmarks import BENCHMARKS

    found = []
    for file in sorted(files("lm_eval_latentmas.task_configs").iterdir(), key=lambda file: file.name):
        if file.name.startswith("latentmas_") and file.name.endswith(".yaml"):
            # shared parts, which a plain YAML reader can't follow, hold no name and no member
            config = yaml.safe_load(file.read_text("utf-8"))
            if "group" in config:
                found.append((config["group"], "group of " + ", ".join(config["task"])))
            else:
                benchmark = BENCHMARKS.get((config.get("dataset_kwargs") or {}).get("benchmark"))
                found.append((config["task"], _source(benchmark) if benchmark else "made from a seed"))
    return found


def compressors() -> list[Entry]:
    """Presets, and the stages that compositions are made of."""
    from lm_eval_latentmas.relay.composition import GRAMMAR, STAGES
    from lm_eval_latentmas.relay.presets import PRESETS

    found = [(name, f"preset, {composition}: {about}") for name, (composition, about) in PRESETS.items()]
    for kind, stages in STAGES.items():
        for name, stage in stages.items():
            options = f" ({', '.join(stage.options)})" if stage.options else ""
            found.append((name, f"{kind}{options}: {stage.about}"))
    return [*found, ("composition", GRAMMAR), ("my_package.module:Name", "one of your own")]


def models() -> list[Entry]:
    """Families of models that the conformance suite covers, by the ``model_type`` of their configuration."""
    from lm_eval_latentmas.model_adapters.families import FAMILIES

    found = [(name, f"adapter {adapter.__name__}") for name, adapter in sorted(FAMILIES.items())]
    return [*found, ("others", "run if the chain can; latentmas-obf doctor --pretrained NAME tells")]


LISTS: dict[str, Callable[[], list[Entry]]] = {"models": models, "tasks": tasks, "compressors": compressors}


def _source(benchmark: Benchmark) -> str:
    where = "in this package" if benchmark.packaged else benchmark.hub or benchmark.url
    parts = [benchmark.form, where, "gated" if benchmark.gated else "", "runs code" if benchmark.form == "code" else ""]
    return ", ".join(part for part in parts if part)
