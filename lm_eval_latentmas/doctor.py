"""`latentmas-obf doctor`: is everything here that a run needs, and what to do about what is not."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata, util
from typing import Literal

from lm_eval_latentmas import __version__, reach

PACKAGE = "lm-eval-latentmas"
_EXTRAS = {"code": ("evalplus",), "math": ("math_verify",), "report": ("scipy", "statsmodels", "matplotlib", "jinja2")}
_MARKS = {"good": "ok", "limited": "--", "bad": "!!"}


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``limited`` costs a feature, ``bad`` stops every run; ``remedy`` says what to do."""

    name: str
    state: Literal["good", "limited", "bad"]
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``doctor``."""
    parser.description = __doc__.partition(": ")[2]
    parser.epilog = "examples:\n  latentmas-obf doctor\n  latentmas-obf doctor --offline --pretrained Qwen/Qwen3-4B\n"
    parser.add_argument("--pretrained", metavar="NAME", help="a model to check, by its configuration alone")
    parser.add_argument("--offline", action="store_true", help="ask no network; only what is on this machine counts")


def run(arguments: argparse.Namespace) -> int:
    """Print every check as soon as it is made; the status is 1 where one of them stops every run."""
    bad = False
    for check in (check for look in CHECKS for check in look(arguments)):
        print(f"{_MARKS[check.state]}  {check.name}: {check.found}", flush=True)
        if check.remedy:
            print(f"      {check.remedy}", flush=True)
        bad |= check.state == "bad"
    return int(bad)


def versions(asked: argparse.Namespace) -> Iterator[Check]:
    """This package, Python, and every required package against the versions it asks for."""
    from packaging.requirements import Requirement

    yield Check(PACKAGE, "good", f"{__version__} on Python {platform.python_version()}, {sys.platform}")
    for line in metadata.requires(PACKAGE) or []:
        requirement = Requirement(line)
        if requirement.marker is not None:
            continue
        try:
            held = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Check(requirement.name, "bad", "not installed", f"pip install '{requirement}'")
            continue
        fits = requirement.specifier.contains(held, prereleases=True)
        remedy = "" if fits else f"pip install '{requirement}'"
        yield Check(requirement.name, "good" if fits else "bad", held, remedy)


def extras(asked: argparse.Namespace) -> Iterator[Check]:
    """Optional packages, by the extra that brings them."""
    for extra, modules in _EXTRAS.items():
        missing = [module for module in modules if util.find_spec(module) is None]
        found = f"without {', '.join(missing)}" if missing else "installed"
        remedy = f"pip install '{PACKAGE}[{extra}]'" if missing else ""
        yield Check(f"extra {extra}", "limited" if missing else "good", found, remedy)


def harness(asked: argparse.Namespace) -> Iterator[Check]:
    """Whether lm-eval finds the model and the tasks."""
    from lm_eval.api.registry import get_model
    from lm_eval.tasks import TaskManager

    get_model("latentmas-obf")
    known = [name for name in TaskManager().all_tasks if name.startswith("latentmas_")]
    yield Check("lm-eval", "good" if known else "bad", f"knows the model and {len(known)} tasks", "" if known else _PTH)


def model(asked: argparse.Namespace) -> Iterator[Check]:
    """The model that runs when none is named, and the one that was named."""
    from lm_eval_latentmas.embedded import embedded_model

    if asked.pretrained:
        yield _named_model(asked.pretrained, asked)
    try:
        yield Check("embedded model", "good", embedded_model()["gguf_file"])
    except ValueError as error:
        yield Check("embedded model", "limited", "not here", str(error))


def device(asked: argparse.Namespace) -> Iterator[Check]:
    """The accelerators that torch sees."""
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
            memory = f"{properties.total_memory / 2**30:.0f} GiB"
            yield Check(f"GPU {index}", "good", f"{properties.name}, {memory}, {bf16} bfloat16")
    else:
        remedy = "small models run; for larger ones install torch for your GPU"
        yield Check("GPU", "limited", f"none; {os.cpu_count()} CPUs", remedy)


def network(asked: argparse.Namespace) -> Iterator[Check]:
    """Which sources of models and data answer; one that does not is asked for nothing more."""
    from lm_eval_latentmas.benchmarks import BENCHMARKS

    if _offline(asked):
        return
    addresses = [reach.HUB, *(benchmark.url for benchmark in BENCHMARKS.values() if benchmark.url)]
    for server in dict.fromkeys(map(reach.origin, addresses)):
        if reach.answers(server):
            yield Check(f"network {reach.host(server)}", "good", "answers")
        else:
            found = f"no answer within {reach.PATIENCE:.0f} s; only what is on this machine counts"
            remedy = "connect this machine, or name the way out in HTTPS_PROXY; --offline leaves the question out"
            yield Check(f"network {reach.host(server)}", "limited", found, remedy)


def data(asked: argparse.Namespace) -> Iterator[Check]:
    """Every benchmark's documents: in the package, in the local folder, or to be had from their source."""
    from lm_eval_latentmas.benchmarks import BENCHMARKS
    from lm_eval_latentmas.datasets import FOLDER_VARIABLE, load

    folder = os.environ.get(FOLDER_VARIABLE)
    for name, benchmark in BENCHMARKS.items():
        local = bool(folder) and os.path.isfile(os.path.join(folder, f"{name}.jsonl"))
        cut_off = "" if local or benchmark.packaged else _cut_off(asked, benchmark.url or reach.HUB)
        try:
            with reach.without_network() if cut_off else nullcontext():
                documents = load(name, folder if local else None)
        except ValueError as error:
            found = f"not on this machine{cut_off}" if cut_off else "can't be read"
            remedy = f"put {name}.jsonl into a folder, set {FOLDER_VARIABLE}" if cut_off else str(error)
            yield Check(f"data {name}", "limited", found, remedy)
        else:
            where = "local folder" if local else benchmark.hub or benchmark.url or "this package"
            kept = ", kept on this machine" if cut_off else ""
            yield Check(f"data {name}", "good", f"{len(documents)} documents from {where}{kept}")


