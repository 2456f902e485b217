"""The composition grammar: what it reads, what it refuses and how it says so."""

from __future__ import annotations

import re

import pytest
import torch
from lm_eval.utils import simple_parse_args_string
from segments import assert_same, compress, segment

from lm_eval_latentmas.relay.compensation import Backfill
from lm_eval_latentmas.relay.presets import PRESETS, compressor, table
from lm_eval_latentmas.relay.selectors import SELECTORS
from lm_eval_latentmas.relay.settings import RelaySettings

NAMES = {
    "l-obf": "layerwise+obf:rank=4",
    "h-obf": "headwise+obf:rank=2",
    "layerwise:per_head=true+obf": "layerwise:per_head=true+obf:rank=2",
    "l-obf-int8": "layerwise+obf:rank=4+int8",
    "l-obf:rank=8+int4": "layerwise+obf:rank=8+int4",
    "h-obf-naive": "headwise+obf:rank=all:projection=false:scale=false",
    "l-obf-evr:tau=0.5": "layerwise+obf:rank=evr:tau=0.5:cap=32",
    "layerwise+obf:rank=auto:inject=per-token": "layerwise+obf:rank=auto:inject=per-token",
    "full+int4": "full+int4",
}


@pytest.mark.parametrize(("spec", "name"), NAMES.items())
def test_a_compressor_knows_its_composition(spec: str, name: str) -> None:
    assert compressor(spec, RelaySettings()).name == name
    assert compressor(name, RelaySettings()).name == name


@pytest.mark.parametrize("spec", [*NAMES, *PRESETS, *SELECTORS, "my_package.module:MyCompressor"])
def test_a_composition_survives_the_harness_argument_parser(spec: str) -> None:
    arguments = simple_parse_args_string(f"pretrained=x,compressor={spec},kv_budget=32")
    assert arguments == {"pretrained": "x", "compressor": spec, "kv_budget": 32}


REFUSED = {
    "hedwise": "unknown 'hedwise'; did you mean 'headwise'",
    "l-obv": "did you mean 'l-obf'",
    "layerwise+ofb": "unknown 'ofb'; did you mean 'obf'. Known: int4, int8, merge, obf",
    "layerwise+obf:rnk=2": "unknown option of obf: 'rnk'; did you mean 'rank'",
    "layerwise+int8+obf": "'obf' comes twice or too late; write SELECTOR",
    "layerwise+obf+merge": "'merge' comes twice or too late",
    "layerwise+headwise": "'headwise' comes twice or too late",
    "layerwise+obf:rank": "'rank' is no option of obf; write obf:key=value",
    "layerwise+obf:rank=-1": "rank=-1: a rank is 0 or more",
    "layerwise+obf:rank=2.5": "rank=2.5",
    "layerwise+obf:projection=7": "projection=7: allowed are true, false",
    "layerwise+obf:inject=all": "inject=all: allowed are uniform, attention, per-token",
    "layerwise+obf:tau=7": "evr_tau=7",
    "layerwise+obf:cap=0": "evr_cap=0",
    "layerwise+obf:svd=quick": "svd=quick: allowed are fast, exact",
    "full:per_head=true": "unknown option of full",
    "layerwise+int8:bits=3": "unknown option of int8",
    "no_such_module.at_all:Thing": "cannot be loaded .*write my_package.module:Name",
    "collections:NoSuchThing": "cannot be loaded",
    "json:loads": "loads must take the RelaySettings alone",
    "": "unknown ''",
}


@pytest.mark.parametrize(("spec", "message"), REFUSED.items())
def test_a_wrong_composition_is_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        compressor(spec, RelaySettings())
    assert "\n" not in str(refusal.value)


WRONG_VALUES = {
    "l-obf:rank=foo": "rank=foo: a rank is 0 or more, a share between 0 and 1 of the kept budget, or one of auto, all",
    "l-obf:rank=-1": "rank=-1: a rank",
    "l-obf:projection=maybe": "projection=maybe: allowed are true, false",
    "h-obf:inject=x+int8": "inject=x: allowed are uniform, attention, per-token",
    "headwise+obf:tau=7": "evr_tau=7: a share",
    "headwise:per_head=3": "per_head=3: allowed",
}


