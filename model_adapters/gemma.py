"""Gemma: a turn ends with a token of its own; Gemma 2 also soft-caps its logits."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class Gemma(ModelAdapter):
    """Gemma 1 and 3; the model itself scales embeddings, in their module or in the decoder."""

    turn_ends = ("<end_of_turn>",)


class Gemma2(Gemma):
    """Soft-capping inside of attention comes as an argument of the attention function; that of the logits is here."""

    def logits(self, hidden: Tensor) -> Tensor:
        """As the base class, within plus and minus ``final_logit_softcapping``."""
        cap = self.config.final_logit_softcapping
        logits = super().logits(hidden)
        return logits if cap is None else torch.tanh(logits / cap) * cap
