"""What a result must carry to be repeated: package versions, and a fingerprint of the weights that really ran."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from typing import Any

import torch

_SAMPLES = 16  # values looked at per parameter: enough to tell two checkpoints apart, cheap on any device


def versions() -> dict[str, str]:
    """Versions of everything whose change can change a text."""
    names = ("lm-eval-latentmas", "lm-eval", "torch", "transformers", "tokenizers")
    return {name: metadata.version(name) for name in names} | {"python": platform.python_version()}


@torch.no_grad()
def fingerprint(model: Any, tokenizer: Any) -> str:
    """SHA-256 over the config, a sample of every parameter, and the tokenizer's template and size."""
    digest = hashlib.sha256(model.config.to_json_string(use_diff=False).encode())
    for name, parameter in model.named_parameters():
        picked = _sample(model, name) if parameter.is_meta else _picked(parameter)
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(picked.numpy().tobytes())
    digest.update(f"{len(tokenizer)} {getattr(tokenizer, 'chat_template', None)}".encode())
    return digest.hexdigest()


def _picked(parameter: torch.Tensor) -> torch.Tensor:
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)].float().cpu()


def _sample(model: Any, name: str) -> torch.Tensor:
    """The same of a parameter that Accelerate keeps off the device; raises ValueError where nothing holds it."""
    from accelerate.utils import align_module_device, has_offloaded_params

    owner, _, own = name.rpartition(".")
    module = model.get_submodule(owner)
    if not has_offloaded_params(module):
        raise ValueError(f"weights: {name} was never loaded, so that this model cannot run; load it whole")
    with align_module_device(module, "cpu"):
        return _picked(getattr(module, own))
