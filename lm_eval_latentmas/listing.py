"""`latentmas-obf tasks` and `compressors`: what can be named on the command line, one a line."""

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
    from lm_eval_latentmas.relay import presets
    from lm_eval_latentmas.relay.codecs import CODECS
    from lm_eval_latentmas.relay.selectors import SELECTORS

    found = [(name, f"{spec}: {what}") for name, (spec, what) in presets.PRESETS.items()]
    for kind, names in (
        ("selector", SELECTORS),
        ("compensation", presets.COMPENSATIONS),
        ("codec", CODECS),
    ):
        found += [(name, kind) for name in names]
    return [*found, (presets.GRAMMAR, "a composition"), ("my_package.module:Name", "one of your own")]


LISTS: dict[str, Callable[[], list[Entry]]] = {"tasks": tasks, "compressors": compressors}


def _source(benchmark: Benchmark) -> str:
    where = "in this package" if benchmark.packaged else benchmark.hub or benchmark.url
    parts = [benchmark.form, where, "gated" if benchmark.gated else "", "runs code" if benchmark.form == "code" else ""]
    return ", ".join(part for part in parts if part)
