"""Every operator gives the golden tensors: ``pytest tests/relay/test_golden.py --golden DIR``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
import torch
from golden_cases import Golden, composition, files, selection_of
from torch import Tensor

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings

read = lru_cache(Golden.read)

KINDS = {
    "output": lambda name: True,
    "unquantised": lambda name: "+" not in name,
    "compensated": lambda name: "+" not in name and ("obf" in name or name == "merge"),
    "quantised": lambda name: "+" in name,
}


def pytest_generate_tests(metafunc):
    for kind in KINDS.keys() & set(metafunc.fixturenames):
        paths = files(metafunc.config.getoption("--golden", None))
        cases = [(path, name) for path in paths for name in read(path).outputs if KINDS[kind](name)]
        metafunc.parametrize(("path", kind), cases, ids=[f"{path.stem}-{name}" for path, name in cases])


def compressed(golden: Golden, spec: str, *, svd: str = "fast", pads_are_states: bool = False) -> Relay:
    settings = RelaySettings(kv_budget=golden.meta["kv_budget"], sink_size=golden.meta["sink_size"], svd=svd)
    return compressor(spec, settings)(golden.segment(pads_are_states=pads_are_states))


def change(golden: Golden, output: str, layer: int) -> Tensor:
    """How far the output's values lie from those of its selector alone, (rows, kv_heads)."""
    values = compressed(golden, composition(output)).layer(layer)[1]
    selected = compressed(golden, selection_of(output)).layer(layer)[1]
    return (values - selected).abs().amax((-1, -2))


@pytest.mark.parametrize("svd", ["exact", "fast"])
def test_output_is_the_golden_one(path: Path, output: str, svd: str) -> None:
    golden = read(path)
    # the golden files quantise a full cache with its pads, which a relay never holds: here its rows get them as states
    relay = compressed(golden, composition(output), svd=svd, pads_are_states=output.startswith("full+"))
    for row in range(relay.rows):
        received = wire.decode(wire.encode(relay.row(row), fingerprint="golden"), fingerprint="golden")
        for layer in range(relay.layers):
            for ours, theirs in zip(received.layer(layer), golden.expected(output, layer, row), strict=True):
                torch.testing.assert_close(golden.without_pads(ours[0], row), theirs, atol=1e-4, rtol=0)


def test_keys_are_untouched(path: Path, unquantised: str) -> None:
    golden = read(path)
    relay, selected = compressed(golden, composition(unquantised)), compressed(golden, selection_of(unquantised))
    for layer in range(relay.layers):
        assert torch.equal(relay.layer(layer)[0], selected.layer(layer)[0])


def test_values_move_where_they_should(path: Path, compensated: str) -> None:
    golden = read(path)
    projects = "obf" in compensated and "naive" not in compensated and "no-projection" not in compensated
    moved = torch.stack([change(golden, compensated, layer) for layer in range(golden.meta["layers"])])
    if golden.spans_everything and projects:
        assert not moved.any()
    else:
        assert (moved > 1e-4).all()
        assert moved.max() > 1e-2


def test_quantised_states_take_the_room_of_their_bits(path: Path, quantised: str) -> None:
    golden = read(path)
    relay = compressed(golden, composition(quantised))
    plain = compressed(golden, composition(quantised.partition("+")[0]))
    for packed, exact in zip(relay.parts, plain.parts, strict=True):
        for name in ("keys", "values"):
            assert packed[name].nbytes * 32 == exact[name].nbytes * int(quantised[-1])
