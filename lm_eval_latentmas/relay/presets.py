"""Compressors by name: the composition grammar ``SELECTOR[+COMPENSATION[:key=value...]][+CODEC]`` and its presets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.relay import settings as check
from lm_eval_latentmas.relay.codecs import CODECS, Codec, Plain
from lm_eval_latentmas.relay.compensation import Backfill, Compensation, Merge
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.relay.selectors import SELECTORS, Selector
from lm_eval_latentmas.relay.settings import HEADWISE_RANK, LAYERWISE_RANK, RelaySettings

PRESETS: dict[str, tuple[str, str]] = {
    "l-obf": ("layerwise+obf", "layerwise with orthogonal backfill"),
    "h-obf": ("headwise+obf", "headwise with orthogonal backfill"),
}


def compressor(spec: str, settings: RelaySettings) -> Compressor | Custom:
    """The compressor that a preset, a composition or ``my_package.module:MyCompressor`` names.

    Raises ValueError with one line for an unknown stage or option.
    """
    if is_custom(spec):
        return Custom.load(spec, settings)
    selector_text, *rest = _expanded(spec).split("+")
    selector = _selector(selector_text, settings)
    compensation = codec = None
    for text in rest:
        name, options = _stage(text)
        if name in CODECS and codec is None:
            codec = _codec(name, options)
        elif name in COMPENSATIONS and compensation is None and codec is None:
            compensation = COMPENSATIONS[name](options, selector, settings)
        elif name in CODECS or name in COMPENSATIONS or name in SELECTORS:
            raise ValueError(f"compressor={spec}: '{name}' stands twice or out of order; write {GRAMMAR}")
        else:
            raise ValueError(f"compressor={spec}: unknown stage {nearest(name, (*COMPENSATIONS, *CODECS))}")
    return Compressor(selector, compensation, codec or Plain(), settings)


GRAMMAR = "SELECTOR[+COMPENSATION[:key=value...]][+CODEC]"


@dataclass(frozen=True)
class Custom:
    """A compressor of the user's own: any callable from a segment to a relay."""

    name: str
    compress: Callable[[Segment], Relay]
    mass: Literal["none", "latent", "next"]

    @classmethod
    def load(cls, spec: str, settings: RelaySettings) -> Custom:
        """Import ``package.module:name`` and call it with the settings."""
        module, _, attribute = spec.partition(":")
        try:
            make = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"compressor={spec}: cannot be loaded ({error}); write my_package.module:Name") from error
        made = make(settings)
        if not callable(made):
            raise ValueError(f"compressor={spec}: {attribute}(settings) gave a {type(made).__name__}, not a callable")
        mass = getattr(made, "mass", "latent")
        check.choice(f"compressor={spec}: mass", mass, ("none", "latent", "next"))
        return cls(getattr(made, "name", spec), made, mass)

    def __call__(self, segment: Segment, probe: object = None) -> Relay:
        return self.compress(segment)


def is_custom(spec: str) -> bool:
    """Whether a spec names the user's own compressor: one colon, with an attribute and no option behind it."""
    module, colon, attribute = spec.partition(":")
    return bool(colon) and "." in module and attribute.isidentifier()


def _expanded(spec: str) -> str:
    """The spec with a preset's name replaced by what it stands for; options given to a preset go to its last stage."""
    first, plus, rest = spec.partition("+")
    name, colon, options = first.partition(":")
    if name in PRESETS:
        name = PRESETS[name][0]
    return name + colon + options + plus + rest


def _stage(text: str) -> tuple[str, dict[str, Any]]:
    """A stage's name and its options; ``rank=4`` becomes a number, ``projection=false`` a boolean."""
    name, *pairs = text.strip().split(":")
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"compressor: '{pair}' in stage '{text}' is no option; write {name}:key=value")
        options[key.strip()] = check.number(value)
    return name, options


def _selector(text: str, settings: RelaySettings) -> Selector:
    name, options = _stage(text)
    if name not in SELECTORS:
        raise ValueError(f"unknown compressor {nearest(name, (*SELECTORS, *PRESETS))}")
    found = SELECTORS[name]
    _known(name, options, ("per_head",) if found.fixed is None else ())
    per_head = options.get("per_head", found.per_head)
    check.choice(f"{name}: per_head", per_head, (True, False))
    return replace(found, per_head=per_head, adaptive=settings.allocation == "adaptive")


def _codec(name: str, options: dict[str, Any]) -> Codec:
    _known(name, options, ())
    return CODECS[name]


def _backfill(options: dict[str, Any], selector: Selector, settings: RelaySettings) -> Backfill:
    _known("obf", options, ("rank", "projection", "scale", "inject", "svd", "tau", "cap"))
    base = HEADWISE_RANK if selector.per_head else LAYERWISE_RANK
    rank = options.get("rank", settings.pca_rank)
    return Backfill(
        rank=base if rank is None else rank,
        base=base,
        project=options.get("projection", True),
        scale=options.get("scale", True),
        inject=options.get("inject", "uniform"),
        svd=options.get("svd", settings.svd),
        tau=options.get("tau", settings.evr_tau),
        cap=options.get("cap", settings.evr_cap),
    )


def _merge(options: dict[str, Any], selector: Selector, settings: RelaySettings) -> Merge:
    _known("merge", options, ())
    return Merge()


COMPENSATIONS: dict[str, Callable[[dict[str, Any], Selector, RelaySettings], Compensation]] = {
    "obf": _backfill,
    "merge": _merge,
}


def _known(stage: str, options: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for key in options:
        if key not in allowed:
            raise ValueError(f"compressor: unknown option of {stage}: {nearest(key, allowed)}")
