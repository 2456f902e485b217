"""What a run asks of the machine, checked before weights load: device and batch size, which lm-eval takes as given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

_UNASKED = "cuda:0"  # what lm-eval's command line hands on where no device was named, also without a GPU
_DEVICES = ("cpu", "cuda", "mps", "npu")  # lm-eval takes any other name for none at all, and the CPU for the device


def check_machine(loading: Mapping[str, Any]) -> None:
    """Refuse a ``device`` that PyTorch cannot use here, and a ``batch_size`` or ``max_batch_size`` of no rows.

    Raises ValueError in one line. What is not given is not checked.
    """
    if loading.get("device") is not None:
        name = str(loading["device"])
        if name != _UNASKED or torch.cuda.is_available():
            check_device(name, f"device={name}")
    if "batch_size" in loading and not re.fullmatch(r"[1-9]\d*|auto(:[1-9]\d*)?", str(loading["batch_size"])):
        raise ValueError(f"batch_size={loading['batch_size']}: give a whole number, 1 or more, auto, or auto:N")
    most = loading.get("max_batch_size")
    if most is not None and not re.fullmatch(r"[1-9]\d*", str(most)):
        raise ValueError(f"max_batch_size={most}: give a whole number, 1 or more")


def check_device(name: str, given: str) -> None:
    """Refuse a device that PyTorch cannot use here. given: what the error begins with."""
    if name.partition(":")[0] not in _DEVICES:
        raise ValueError(f"{given}: allowed are {', '.join(_DEVICES)}, also with a number, as in cuda:0")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts, an absent device is a RuntimeError
        cause = str(error).partition("\n")[0]
        raise ValueError(f"{given}: PyTorch cannot use it here ({cause}); give cpu, or another device") from error
