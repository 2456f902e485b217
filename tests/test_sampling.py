"""Sampling: the standard nucleus, generation arguments as lm-eval means them, and draws that no neighbour changes."""

import pytest
import torch

from lm_eval_latentmas.sampling import Draws, Generation, next_tokens

PROBABILITIES = torch.tensor([0.05, 0.5, 0.15, 0.3])


def frequencies(count=4000, **limits):
    generation, draws = Generation(**({"temperature": 1.0} | limits)), Draws(3)
    rows = PROBABILITIES.log().expand(count, -1)
    tokens = next_tokens(rows, [generation] * count, [draws] * count)
    return torch.bincount(tokens, minlength=4) / count


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_p": 0.6}, [1, 3]),  # the token that crosses 0.6 stays
        ({"top_p": 0.81}, [1, 2, 3]),
        ({"top_p": 0.01}, [1]),
        ({"top_k": 3}, [1, 2, 3]),
        ({"min_p": 0.5}, [1, 3]),
    ],
)
def test_draws_follow_the_probabilities_of_what_is_kept(limits, kept):
    expected = torch.zeros(4)
    expected[kept] = PROBABILITIES[kept] / PROBABILITIES[kept].sum()
    found = frequencies(**limits)
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)
    assert (found[expected == 0] == 0).all()


def test_temperature_sharpens():
    sharp = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    torch.testing.assert_close(frequencies(temperature=0.5), sharp, atol=0.03, rtol=0)


def test_a_draw_ignores_neighbours_also_where_logits_tie():
    torch.manual_seed(0)
    generation = Generation(temperature=0.6, top_p=0.95)
    flat = torch.zeros(1, 20000)  # its nucleus is wider than what is sorted first
    for seed in range(60):
        row = (torch.randn(1, 20000) * 8).bfloat16().float()  # coarse logits tie
        alone = next_tokens(row, [generation], [Draws(seed)])
        beside = next_tokens(torch.cat([flat, row]), [generation] * 2, [Draws(99), Draws(seed)])
        assert beside[1:].tolist() == alone.tolist()


def test_a_nucleus_wider_than_what_is_sorted_first_is_whole():
    count = 4000
    generation, draws = Generation(temperature=1.0), Draws(5)
    tokens = next_tokens(torch.zeros(count, 3000), [generation] * count, [draws] * count)
    assert float((tokens >= 1500).sum()) / count == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, Generation()),
        ({"until": "a", "max_gen_toks": 5}, Generation(5, ("a",))),
        ({"until": ["", "b"], "max_new_tokens": 6}, Generation(6, ("b",))),
        ({"do_sample": True}, Generation(temperature=1.0)),
        ({"do_sample": False, "temperature": 0.7}, Generation()),
        ({"temperature": 0.6, "top_p": 0.95, "num_beams": 1}, Generation(temperature=0.6, top_p=0.95)),
    ],
)
def test_generation_arguments_are_read_as_the_harness_means_them(arguments, expected):
    assert Generation.of(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_q": 1}, "did you mean 'top_p'"),
        ({"num_beams": 4}, "num_beams=4: this decoder knows only num_beams=1"),
        ({"max_gen_toks": 0}, "max_gen_toks=0: allowed is 1 or more"),
        ({"top_p": 0.0}, "top_p=0.0: allowed is above 0, at most 1"),
        ({"temperature": -1}, "temperature=-1.0: allowed is 0"),
        ({"temperature": "warm"}, "temperature=warm: give a number"),
        ({"max_gen_toks": "many"}, "max_gen_toks=many: give a whole number"),
        ({"max_gen_toks": 1.5}, "max_gen_toks=1.5: give a whole number"),
        ({"top_k": "inf"}, "top_k=inf: give a whole number"),
        ({"do_sample": "maybe"}, "do_sample=maybe: allowed are true, false"),
    ],
)
def test_wrong_generation_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=r".*") as error:
        Generation.of(arguments)
    assert message in str(error.value)
