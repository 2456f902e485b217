"""Granite and Cohere: the head's output is scaled before it is a logit."""

from __future__ import annotations

from torch import Tensor

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class Granite(ModelAdapter):
    """The decoder scales embeddings, attention and residuals; the division of the logits is here."""

    def logits(self, hidden: Tensor) -> Tensor:
        """As the base class, divided by ``logits_scaling``."""
        return super().logits(hidden) / self.config.logits_scaling


class Cohere(ModelAdapter):
    """Command R (``cohere``) and Command R7B (``cohere2``, local and global layers)."""

    def logits(self, hidden: Tensor) -> Tensor:
        """As the base class, times ``logit_scale``."""
        return super().logits(hidden) * self.config.logit_scale
