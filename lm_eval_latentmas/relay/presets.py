"""Compressors by name: presets, which only stand for compositions, and the user's own."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay.composition import STAGES, compose
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.relay.selectors import SELECTORS
from lm_eval_latentmas.relay.settings import RelaySettings, choice

_ABLATIONS = {
    "no-projection": (":projection=false", "the kept span not projected out"),
    "no-scaling": (":scale=false", "without the demand alpha"),
    "max-p": (":rank=all", "all principal directions"),
    "naive": (":rank=all:projection=false:scale=false", "the plain weighted mean of the dropped values"),
    "attention": (":inject=attention", "injected by share of the kept mass"),
    "per-token": (":inject=per-token", "injected by similarity to the dropped values"),
    "evr": (":rank=evr", "as many directions as explain the share tau of the variance"),
}

PRESETS: dict[str, tuple[str, str]] = {
    "l-obf": ("layerwise+obf", "layerwise with orthogonal backfill"),
    "h-obf": ("headwise+obf", "headwise with orthogonal backfill"),
    "merge": ("layerwise+merge", "layerwise, dropped values merged into the kept ones of similar keys"),
    "full-int8": ("full+int8", "every prompt state at 8 bits"),
    "full-int4": ("full+int4", "every prompt state at 4 bits"),
    "l-obf-int8": ("layerwise+obf+int8", "layerwise with orthogonal backfill at 8 bits"),
} | {
    f"{base}-{name}": (composition + options, f"{base}: {about}")
    for base, composition in (("l-obf", "layerwise+obf"), ("h-obf", "headwise+obf"))
    for name, (options, about) in _ABLATIONS.items()
}


def compressor(spec: str, settings: RelaySettings) -> Compressor | Custom:
    """The compressor that a preset, a composition or ``my_package.module:MyCompressor`` names.

    A preset may be followed by more stages, and options given to it go to its last stage: ``l-obf:rank=8+int4``.
    Raises ValueError with one line for an unknown stage, option or value.
    """
    first, plus, rest = spec.strip().partition("+")
    name, colon, options = first.partition(":")
    if name in PRESETS:
        return compose(PRESETS[name][0] + colon + options + plus + rest, settings, spec)
    if name not in SELECTORS and options.isidentifier() and not plus:
        return Custom.load(spec, settings)
    return compose(spec, settings, spec, PRESETS)


@dataclass(frozen=True)
class Custom:
    """A compressor of the user's own: what its class or factory gives for the settings, called with a segment.

    name, mass: taken from it where it has them; ``mass`` says whose attention it wants (see `Compressor.mass`). The
        name ends with a digest of the module's file, so that finished samples are not taken for those of changed code.
    """

    name: str
    compress: Callable[[Segment], Relay]
    mass: Literal["none", "latent", "next"]
    unread = ()  # which settings it follows is its own affair

    @classmethod
    def load(cls, spec: str, settings: RelaySettings) -> Custom:
        """Import ``package.module:name`` and call it with the settings."""
        module, _, attribute = spec.partition(":")
        try:
            loaded = importlib.import_module(module)
            make = getattr(loaded, attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"compressor={spec}: cannot be loaded ({error}); write my_package.module:Name") from error
        try:
            made = make(settings)
        except TypeError as error:
            raise ValueError(f"compressor={spec}: {attribute} must take the RelaySettings alone ({error})") from error
        if not callable(made):
            raise ValueError(f"compressor={spec}: {attribute}(settings) gave a {type(made).__name__}, not a callable")
        mass = getattr(made, "mass", "latent")
        choice(f"compressor={spec}: mass", mass, ("none", "latent", "next"))
        return cls(f"{getattr(made, 'name', spec)} ({_digest(loaded)})", made, mass)

    def __call__(self, segment: Segment, probe: object = None) -> Relay:
        return self.compress(segment)


def _digest(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] if file else "no file"


def table() -> str:
    """All presets and all stages as Markdown, for the README."""
    rows = ["| preset | composition | what it does |", "|---|---|---|"]
    rows += [f"| `{name}` | `{composition}` | {about} |" for name, (composition, about) in PRESETS.items()]
    rows += ["", "| stage | name | options | what it does |", "|---|---|---|---|"]
    for kind, stages in STAGES.items():
        for name, stage in stages.items():
            options = ", ".join(f"`{option}`" for option in stage.options)
            rows.append(f"| {kind} | `{name}` | {options} | {stage.about} |")
    return "\n".join(rows) + "\n"
