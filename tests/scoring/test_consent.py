"""Consent is asked once, and everything that is missing is named with it."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.scoring import consent
from lm_eval_latentmas.scoring.consent import check_consent


def without(monkeypatch, *missing: str) -> None:
    monkeypatch.setattr(consent, "find_spec", lambda name: None if name in missing else object())


def test_tasks_without_code_need_no_consent(monkeypatch):
    without(monkeypatch, "evalplus")
    check_consent(["latentmas_gsm8k", "gsm8k", "mbpp"], confirmed=False)


@pytest.mark.parametrize(
    "task",
    ["latentmas_mbpp_plus", "latentmas_humaneval_plus", "latentmas_coding", "latentmas_suite", "latentmas_*plus"],
)
def test_tasks_groups_and_patterns_with_code_need_consent(task, monkeypatch):
    without(monkeypatch)
    with pytest.raises(ValueError, match=r"--confirm_run_unsafe_code"):
        check_consent(["latentmas_gsm8k", task], confirmed=False)
    check_consent(["latentmas_gsm8k", task], confirmed=True)


def test_all_that_is_missing_is_in_one_message(monkeypatch):
    without(monkeypatch, "evalplus", "resource")
    with pytest.raises(ValueError, match=r"confirm_run_unsafe_code.*lm-eval-latentmas\[code\].*limit processes"):
        check_consent(["latentmas_suite"], confirmed=False)
    with pytest.raises(ValueError, match=r"lm-eval-latentmas\[code\]"):
        check_consent(["latentmas_suite"], confirmed=True)
