"""How many rows fit: counted with every agent's history, from memory that is there."""

from types import SimpleNamespace

import pytest
import torch

from lm_eval_latentmas import batching
from lm_eval_latentmas.sampling import Generation

ADAPTER = SimpleNamespace(bytes_per_state=1000, device=torch.device("cpu"))


def plan(*prompts, new_tokens=100):
    return SimpleNamespace(prompts=[range(n) for n in prompts], generation=Generation(max_gen_toks=new_tokens))


@pytest.fixture
def free(monkeypatch):
    def set_to(count):
        monkeypatch.setattr(batching, "free_bytes", lambda device: count)

    return set_to


def test_every_history_and_a_waiting_relay_are_counted(free):
    one = plan(50, 60, 70, 80)
    per_row = 2 * (50 + 60 + 70 + 80 + 3 * 40 + 100) * 1000
    for rows in (1, 2, 7):
        free(int(rows * per_row / batching._SHARE) + 1)
        assert batching.affordable_rows(ADAPTER, [one] * 9, 40, most=64) == rows
        free(int(rows * per_row / batching._SHARE) - 1)
        assert batching.affordable_rows(ADAPTER, [one] * 9, 40, most=64) == max(1, rows - 1)


def test_the_longest_sample_decides(free):
    short, long = plan(10, 10, 10, 10), plan(10, 10, 10, 10, new_tokens=10_000)
    free(10**8)
    alone = batching.affordable_rows(ADAPTER, [short] * 1000, 0, most=1000)
    assert batching.affordable_rows(ADAPTER, [short] * 999 + [long], 0, most=1000) < alone / 10


def test_rows_lie_between_one_and_what_there_is(free):
    free(0)
    assert batching.affordable_rows(ADAPTER, [plan(5, 5)] * 3, 4, most=8) == 1
    free(10**15)
    assert batching.affordable_rows(ADAPTER, [plan(5, 5)] * 3, 4, most=8) == 3
    assert batching.affordable_rows(ADAPTER, [plan(5, 5)] * 30, 4, most=8) == 8


def test_the_device_with_the_least_room_decides(monkeypatch):
    room = {"cpu": 10**15, "cuda:0": 10**15, "cuda:1": 0}
    monkeypatch.setattr(batching, "free_bytes", lambda device: room[str(device)])
    for devices, rows in (([], 8), (["cpu", "cuda:0"], 8), (["cpu", "cuda:1", "cuda:0"], 1)):
        others = [torch.device(name) for name in devices]
        assert batching.affordable_rows(ADAPTER, [plan(5, 5)] * 30, 4, most=8, devices=others) == rows


def test_a_container_that_may_take_less_decides(tmp_path, monkeypatch):
    limit, taken = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(batching, "_CGROUPS", ((str(limit), str(taken)),))
    whole = batching.free_bytes(torch.device("cpu"))
    assert whole > 2**20
    limit.write_text("9000\n")
    taken.write_text("2000\n")
    assert batching.free_bytes(torch.device("cpu")) == 7000
    taken.write_text("9500\n")
    assert batching.free_bytes(torch.device("cpu")) == 0
    limit.write_text("max\n")  # no limit
    assert batching.free_bytes(torch.device("cpu")) > 2**20
