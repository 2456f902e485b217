"""Where agents sit: a copy of the weights on its device, and what is worked out of it once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from lm_eval_latentmas.agents import PromptSet
from lm_eval_latentmas.machine import check_device
from lm_eval_latentmas.model_adapters import ModelAdapter
from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.prefix import Prefixes
from lm_eval_latentmas.rollout import LatentSpace


class Seat:
    """One copy of the weights, as the agents on it use it."""

    def __init__(self, adapter: ModelAdapter, *, realign: bool) -> None:
        self.adapter, self._realign = adapter, realign
        self.prefixes = Prefixes(adapter)

    @cached_property
    def space(self) -> LatentSpace:
        """How states are fed back."""
        return LatentSpace.of(self.adapter, realign=self._realign)


def agent_devices(text: str | None, prompts: PromptSet) -> dict[str, torch.device]:
    """The devices that ``agent_devices=NAME:DEVICE;NAME:DEVICE`` gives to agents, checked.

    Raises ValueError for an agent that the prompt set lacks, and for a device that PyTorch cannot use here.
    """
    devices: dict[str, torch.device] = {}
    known = [agent.name for agent in prompts.agents]
    for part in filter(None, (part.strip() for part in (text or "").split(";"))):
        name, _, device = (side.strip() for side in part.partition(":"))
        if not device:
            raise ValueError(f"agent_devices={text}: '{part}' names no device; write AGENT:DEVICE;AGENT:DEVICE")
        if name not in known:
            raise ValueError(f"agent_devices={text}: unknown agent {nearest(name, known)}")
        if name in devices:
            raise ValueError(f"agent_devices={text}: agent '{name}' is given two devices")
        check_device(device, f"agent_devices={text}: {device}")
        devices[name] = torch.empty(0, device=device).device  # by its full name: cuda is cuda:0
    if devices and prompts.side_by_side:
        raise ValueError(
            f"agent_devices={text}: the agents of a hierarchical prompt set work side by side, as rows of one batch; "
            "leave it out"
        )
    return devices


def check_alone(text: str | None, loading: Mapping[str, Any], processes: int) -> None:
    """Refuse ``agent_devices`` beside arguments that place the model themselves, and in several processes."""
    if not text:
        return
    placing = [name for name in ("parallelize", "device_map", "tp_plan") if loading.get(name)]
    if placing:
        raise ValueError(
            f"agent_devices={text}: {placing[0]}={loading[placing[0]]} spreads one copy of the model over devices, and "
            "agent_devices takes a copy per device; leave one of the two out"
        )
    if processes > 1:
        raise ValueError(
            f"agent_devices={text}: {processes} processes would share these devices; start one process, or share the "
            "agents out with pipeline=true"
        )


def placed(
    own: ModelAdapter, devices: Mapping[str, torch.device], copies: dict[torch.device, ModelAdapter], **arguments: Any
) -> dict[str, ModelAdapter]:
    """By agent, the adapter of the copy on its device; none is made where the model itself or a copy already is.

    copies: those there are, to which new ones are added. arguments: for their adapters, as for ``own``.
    """
    copies.setdefault(own.device, own)
    for device in devices.values():
        if device not in copies:
            copies[device] = type(own)(copied(own.model, device), own.tokenizer, **arguments)
    return {name: copies[device] for name, device in devices.items()}


def copied(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """A copy of a model on another device; weights go straight there, and tied ones stay tied."""
    for name, parameter in model.named_parameters():
        if type(parameter) is not torch.nn.Parameter:
            raise ValueError(f"agent_devices: weight '{name}' is quantised ({type(parameter).__name__}) and not copied")
    with torch.no_grad():
        there = {
            id(tensor): torch.nn.Parameter(tensor.detach().to(device, copy=True), requires_grad=False)
            for tensor in model.parameters()
        } | {id(tensor): tensor.to(device, copy=True) for tensor in model.buffers()}
        return copy.deepcopy(model, there).to(device).eval()