@pytest.mark.parametrize(("spec", "message"), WRONG_VALUES.items())
def test_a_wrong_value_is_refused_together_with_the_composition_that_holds_it(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"compressor={spec}: {message}")):
        compressor(spec, RelaySettings())


CHANGED = {"kv_budget": 8, "sink_size": 2, "pca_rank": 3, "svd": "exact", "evr_tau": 0.5, "evr_cap": 9}


@pytest.mark.parametrize(
    ("spec", "unread"),
    [
        ("full", ["kv_budget", "pca_rank", "svd", "evr_tau", "evr_cap"]),
        ("gen+int8", ["kv_budget", "pca_rank", "svd", "evr_tau", "evr_cap"]),
        ("headwise", ["pca_rank", "svd", "evr_tau", "evr_cap"]),
        ("merge", ["pca_rank", "svd", "evr_tau", "evr_cap"]),
        ("h-obf", ["evr_tau", "evr_cap"]),
        ("h-obf:rank=5", ["pca_rank", "evr_tau", "evr_cap"]),
        ("l-obf-evr", ["pca_rank"]),
        ("l-obf-evr:tau=0.9:svd=fast", ["pca_rank", "svd", "evr_tau"]),
    ],
)
def test_settings_that_a_compressor_does_not_follow_are_known(spec: str, unread: list[str]) -> None:
    assert compressor(spec, RelaySettings(**CHANGED)).unread == unread
    assert compressor(spec, RelaySettings()).unread == []


@pytest.mark.parametrize(
    ("rank", "ranks"),
    [
        (3, [3, 3, 1]),
        ("auto", [4, 2, 1]),
        (0.1, [3, 2, 1]),
        ("all", [64] * 3),
        ("evr", [32] * 3),
        (99, [32, 16, 1]),
        (0, [0] * 3),
    ],
)
def test_ranks_follow_the_states_that_a_row_keeps(rank: int | float | str, ranks: list[int]) -> None:
    assert Backfill(rank=rank, base=4).ranks((32, 16, 1), 64) == ranks


def test_a_rank_above_the_budget_is_clamped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clamped = compress("l-obf", segment(), pca_rank=77)
    compress("l-obf", segment(), pca_rank=77)
    assert [record.getMessage() for record in caplog.records].count(
        "pca_rank=77: clamped to 5, the kept budget or the head size"
    ) == 1
    assert_same(clamped, compress("l-obf", segment(), pca_rank=5))


def test_svd_names_the_same_correction() -> None:
    fast, exact = (compress("h-obf", segment(size=96), svd=svd) for svd in ("fast", "exact"))
    for layer in range(2):
        torch.testing.assert_close(fast.layer(layer)[1], exact.layer(layer)[1], atol=1e-5, rtol=0)


class Whole:
    """A compressor of the user's own: everything."""

    mass = "none"

    def __init__(self, settings: RelaySettings) -> None:
        self.full = compressor("full", settings)

    def __call__(self, given):
        return self.full(given)


def not_callable(settings: RelaySettings) -> int:
    return 3


def test_a_compressor_of_the_users_own() -> None:
    own = compressor(f"{__name__}:Whole", RelaySettings())
    assert own.name.startswith(f"{__name__}:Whole (")
    assert own.mass == "none"
    assert_same(own(segment()), compress("full", segment()))


def test_changed_code_of_the_users_own_is_another_compressor(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    names = []
    for module, body in (("mine", "return None"), ("copy_of_mine", "return None"), ("mine_changed", "return segment")):
        (tmp_path / f"{module}.py").write_text(
            f"def make(settings):\n    def compress(segment): {body}\n    return compress\n"
        )
        names.append(compressor(f"{module}:make", RelaySettings()).name)
    digests = [name.partition(" ")[2] for name in names]
    assert digests[0] == digests[1] != digests[2]


def test_a_users_factory_must_give_a_callable() -> None:
    with pytest.raises(ValueError, match="gave a int, not a callable"):
        compressor(f"{__name__}:not_callable", RelaySettings())


def test_the_table_lists_every_preset_and_stage() -> None:
    lines = table().splitlines()
    for name in (*PRESETS, *SELECTORS, "obf", "merge", "int8", "int4"):
        assert sum(f"`{name}`" in line.split("|")[1] + line.split("|")[2] for line in lines if line) >= 1
