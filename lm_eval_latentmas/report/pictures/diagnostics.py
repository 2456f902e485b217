"""Diagnostics by layer, and maps of the tokens that each layer kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arms import Arm
from ..diagnostics import MEASURES, Diagnostics, Prompt, kept_share, label, layer_means, prompts_with_selection
from .canvas import Picture, sheet, styles

_MOST_TOKENS = 100


def by_layer(diagnostics: Sequence[Diagnostics], arms: Sequence[Arm]) -> Picture | None:
    """Every measure over the layers, a line per arm with a band from the lower to the upper quartile."""
    measures = [m for m in MEASURES if any(m in d.measures for d in diagnostics)]
    if not measures:
        return None
    # a run directory that no arm names, because it was moved, goes by its folder
    look = styles(list(dict.fromkeys([*(arm.name for arm in arms), *(d.arm for d in diagnostics)])))
    figure, panels = sheet(len(measures), columns=3, size=(4.2, 3.0))
    for panel, measure in zip(panels, measures, strict=True):
        for held in (d for d in diagnostics if measure in d.measures):
            layers, means, low, high = layer_means(held, measure)
            style = look[held.arm]
            panel.plot(layers, means, color=style.colour, linestyle=style.line, label=held.arm)
            panel.fill_between(layers, low, high, color=style.colour, alpha=0.15, linewidth=0)
        panel.set_title(f"{label(measure)}: {MEASURES[measure]}", fontsize="small")
        panel.set_xlabel("layer")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
    names = ", ".join(d.arm for d in diagnostics)
    text = f"{', '.join(map(label, measures))} over the layers for {names}; bands are quartiles."
    return Picture("diagnostics", "Diagnostics by layer", text, figure)


def selection_maps(diagnostics: Sequence[Diagnostics]) -> Picture | None:
    """For the first document with known tokens: per arm, the share of each layer's heads that kept each token."""
    shown = [(held, prompts[0]) for held in diagnostics if (prompts := prompts_with_selection(held))]
    if not shown:
        return None
    first = shown[0][1]
    shown = [(held, first) for held, _ in shown if first in prompts_with_selection(held)]
    tokens = list(shown[0][0].tokens[first])
    shares = {held.arm: kept_share(held, prompt, len(tokens)) for held, prompt in shown}
    places = _most_kept(list(shares.values()))
    layers = max(len(share) for share in shares.values())
    figure, panels = sheet(len(shares), columns=1, size=(2 + 0.14 * len(places), 0.9 + 0.13 * layers))
    for panel, (arm, share) in zip(panels, shares.items(), strict=True):
        panel.imshow(share[:, places], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.set_title(arm, fontsize="small")
        panel.set_ylabel("layer")
        panel.set_xticks(range(len(places)), [_readable(tokens[p]) for p in places], rotation=90, fontsize=6)
    return Picture("selection", "Kept tokens by layer", _said(first, len(places), len(tokens)), figure)


def _most_kept(shares: list[np.ndarray]) -> np.ndarray:
    """The positions that the arms keep most often, in their order; all of them in a short prompt."""
    kept = sum(share.sum(axis=0) for share in shares)
    return np.sort(np.argsort(-kept, kind="stable")[:_MOST_TOKENS])


def _readable(token: str) -> str:
    # a dollar sign would begin a formula
    return token.replace("\n", "\\n").replace("$", r"\$") or "''"


def _said(prompt: Prompt, shown: int, tokens: int) -> str:
    task, doc_id, agent = prompt
    some = f"the {shown} most kept of {tokens}" if shown < tokens else f"all {tokens}"
    return f"{agent}'s prompt, {task}, document {doc_id}: {some} tokens; black was kept by all heads of the layer."
