"""Settings of the hand-off: what is allowed, and one line for what is not."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.relay.settings import RelaySettings

REFUSED = {
    "kv_budget": [-1, 1.0, 1.5, "many", True, None, float("nan")],
    "history_budget": [-2, 2.5, "x"],
    "latent_budget": [-2, 0.0],
    "sink_size": [-1, 0.5, None],
    "pca_rank": [-1, 1.5, "most", True],
    "svd": ["quick", None],
    "allocation": ["even"],
    "evr_tau": [0, 1.5, "x", None, True],
    "evr_cap": [0, 2.5],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_a_wrong_value_is_named_in_one_line(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}=") as refusal:
        RelaySettings(**{name: value})
    assert "\n" not in str(refusal.value)


def test_numbers_may_come_as_text() -> None:
    read = RelaySettings(kv_budget="0.1", sink_size="2", pca_rank="auto", history_budget="None", latent_budget="8")
    assert read == RelaySettings(kv_budget=0.1, sink_size=2, pca_rank="auto", latent_budget=8)


def test_a_budget_of_nothing_names_the_preset() -> None:
    with pytest.raises(ValueError, match="use compressor=gen to relay no prompt state"):
        RelaySettings(kv_budget=-1)
    assert RelaySettings(kv_budget=0).kv_budget == 0
