"""The composition grammar ``SELECTOR[+COMPENSATION[:key=value...]][+CODEC]``: text in, checked stages out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.relay import settings as check
from lm_eval_latentmas.relay.codecs import CODECS, Plain
from lm_eval_latentmas.relay.compensation import INJECTIONS, Backfill, Merge
from lm_eval_latentmas.relay.compressor import Compressor
from lm_eval_latentmas.relay.selectors import SELECTORS, Selector
from lm_eval_latentmas.relay.settings import HEADWISE_RANK, LAYERWISE_RANK, RelaySettings

GRAMMAR = "SELECTOR[+COMPENSATION[:key=value...]][+CODEC]"
Options = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """One name of the grammar: the options it takes, a line about it, and how it is made.

    make: called with the options, the selector (None for selectors themselves) and the settings.
    """

    about: str
    make: Callable[[Options, Selector | None, RelaySettings], Any]
    options: tuple[str, ...] = ()


def compose(composition: str, settings: RelaySettings, spec: str, presets: Iterable[str] = ()) -> Compressor:
    """The compressor that a composition spells out.

    spec: what the user wrote, for messages. presets: names to offer where the first stage is unknown.
    """
    first, *rest = (part.strip() for part in composition.split("+"))
    kinds, made = ["selector"], [_made(spec, first, STAGES["selector"], settings, None, presets)]
    for text in rest:
        name = text.partition(":")[0]
        kind = next((kind for kind, stages in STAGES.items() if name in stages), None)
        if kind in kinds or (kind == "compensation" and "codec" in kinds):
            raise ValueError(f"compressor={spec}: '{name}' comes twice or too late; write {GRAMMAR}")
        known = STAGES[kind] if kind else STAGES["compensation"] | STAGES["codec"]
        made.append(_made(spec, text, known, settings, made[0]))
        kinds.append(kind)
    stages = dict(zip(kinds, made, strict=True))
    return Compressor(stages["selector"], stages.get("compensation"), stages.get("codec", Plain()), settings)


def _made(
    spec: str,
    text: str,
    known: Mapping[str, Stage],
    settings: RelaySettings,
    selector: Selector | None,
    more: Iterable[str] = (),
) -> Any:
    name, *pairs = text.split(":")
    if name not in known:
        raise ValueError(f"compressor={spec}: unknown {nearest(name, (*known, *more))}")
    options = dict(_option(spec, name, pair) for pair in pairs)
    for key in options:
        if key not in known[name].options:
            raise ValueError(f"compressor={spec}: unknown option of {name}: {nearest(key, known[name].options)}")
    try:
        return known[name].make(options, selector, settings)
    except ValueError as error:
        raise ValueError(f"compressor={spec}: {error}") from None


def _option(spec: str, name: str, pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise ValueError(f"compressor={spec}: '{pair}' is no option of {name}; write {name}:key=value")
    return key.strip(), check.number(value)


def _selector(row: Selector) -> Stage:
    def make(options: Options, _: Selector | None, settings: RelaySettings) -> Selector:
        per_head = options.get("per_head", row.per_head)
        check.choice("per_head", per_head, (True, False))
        adaptive = settings.allocation == "adaptive"
        if adaptive and (row.fixed is not None or not per_head):
            raise ValueError(
                f"allocation=adaptive: {row.stage} has no set per head to allocate; use headwise, or "
                f"{'allocation=uniform' if row.fixed is not None else f'{row.stage}:per_head=true'}"
            )
        for name in ("history_budget", "latent_budget"):
            if row.fixed is not None and getattr(settings, name) is not None:
                raise ValueError(f"{name}={getattr(settings, name)}: {row.stage} ranks nothing; leave {name} out")
        return replace(row, per_head=per_head, adaptive=adaptive)

    return Stage(row.about, make, ("per_head",) if row.fixed is None else ())


def _backfill(options: Options, selector: Selector | None, settings: RelaySettings) -> Backfill:
    base = HEADWISE_RANK if selector.per_head else LAYERWISE_RANK
    rank = options.get("rank", settings.pca_rank)
    check.rank("rank", rank, ("auto", "all", "evr"))
    for name in ("projection", "scale"):
        check.choice(name, options.get(name, True), (True, False))
    check.choice("inject", options.get("inject", INJECTIONS[0]), INJECTIONS)
    # the settings know what is allowed for the rest
    settings = replace(
        settings,
        svd=options.get("svd", settings.svd),
        evr_tau=options.get("tau", settings.evr_tau),
        evr_cap=options.get("cap", settings.evr_cap),
    )
    return Backfill(
        rank=base if rank is None else rank,
        base=base,
        project=options.get("projection", True),
        scale=options.get("scale", True),
        inject=options.get("inject", INJECTIONS[0]),
        svd=settings.svd,
        tau=settings.evr_tau,
        cap=settings.evr_cap,
    )


STAGES: dict[str, dict[str, Stage]] = {
    "selector": {name: _selector(row) for name, row in SELECTORS.items()},
    "compensation": {
        "obf": Stage(
            "orthogonal backfill: what the kept values cannot express of the dropped ones is added to them",
            _backfill,
            ("rank", "projection", "scale", "inject", "svd", "tau", "cap"),
        ),
        "merge": Stage("dropped values are averaged into the kept ones of the most similar key", lambda *_: Merge()),
    },
    "codec": {
        name: Stage(f"min-max quantisation of keys and values, {codec.bits} bits each", lambda *_, codec=codec: codec)
        for name, codec in CODECS.items()
    },
}
