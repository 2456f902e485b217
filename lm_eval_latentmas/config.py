"""Model arguments as frozen settings: what is ours, what is lm-eval's, and what is nobody's and refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.relay.settings import RelaySettings, choice, count, number

#: Keyword arguments of ``from_pretrained`` that HFLM hands on without naming them itself.
_LOADING = frozenset(
    {
        *("attn_implementation", "cache_dir", "code_revision", "device_map", "force_download", "local_files_only"),
        *("low_cpu_mem_usage", "max_memory", "offload_buffers", "offload_state_dict", "token", "torch_dtype"),
        *("use_safetensors", "variant", "weights_only", "quantization_config", "load_in_4bit", "load_in_8bit"),
        *("bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant"),
    }
)


@dataclass(frozen=True)
class ChainSettings:
    """How the chain runs; every default of the package's own arguments stands here or in `RelaySettings`.

    compressor: a preset, a composition, or ``package.module:Name``.
    latent_steps: vectors fed back per thinking agent; 0 relays prompts alone.
    latent_realign: map states to the input-embedding space by the ridge map instead of the identity.
    positions: after an eviction the cursor counts all tokens ever read (``timeline``) or the states held (``compact``).
    prompts: a YAML file, or the name of a set that ships with the package (``default``, ``hierarchical``).
    mode: what the agents hand on: ``latent`` relays; ``text``, each decodes a message and the next ones read it; or
        ``single``, the judger works alone and nobody else runs.
    text_tokens: the most tokens of an agent's message, in mode ``text``.
    seed: of all draws; None takes torch's, which ``lm_eval --seed`` sets.
    run_dir: folder where finished samples are kept, so that a run can be resumed.
    relay: what the judger gets: its ``own`` relay; ``none`` (a control: it starts fresh and nobody thinks); or
        ``shuffled`` (a control: the relay of another document of the task, chosen by the seed).
    transport: ``memory``, or ``wire``: every hop is written as a message and read back.
    agent_devices: ``AGENT:DEVICE;AGENT:DEVICE``: agents that sit on a copy of the weights on another device.
    pipeline: share the agents out over the processes of the launch: ``True``, evenly and in order; or by name,
        ``planner+critic;refiner+judger``.
    pipeline_timeout: seconds without a sign of life after which a process of the pipeline counts as lost.
    compile: run the single-token step as one graph of ``torch.compile``, a CUDA graph on a GPU.
    diagnostics: write the operators' diagnostics of every hop to the run directory.
    """

    compressor: str = "h-obf"
    latent_steps: int = 40
    latent_realign: bool = False
    positions: str = "timeline"
    prompts: str | None = None
    mode: str = "latent"
    text_tokens: int = 512
    seed: int | None = None
    run_dir: str | None = None
    relay: str = "own"
    transport: str = "memory"
    agent_devices: str | None = None
    pipeline: bool | str = False
    pipeline_timeout: float = 600
    compile: bool = False
    diagnostics: bool = False
    hand_off: RelaySettings = field(default_factory=RelaySettings)

    def __post_init__(self) -> None:
        count("latent_steps", self.latent_steps, least=0)
        for name in ("prompts", "run_dir", "agent_devices", "pipeline"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}=: is empty; give a value, or leave {name} out")
        choice("positions", self.positions, ("timeline", "compact"))
        choice("latent_realign", self.latent_realign, (True, False))
        choice("mode", self.mode, ("latent", "text", "single"))
        count("text_tokens", self.text_tokens, least=1)
        choice("relay", self.relay, ("own", "none", "shuffled"))
        choice("transport", self.transport, ("memory", "wire"))
        choice("compile", self.compile, (True, False))
        choice("diagnostics", self.diagnostics, (True, False))
        if self.diagnostics and self.run_dir is None:
            raise ValueError("diagnostics=True: they are written to a run directory; give run_dir=FOLDER")
        if self.diagnostics and self.mode != "latent":
            raise ValueError(f"diagnostics=True: they are about relays, and mode={self.mode} has none")
        if self.mode == "single" and self.relay != "own":
            raise ValueError(f"relay={self.relay}: mode=single hands nothing on; leave one of the two out")
        self._check_places()
        if self.seed is not None:
            count("seed", self.seed, least=0)

    def _check_places(self) -> None:
        """Refuse what cannot be shared out over devices or processes."""
        if type(self.pipeline) not in (bool, str):
            raise ValueError(f"pipeline={self.pipeline}: give true, false, or shares by name, planner+critic;judger")
        if type(self.pipeline_timeout) not in (int, float) or not 0 < self.pipeline_timeout < float("inf"):
            raise ValueError(f"pipeline_timeout={self.pipeline_timeout}: give seconds, more than 0")
        for name in ("agent_devices", "pipeline"):
            value = getattr(self, name)
            if value and self.mode != "latent":
                raise ValueError(f"{name}={value}: moves relays, and mode={self.mode} has none; leave it out")
            if value and self.relay == "none":
                raise ValueError(f"{name}={value}: relay=none lets the judger work alone; leave one of the two out")
        if self.pipeline and self.agent_devices:
            raise ValueError(
                f"pipeline={self.pipeline}: a process has one device; leave agent_devices={self.agent_devices} out"
            )

    def idle(self) -> list[str]:
        """Settings that differ from their defaults and have no effect beside the others."""
        idle = [] if self.mode == "text" and self.relay != "none" else _changed(self, ("text_tokens",))
        idle += [] if self.pipeline else _changed(self, ("pipeline_timeout",))
        if self.mode != "latent" or self.relay == "none":
            idle += _changed(self, ("compressor", "latent_steps", "latent_realign", "positions", "transport"))
            idle += _changed(self.hand_off, (f.name for f in fields(RelaySettings)))
        return idle

    def shaping(self) -> dict[str, Any]:
        """The settings that change what comes out, as plain JSON; none of where it runs and what is kept of it.

        Without ``prompts``, too: their words count, and not the name of a file.
        """
        return {key: value for key, value in asdict(self).items() if key not in (*_PLACES, "prompts")}

    def places(self) -> dict[str, Any]:
        """Where agents run, as plain JSON: what is given of it."""
        return {name: value for name in ("agent_devices", "pipeline") if (value := getattr(self, name))}


_PLACES = ("run_dir", "diagnostics", "agent_devices", "pipeline", "pipeline_timeout")


def _changed(settings: ChainSettings | RelaySettings, names: Iterable[str]) -> list[str]:
    defaults = type(settings)()
    return [name for name in names if getattr(settings, name) != getattr(defaults, name)]


def own_arguments() -> dict[str, Any]:
    """The package's own arguments and their defaults, relay settings included."""
    own = {f.name: f.default for f in fields(ChainSettings) if f.name != "hand_off"}
    return own | {f.name: f.default for f in fields(RelaySettings)}


