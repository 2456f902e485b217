"""Devices and batch sizes: what lm-eval understands passes, what it would mistake is refused."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.machine import check_machine


@pytest.mark.parametrize(
    "loading",
    [
        {},
        {"device": None},
        {"device": "cuda:0"},  # the command line's default, with a GPU or without
        {"device": "cpu", "batch_size": 8, "max_batch_size": 64},
        {"batch_size": "8"},
        {"batch_size": "auto", "max_batch_size": None},
        {"batch_size": "auto:4", "max_batch_size": "64"},
    ],
)
def test_what_the_harness_understands_passes(loading):
    check_machine(loading)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, None, "", "0", "auto:", "auto:0", "auto:x", "8 "])
def test_a_batch_of_no_rows_is_refused(rows):
    with pytest.raises(ValueError, match=r"batch_size=.*: give a whole number, 1 or more, auto, or auto:N"):
        check_machine({"batch_size": rows})


@pytest.mark.parametrize("device", ["gpu", "", "CPU", "meta", "cuda:99", "cuda:x"])
def test_a_device_that_is_not_here_is_refused_in_one_line(device):
    with pytest.raises(ValueError, match=f"^device={device}: ") as refusal:
        check_machine({"device": device})
    assert "\n" not in str(refusal.value)
