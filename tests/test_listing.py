"""The lists name what can be used, and nothing that can't."""

from __future__ import annotations

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_latentmas import listing
from lm_eval_latentmas.autoload import task_folder
from lm_eval_latentmas.cli import main
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings


def test_every_listed_task_is_one_of_lm_evals_and_every_one_of_ours_is_listed() -> None:
    manager = TaskManager(include_path=task_folder(), include_defaults=False)
    listed = {name for name, _ in listing.tasks()}
    assert listed == {name for name in manager.all_tasks if name.startswith("latentmas_")}


def test_every_listed_preset_and_selector_makes_a_compressor() -> None:
    names = [name for name, what in listing.compressors() if what.startswith(("preset", "selector"))]
    assert {"full", "gen", "headwise", "h-obf"} <= set(names)
    assert all(compressor(name, RelaySettings()) for name in names)


@pytest.mark.parametrize("command", sorted(listing.LISTS))
def test_lists_are_printed_one_a_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(listing.LISTS[command]())
    assert [line.split()[0] for line in lines] == [name for name, _ in listing.LISTS[command]()]