def _loading_arguments(base: type) -> set[str]:
    return (set(inspect.signature(base.__init__).parameters) - {"self", "kwargs"}) | _LOADING


def is_known(name: str, base: type) -> bool:
    """Whether an argument is the package's own, or one that ``base`` (HFLM) or ``from_pretrained`` takes."""
    return name in own_arguments() or name in _loading_arguments(base)


def split_arguments(
    given: Mapping[str, Any], base: type, *, config_fields: Iterable[str] = ()
) -> tuple[ChainSettings, dict[str, Any]]:
    """Part model arguments into the chain's settings and those of ``base`` (HFLM).

    config_fields: attributes of the model's own config, which ``from_pretrained`` lets a user override.
    Raises ValueError for an argument that neither knows, naming the nearest that one of them does.
    """
    own, theirs = own_arguments(), _loading_arguments(base)
    for name in given:
        if not is_known(name, base) and name not in set(config_fields):
            raise ValueError(f"unknown key in model_args: {nearest(name, own, theirs)}, and those of --model hf")
    mine = {name: number(value) for name, value in given.items() if name in own}
    relay_names = {f.name for f in fields(RelaySettings)}
    hand_off = RelaySettings(**{name: value for name, value in mine.items() if name in relay_names})
    chain = {name: value for name, value in mine.items() if name not in relay_names}
    for name in (
        "compressor",
        "prompts",
        "run_dir",
        "relay",
        "agent_devices",
    ):  # text, also where it reads as a number or None
        if name in chain and given[name] is not None:
            chain[name] = str(given[name])
    settings = ChainSettings(**chain, hand_off=hand_off)
    return settings, {name: value for name, value in given.items() if name not in own}
