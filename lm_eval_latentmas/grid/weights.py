"""The loaded model of a grid, handed on from cell to cell; loaded anew only where a cell's loading arguments differ."""

from __future__ import annotations

import gc
from typing import Any

from lm_eval.models.huggingface import HFLM

from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.config import is_known, own_arguments, split_arguments
from lm_eval_latentmas.grid.plan import Cell, Grid
from lm_eval_latentmas.launch import check_together, processes
from lm_eval_latentmas.model import LatentMASLM
from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.seats import agent_devices, check_alone


class Weights:
    """One model at a time: ``under(cell)`` gives it under a cell's settings."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._lm: LatentMASLM | None = None
        self._loading: dict[str, Any] = {}

    def under(self, cell: Cell) -> LatentMASLM:
        """The model under the cell's settings; those given before stay valid while their weights do."""
        own, loading = split(self.grid.arguments(cell))
        if self._lm is not None and loading == self._loading:
            return self._lm.with_settings(**own)
        # the old weights go before the new ones come
        self._lm = None
        gc.collect()
        place = {name: getattr(self.grid, name) for name in ("batch_size", "max_batch_size", "device")}
        self._lm = LatentMASLM(**own, **loading, **{name: value for name, value in place.items() if value is not None})
        self._loading = loading
        return self._lm


def split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The package's own arguments, and those that load the model."""
    own = own_arguments()
    return {k: v for k, v in arguments.items() if k in own}, {k: v for k, v in arguments.items() if k not in own}


def check_arguments(grid: Grid) -> None:
    """Refuse a wrong argument of any cell now, and not when its turn comes.

    Raises:
        ValueError: naming the cell, or the argument and what is allowed.
    """
    for cell in grid.cells:
        for name in cell.arguments:
            if not is_known(name, HFLM):
                raise ValueError(f"{cell.name}: unknown argument {nearest(name, own_arguments())}")
        own, loading = split(grid.arguments(cell))
        settings, _ = split_arguments(own, HFLM)
        compressor(settings.compressor, settings.hand_off)
        agent_devices(settings.agent_devices, load_prompts(settings.prompts))
        check_alone(settings.agent_devices, loading, processes())
        if not settings.pipeline:
            check_together(settings.relay, processes())
        elif len(grid.cells) > 1:
            raise ValueError(
                f"pipeline={settings.pipeline}: its processes are made with their settings, and one loaded model "
                f"serves all {len(grid.cells)} runs; leave it out, or start lm_eval once for each setting"
            )
