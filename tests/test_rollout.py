"""Prefill and latent steps over ragged rows equal the dense model, row by row."""

import pytest
import torch
from tiny import byte_tokenizer, tiny_model

from lm_eval_latentmas import rollout
from lm_eval_latentmas.live import LiveCache
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.rollout import LatentSpace, NonFiniteState, prefill, read, step, think

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [40, 41, 42], [99, 98, 97, 96, 95]]


@pytest.fixture(scope="module")
def adapter():
    return ModelAdapter(tiny_model(), byte_tokenizer())


def fresh(adapter, rows):
    return LiveCache(adapter.layers, rows)


@torch.no_grad()
def test_prefill_seeds_with_the_state_at_the_last_real_token(adapter):
    cache = fresh(adapter, 3)
    hidden = prefill(adapter, cache, PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        dense = adapter.model.model(torch.tensor([prompt])).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[row], dense, atol=1e-5, rtol=1e-5)
    assert cache.lengths == [7, 3, 5]
    assert cache.cursors == [7, 3, 5]


@torch.no_grad()
def test_two_prefills_equal_one_dense_forward(adapter):
    cache = fresh(adapter, 3)
    prefill(adapter, cache, PROMPTS)
    second = [[1, 2], [3, 4, 5, 6], [7]]
    hidden = prefill(adapter, cache, second)
    for row in range(3):
        dense = adapter.model.model(torch.tensor([PROMPTS[row] + second[row]])).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[row], dense, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_latent_steps_equal_the_dense_model_fed_with_the_same_vectors(adapter):
    space = LatentSpace.of(adapter, realign=False)
    cache = fresh(adapter, 3)
    hidden = prefill(adapter, cache, PROMPTS)
    fed = []
    for _ in range(3):
        fed.append(space.to_input(hidden))
        hidden = step(adapter, cache, fed[-1])
    for row, prompt in enumerate(PROMPTS):
        embeds = torch.cat([adapter.embed(torch.tensor(prompt)), *(vector[row : row + 1] for vector in fed)])
        dense = adapter.model.model(inputs_embeds=embeds[None]).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[row], dense, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_fed_vector_has_the_mean_norm_of_the_embeddings(adapter):
    space = LatentSpace.of(adapter, realign=False)
    vector = space.to_input(torch.randn(4, 64) * 7)
    expected = adapter.embeddings.weight.norm(dim=-1).mean()
    torch.testing.assert_close(vector.norm(dim=-1), expected.expand(4), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_realignment_is_the_ridge_solution(adapter):
    out, into = adapter.head.weight.double(), adapter.embeddings.weight.double()
    gram = out.T @ out + 1e-5 * torch.eye(64, dtype=torch.float64)
    expected = torch.linalg.inv(gram) @ out.T @ into
    torch.testing.assert_close(adapter.realignment().double(), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(expected, torch.eye(64, dtype=torch.float64), atol=0.1)


@torch.no_grad()
def test_mass_equals_the_eager_attention_of_the_latent_queries(adapter):
    eager = tiny_model(attention="eager")
    space = LatentSpace.of(adapter, realign=False)
    cache = fresh(adapter, 3)
    hidden = prefill(adapter, cache, PROMPTS)
    cache.track_mass()
    fed = []
    for _ in range(4):
        fed.append(space.to_input(hidden))
        hidden = step(adapter, cache, fed[-1])
    for row, prompt in enumerate(PROMPTS):
        embeds = torch.cat([adapter.embed(torch.tensor(prompt)), *(vector[row : row + 1] for vector in fed)])
        weights = eager.model(inputs_embeds=embeds[None], output_attentions=True).attentions
        for layer, layer_weights in enumerate(weights):
            queries = layer_weights[0, :, len(prompt) :]  # (heads, 4, slots)
            expected = queries.reshape(2, 2, 4, -1).sum(dim=(1, 2))
            mass = cache.mass[layer][row]
            torch.testing.assert_close(mass[:, : expected.shape[-1]], expected, atol=1e-5, rtol=1e-5)
            assert mass[:, expected.shape[-1] :].abs().sum() == 0


@torch.no_grad()
def test_rubbish_behind_a_row_changes_nothing(adapter):
    def run(poison):
        cache = fresh(adapter, 3)
        hidden = prefill(adapter, cache, PROMPTS)
        if poison:
            for buffers in (cache.keys, cache.values):
                for buffer in buffers:
                    for row, length in enumerate(cache.lengths):
                        buffer[row, :, length:] = torch.randn_like(buffer[row, :, length:]) * 50
        space = LatentSpace.of(adapter, realign=False)
        return think(adapter, cache, hidden, 3, space), prefill(adapter, cache, [[1, 2, 3], [4], [5, 6]])

    for clean, poisoned in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(clean, poisoned, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_a_non_finite_state_names_row_and_step(adapter):
    cache = fresh(adapter, 3)
    hidden = prefill(adapter, cache, PROMPTS)
    hidden[1] = float("nan")
    with pytest.raises(NonFiniteState) as error:
        think(adapter, cache, hidden, 2, LatentSpace.of(adapter, realign=False))
    assert (error.value.row, error.value.step) == (1, 0)
    assert "task demo, agent critic" in str(error.value.at("task demo, agent critic"))


@torch.no_grad()
@pytest.mark.parametrize("room", [0, 40])
def test_rows_can_leave_and_come(adapter, room):
    cache = fresh(adapter, 3)
    cache.reserve(room)
    prefill(adapter, cache, PROMPTS)
    cache.drop_row(0)  # the last row takes its place
    new = cache.opened([None, None], [0, 0], reserve=room)
    prefill(adapter, new, [[20, 21, 22, 23], [30, 31]])
    cache.take_in(new)
    cache.drop_row(3)
    hidden = prefill(adapter, cache, [[1, 2], [3], [4, 5]])
    assert cache.rows == 3
    for row, tokens in enumerate([[*PROMPTS[2], 1, 2], [*PROMPTS[1], 3], [20, 21, 22, 23, 4, 5]]):
        dense = adapter.model.model(torch.tensor([tokens])).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[row], dense, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_branch_begins_with_copies(adapter):
    cache = fresh(adapter, 3)
    prefill(adapter, cache, PROMPTS)
    other = cache.branch([2, 0, 2], reserve=4)
    before = [keys.clone() for keys in cache.keys]
    hidden = prefill(adapter, other, [[1, 2], [3], [4, 5]])
    assert all(map(torch.equal, before, cache.keys))
    for row, tokens in enumerate([[*PROMPTS[2], 1, 2], [*PROMPTS[0], 3], [*PROMPTS[2], 4, 5]]):
        dense = adapter.model.model(torch.tensor([tokens])).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[row], dense, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_step_is_the_same_whether_or_not_its_mass_is_asked_for(adapter):
    def run(tracked):
        cache = fresh(adapter, 3)
        hidden = prefill(adapter, cache, PROMPTS)
        if tracked:
            cache.track_mass()
        for _ in range(3):
            hidden = step(adapter, cache, hidden)
        return hidden

    assert torch.equal(run(True), run(False))


@torch.no_grad()
@pytest.mark.parametrize(("most", "least"), [(1, 3), (1, 4), (12, 3)])
def test_prompts_read_in_pieces_leave_what_one_pass_leaves(adapter, monkeypatch, most, least):
    second = [[1, 2], [3, 4, 5, 6, 7, 8], [9]]
    widths = []

    def counted(embeds, positions, cache):
        widths.append(embeds.shape[1])
        return ModelAdapter.forward(adapter, embeds, positions, cache)

    def run():
        cache = fresh(adapter, 3)
        found = [prefill(adapter, cache, PROMPTS)]
        with cache.looking_ahead():
            states = read(adapter, cache, second)
        for row, tokens in enumerate(second):
            found += [states[row, : len(tokens)], *(queries[row, :, : len(tokens)] for queries in cache.queries)]
        found += [mass[:, :, :7] for mass in cache.mass]
        return [*found, prefill(adapter, cache, second)], cache

    monkeypatch.setattr(adapter, "forward", counted)
    whole, _ = run()
    assert widths == [7, 6, 6]
    widths.clear()
    monkeypatch.setattr(rollout, "TOKENS", most)
    monkeypatch.setattr(rollout, "WIDTH", least)
    pieces, cache = run()
    assert len(widths) > 3
    assert max(widths) <= max(least, most // 3)
    assert min(widths) > 1  # a pass over one token a row counts as a latent step
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert cache.lengths == cache.cursors == [9, 9, 6]
