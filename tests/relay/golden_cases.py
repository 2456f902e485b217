"""Golden files as segments: padded caches and the outputs that a compressor must give on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from lm_eval_latentmas.cache import Segment

FOLDER = Path(__file__).parent / "golden"
SELECTED_BY = {"merge": "layerwise", "l-obf": "layerwise", "h-obf": "headwise"}
STAGES = {
    "merge": "layerwise+merge",
    "l-obf": "layerwise+obf",
    "h-obf": "headwise+obf",
}
OPTIONS = {
    "max-p": ":rank=all",
    "naive": ":rank=all:projection=false:scale=false",
    "evr35": ":rank=evr:tau=0.35",
    "no-projection": ":projection=false",
    "no-scaling": ":scale=false",
    "inject-attention": ":inject=attention",
    "per-token": ":inject=per-token",
}


def composition(output: str) -> str:
    """An output's name, such as ``l-obf.rank4.no-scaling+int8``, in the composition grammar."""
    method, plus, codec = output.partition("+")
    base, *options = method.split(".")
    written = [f":rank={option[4:]}" if option.startswith("rank") else OPTIONS[option] for option in options]
    return STAGES.get(base, base) + "".join(written) + plus + codec


def selection_of(output: str) -> str:
    """The selector alone of an output's method."""
    base = output.partition("+")[0].partition(".")[0]
    return SELECTED_BY.get(base, base)


@dataclass(frozen=True)
class Golden:
    """One golden file; tensors are padded between prompt and latent, ours are dense."""

    path: Path
    meta: dict
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> Golden:
        with safe_open(path, "pt") as file:
            meta = json.loads(file.metadata()["meta"])
        return cls(path, meta, load_file(path))

    @property
    def outputs(self) -> list[str]:
        return sorted({name[4:].rsplit(".", 2)[0] for name in self.tensors if name.startswith("out.")})

    @property
    def spans_everything(self) -> bool:
        """The budget reaches the head size, so the kept values leave nothing outside their span."""
        return self.meta["kv_budget"] >= self.meta["head_dim"]

    def segment(self, *, pads_are_states: bool = False) -> Segment:
        """The cache at the hand-off; with ``pads_are_states`` every row's prompt is as long as the longest one."""
        m = self.meta
        rows, padded = m["batch"], self.tensors["prompt_mask"].shape[1]
        prompt = (padded,) * rows if pads_are_states else tuple(m["prompt_lengths"])
        slots = m["history"] + padded + m["latent_steps"]

        def mass(layer: int) -> Tensor:
            spread = torch.zeros(rows, m["kv_heads"], slots)
            spread[:, :, m["history"] : m["history"] + padded] = self.tensors[f"prompt_mass.{layer}"]
            return spread

        def dense(name: str, layer: int) -> Tensor:
            tensor = self.tensors[f"{name}.{layer}"]
            # what lies beyond a row's end must never matter
            poisoned = torch.full_like(tensor, torch.nan)
            for row, states in enumerate(tensor):
                states = states if pads_are_states else self.without_pads(states, row)
                poisoned[row, :, : states.shape[1]] = states
            return poisoned

        layers = range(m["layers"])
        return Segment(
            keys=tuple(dense("keys", layer) for layer in layers),
            values=tuple(dense("values", layer) for layer in layers),
            mass=tuple(mass(layer) for layer in layers),
            history=(m["history"],) * rows,
            prompt=prompt,
            latent=(m["latent_steps"],) * rows,
            sink=(m["sink_size"],) * rows,
            cursors=tuple(m["history"] + length + m["latent_steps"] for length in prompt),
            positions=tuple(torch.arange(slots, dtype=torch.int32).expand(rows, 1, slots) for _ in layers),
        )

    def expected(self, output: str, layer: int, row: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one row, (kv_heads, slots, head_dim), pads left out."""
        keys, values = (self.tensors[f"out.{output}.{name}.{layer}"][row] for name in ("keys", "values"))
        return self.without_pads(keys, row), self.without_pads(values, row)

    def without_pads(self, states: Tensor, row: int) -> Tensor:
        """(kv_heads, slots, head_dim) as it is, or without the pads where the slots are those of the padded cache."""
        if states.shape[1] != self.tensors["keys.0"].shape[2]:
            return states
        prompt = self.meta["history"] + self.meta["prompt_lengths"][row]
        return torch.cat((states[:, :prompt], states[:, states.shape[1] - self.meta["latent_steps"] :]), dim=1)


def files(folder: str | None) -> list[Path]:
    """The golden files of a folder, of the small ones beside the tests if none is given."""
    found = sorted(Path(folder or FOLDER).glob("*.safetensors"))
    if not found:
        raise FileNotFoundError(f"no golden *.safetensors files in {folder}")
    return found
