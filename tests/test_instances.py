"""Requests as questions: what lm-eval's own cache makes of those that are sampled."""

from itertools import count

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM

from lm_eval_latentmas.instances import written


class Writer:
    """Reads requests as the model does, and never writes the same text twice."""

    def __init__(self):
        self.numbers = count()

    def set_cache_hook(self, hook):
        """The cache of the harness says that it is there."""

    def generate_until(self, requests):
        return [f"{question.repeat}: {next(self.numbers)}" for question in written(requests, 8)]


def requests(**generation):
    request = Instance("generate_until", {}, ("Why?", {"until": ["."], **generation}), 0, ("task", 0, 2))
    return [request, request]


@pytest.mark.parametrize("sampling", [{"temperature": 0.6}, {"temperature": 0.6, "do_sample": True}])
def test_the_harness_cache_replays_no_sampled_text(tmp_path, sampling):
    cached = CachingLM(Writer(), str(tmp_path / "cache"))
    assert cached.generate_until(requests(**sampling)) == ["0: 0", "1: 1"]
    assert cached.generate_until(requests(**sampling)) == ["0: 2", "1: 3"]


def test_the_harness_cache_replays_greedy_texts(tmp_path):
    cached = CachingLM(Writer(), str(tmp_path / "cache"))
    first = cached.generate_until(requests(temperature=0.6, do_sample=False)[:1])
    assert cached.generate_until(requests(temperature=0.6, do_sample=False)[:1]) == first
