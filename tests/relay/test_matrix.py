"""What holds for every selector with every compensation and every codec."""

from __future__ import annotations

import pytest
import torch
from segments import alone, assert_same, compress, follow, segment

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.presets import PRESETS
from lm_eval_latentmas.relay.selectors import SELECTORS

CODECS = ["", "+int8", "+int4"]
VARIANTS = ["obf:inject=attention", "obf:inject=per-token", "obf:rank=evr", "obf:rank=all"]
METHODS = [selector + compensation for selector in SELECTORS for compensation in ("", "+obf", "+merge")]
METHODS += [f"{selector}+{variant}" for selector in ("headwise", "layerwise") for variant in VARIANTS]
EVERYTHING = [method + codec for method in METHODS for codec in CODECS]
BUDGETS = [
    {"kv_budget": 0},
    {"kv_budget": 1},
    {"kv_budget": 0.25},
    {"kv_budget": 1000},
    {"history_budget": 3, "latent_budget": 1},
    {"history_budget": 0.5, "latent_budget": 0},
    {"pca_rank": 0},
    {"pca_rank": 99},
    {"pca_rank": "auto"},
    {"pca_rank": 0.5},
    {"allocation": "adaptive"},
    {"allocation": "adaptive", "history_budget": 4, "latent_budget": 2},
]


@pytest.mark.parametrize("spec", EVERYTHING)
def test_rows_do_not_depend_on_their_batch(spec: str) -> None:
    given = segment(history=(8, 0, 5))
    relay = compress(spec, given)
    for row in range(3):
        assert_same(compress(spec, alone(given, row)), relay.row(row), exact=False)


@pytest.mark.parametrize("spec", EVERYTHING)
def test_relays_cross_the_wire_bit_for_bit(spec: str) -> None:
    relay = compress(spec, segment(dtype=torch.bfloat16))
    for row in range(3):
        message = wire.encode(relay.row(row), fingerprint="model")
        assert len(message) == relay.message_bytes(row)
        assert_same(wire.decode(message, fingerprint="model"), relay.row(row))


@pytest.mark.parametrize("budgets", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "spec", ["headwise+obf", "headwise+obf:inject=per-token+int8", "headwise+merge", "random:per_head=true+obf+int4"]
)
def test_every_budget_works_over_two_hops(spec: str, budgets: dict) -> None:
    first = compress(spec, segment(), **budgets)
    given = follow(first, (9, 12, 1), (2, 2, 2))
    second = compress(spec, given, **budgets)
    for row in range(3):
        assert_same(compress(spec, alone(given, row), **budgets), second.row(row), exact=False)
        message = wire.encode(second.row(row), fingerprint="model")
        assert len(message) == second.message_bytes(row)
        assert_same(wire.decode(message, fingerprint="model"), second.row(row))
    assert_same(Relay.join([second.row(row) for row in range(3)]), second)


@pytest.mark.parametrize("spec", EVERYTHING)
def test_reading_changes_nothing_and_shares_nothing(spec: str) -> None:
    given = segment()
    relay = compress(spec, given)
    before = [relay.layer(layer) for layer in range(relay.layers)]
    copies = [(keys.clone(), values.clone()) for keys, values in before]
    for keys, values in zip(given.keys, given.values, strict=True):
        keys.fill_(torch.nan)
        values.fill_(torch.nan)
    for layer, (keys, values) in enumerate(copies):
        assert torch.equal(relay.layer(layer)[0], keys)
        assert torch.equal(relay.layer(layer)[1], values)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_stand_for_their_composition(preset: str) -> None:
    given = segment()
    assert_same(compress(preset, given), compress(PRESETS[preset][0], given))


def test_a_failed_factorisation_names_layer_and_row() -> None:
    given = segment()
    given.values[1][0, :, 4:9] = torch.inf
    with pytest.raises(RuntimeError, match=r"factorisation failed in the prompt states.*not finite: layer 1, row 0"):
        compress("l-obf", given)