def sandbox(asked: argparse.Namespace) -> Iterator[Check]:
    """How well model-written code is shut in."""
    from lm_eval_latentmas.scoring.sandbox import Sandbox, SandboxError

    try:
        level = Sandbox().level
    except SandboxError as error:
        yield Check("sandbox", "limited", "none works; code can't be graded", str(error))
        return
    strong = level.startswith("namespaces")
    remedy = "" if strong else "install bubblewrap, or allow user namespaces, for a stronger one"
    yield Check("sandbox", "good" if strong else "limited", level, remedy)


def _named_model(name: str, asked: argparse.Namespace) -> Check:
    from transformers import AutoConfig

    from lm_eval_latentmas.model_adapters import adapter_class

    cut_off = "" if os.path.isdir(name) else _cut_off(asked, reach.HUB)
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=bool(cut_off))
        adapter_class(config)
    except (OSError, ValueError) as error:
        remedy = " ".join(str(error).split())[:400]
        return Check(f"model {name}", "bad", f"not on this machine{cut_off}" if cut_off else "can't run", remedy)
    if config.is_encoder_decoder:
        return Check(f"model {name}", "bad", "can't run", "the chain needs a decoder-only model")
    return Check(f"model {name}", "good", f"{config.model_type}, {config.get_text_config().num_hidden_layers} layers")


def _offline(asked: argparse.Namespace) -> bool:
    """Whether no network is to be asked, by the option or by the variable of the hub's own libraries."""
    from huggingface_hub import constants

    return asked.offline or constants.HF_HUB_OFFLINE


def _cut_off(asked: argparse.Namespace, address: str) -> str:
    """Why an address is asked for nothing, as the end of a sentence; empty where it may be asked."""
    if _offline(asked):
        return ", and no network is asked"
    return "" if reach.answers(reach.origin(address)) else f", and {reach.host(address)} does not answer"


CHECKS: tuple[Callable[[argparse.Namespace], Iterator[Check]], ...] = (
    versions,
    extras,
    harness,
    network,
    model,
    device,
    data,
    sandbox,
)
_PTH = "reinstall the package; until then pass --include_path with the folder lm_eval_latentmas/task_configs"
