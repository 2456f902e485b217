"""One run: one task answered by one model under one setting and one seed, with a score for every document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lm_eval_latentmas.naming import nearest

from .reading import ResultsFile, read_samples
from .samples import Sample, number_of, read_sample

# the seed, which arms are averaged over, and arguments that change no answer
NOT_A_SETTING = frozenset(
    [
        *("seed", "run_dir", "diagnostics", "transport", "compile", "batch_size", "max_batch_size", "chunk_bytes"),
        *("device", "agent_devices", "pipeline", "pipeline_timeout"),
    ]
)


@dataclass(frozen=True)
class Run:
    """One task of one results file.

    given: the arguments as the user wrote them. arguments: all that are known, defaults included.
    setting: of these, what can change answers, without the seed; equal settings are one arm.
    aggregate, others: the chosen metric and all of the same filter, as the results file reports them.
    relay, prompt_set: what this project's own model adds to its results: the task's records by column, its prompts.
    """

    origin: str
    stamp: str
    task: str
    version: Any
    metric: str
    filter: str
    higher_is_better: bool
    given: dict[str, Any]
    arguments: dict[str, Any]
    setting: dict[str, Any]
    seed: int | None
    samples: tuple[Sample, ...]
    aggregate: float | None
    others: dict[str, float] = field(default_factory=dict)
    relay: dict[str, list] = field(default_factory=dict)
    prompt_set: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def load_runs(files: Iterable[ResultsFile], metric: str | None = None) -> list[Run]:
    """All runs of some results files.

    metric: ``NAME`` or ``NAME,FILTER``; by default each task's first metric and first filter.

    Raises:
        ValueError: no task has that metric; a samples file can't be read.
    """
    runs = [_run(file, task, metric) for file in files for task in file.data["configs"] if task in file.data["results"]]
    if metric and runs and all(run is None for run in runs):
        known = {name for file in files for task in file.data["results"] for name in _metrics(file.data, task)}
        raise ValueError(f"unknown metric {nearest(metric, known)}")
    return [run for run in runs if run is not None]


def _run(file: ResultsFile, task: str, wanted: str | None) -> Run | None:
    data, config = file.data, file.data["config"]
    chosen = next((m for m in _metrics(data, task) if wanted in (None, m, m.partition(",")[0])), None)
    if chosen is None:
        return None
    metric, _, filter_name = chosen.partition(",")
    own = config.get("latentmas") or {}
    given = _arguments(config.get("model_args")) | (config.get("gen_kwargs") or {})
    arguments = {"model": config.get("model")} | given
    setting = _without(arguments, NOT_A_SETTING)
    if chain := own.get("chain"):
        arguments |= _flat(chain) | {"pretrained": _pretrained(own, given)}
        arguments["compressor"] = given.get("compressor", chain.get("compressor"))
        setting = _own_setting(own, config)
    samples, notes = _samples(file, task, metric, filter_name)
    return Run(
        origin=str(file.path),
        stamp=file.stamp,
        task=task,
        version=data["versions"].get(task),
        metric=metric,
        filter=filter_name,
        higher_is_better=data.get("higher_is_better", {}).get(task, {}).get(metric, True) is not False,
        given=given,
        arguments=arguments,
        setting=setting,
        seed=_seed(arguments.get("seed", config.get("torch_seed"))),
        samples=samples,
        aggregate=number_of(data["results"][task][chosen]),
        others=_same_filter(data["results"][task], filter_name),
        relay=(own.get("samples") or {}).get(task, {}),
        prompt_set=own.get("prompt_set"),
        notes=notes,
    )


def _metrics(data: dict[str, Any], task: str) -> list[str]:
    """``NAME,FILTER`` of a task's metrics, in the order of its configuration."""
    present = [k for k in data["results"][task] if "," in k and "_stderr," not in k]
    names = [m.get("metric") for m in data["configs"].get(task, {}).get("metric_list") or []]
    return sorted(present, key=lambda k: names.index(n) if (n := k.partition(",")[0]) in names else len(names))


def _same_filter(results: dict[str, Any], filter_name: str) -> dict[str, float]:
    numbers = {name: number_of(value) for name, value in results.items() if name.partition(",")[2] == filter_name}
    return {name.partition(",")[0]: number for name, number in numbers.items() if number is not None}


def _arguments(given: Any) -> dict[str, Any]:
    """``model_args`` as a dict; some releases write it as the text of the command line."""
    if isinstance(given, dict):
        return dict(given)
    pairs = (part.partition("=") for part in (given or "").split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _own_setting(own: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """What can change this project's answers: its settings, prompts, and the weights that really ran.

    The weights count by their fingerprint, since one model has many paths and loading arguments, and a preset counts
    as the composition that it stands for.
    """
    weights = own.get("model") or own.get("loading") or {}
    rest = {"prompts": own.get("prompts"), "weights": weights.get("fingerprint") or str(weights)}
    return _without(_flat(own["chain"]) | rest | (config.get("gen_kwargs") or {}), NOT_A_SETTING)


def _flat(chain: dict[str, Any]) -> dict[str, Any]:
    """The chain's settings, groups of them included; ``composition`` is what the compressor's name stands for."""
    named: dict[str, Any] = {"composition": chain.get("compressor")}
    for name, value in chain.items():
        if name != "compressor":
            named |= value if isinstance(value, dict) else {name: value}
    return named


def _pretrained(own: dict[str, Any], given: dict[str, Any]) -> Any:
    return given.get("pretrained", (own.get("loading") or {}).get("pretrained"))


def _without(settings: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def _samples(file: ResultsFile, task: str, metric: str, filter_name: str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    path = file.samples.get(task)
    if path is None:
        return (), (f"{task}: no samples file beside {file.path.name}; run with --log_samples to compare by document",)
    seen: Counter[str] = Counter()
    samples = []
    for row in read_samples(path):
        if row["filter"] == filter_name:
            samples.append(read_sample(row, metric, seen[row["doc_hash"]]))
            seen[row["doc_hash"]] += 1
    return tuple(samples), _shortfalls(file, task, path.name, samples)


def _shortfalls(file: ResultsFile, task: str, name: str, samples: list[Sample]) -> tuple[str, ...]:
    notes = []
    expected = file.data["n-samples"].get(task, {}).get("effective")
    if expected is not None and len(samples) != expected:
        notes.append(f"{name}: {len(samples)} of {expected} documents; the file is cut off or was edited")
    if unscored := sum(sample.score is None for sample in samples):
        notes.append(f"{name}: {unscored} of {len(samples)} documents have no number as a score and are left out")
    return tuple(notes)


def _seed(value: Any) -> int | None:
    return int(value) if str(value).lstrip("-").isdigit() else None
