"""gpt-oss: a thought is a message of its own; sink logits reach the attention function as an argument."""

from __future__ import annotations

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class GptOss(ModelAdapter):
    """Messages go to channels, whose names are all that decoding shows of their markers."""

    thought = ("analysis", "assistantfinal")
    turn_ends = ("<|return|>", "<|call|>")
