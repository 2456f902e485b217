"""HFLM as the chain needs it loaded: a decoder-only causal LM on the chain's attention function."""

from __future__ import annotations

from typing import Any

import transformers
from lm_eval.models.huggingface import HFLM

from lm_eval_latentmas import attention
from lm_eval_latentmas.config import is_known
from lm_eval_latentmas.gguf_tokenizer import mend
from lm_eval_latentmas.model_adapters import adapter_class


class LoadedLM(HFLM):
    """What of HFLM's loading is not as HFLM has it. ``_attention`` must be set before HFLM loads anything."""

    _attention: str

    def _get_backend(self, config: Any, backend: str = "default", trust_remote_code: bool | None = False) -> None:
        """Refuse, before weights load, what cannot run the chain."""
        super()._get_backend(config=config, backend=backend, trust_remote_code=trust_remote_code)
        if self.backend != "causal":
            raise ValueError(
                f"model_type '{config.model_type}': the chain needs a decoder-only causal LM, not {self.backend}"
            )
        adapter_class(config)

    def _get_accelerate_args(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Where weights go; Accelerate's name for the CPU of several processes is one that older readers refuse."""
        placed = super()._get_accelerate_args(*args, **kwargs)
        if placed.get("device_map") == {"": "cpu:0"}:
            placed["device_map"] = {"": "cpu"}
        return placed

    def _create_tokenizer(self, pretrained: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super()._create_tokenizer(pretrained, tokenizer, *args, **kwargs)
        if kwargs.get("gguf_file") and not tokenizer:
            mend(self.tokenizer, self.config)

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        super()._create_model(*args, **(kwargs | {"attn_implementation": self._attention}))

    @property
    def max_length(self) -> int:
        """Positions of a context: as given, or those of the config's text part, which older lm-eval passes over."""
        own = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return self._max_length or own or super().max_length


def attention_name(loading: dict[str, Any]) -> str:
    """Our attention function for the implementation asked for."""
    asked = loading.pop("attn_implementation", None) or "sdpa"
    if asked not in attention.NAMES:
        raise ValueError(f"attn_implementation={asked}: the chain runs on {', '.join(attention.NAMES)}; leave it out")
    return attention.NAMES[asked]


def config_fields(pretrained: Any, arguments: dict[str, Any]) -> list[str]:
    """Fields of the model's own config, read only where an argument might be one."""
    if not isinstance(pretrained, str) or all(is_known(name, HFLM) for name in arguments):
        return []
    loading = {
        name: arguments[name]
        for name in ("revision", "subfolder", "trust_remote_code", "gguf_file")
        if name in arguments
    }
    return list(transformers.AutoConfig.from_pretrained(pretrained, **loading).to_dict())


def named(pretrained: Any) -> str:
    """A model as the results tell of it."""
    return pretrained if isinstance(pretrained, str) else f"{type(pretrained).__name__} object"
