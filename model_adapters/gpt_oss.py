"""gpt-oss: a thought is a message of its own; sink logits reach the attention function as an argument."""

from __future__ import annotations

from lm_eval_latentmas.model_adapters.base import ModelAdapter


class GptOss(ModelAdapter):
    """Messages go to channels: what is said aloud is that of the channel ``final``, and all before it is thought."""

    thought = ("<|channel|>", "<|channel|>final<|message|>")
    answers_apart = True
    turn_ends = ("<|return|>", "<|call|>")
