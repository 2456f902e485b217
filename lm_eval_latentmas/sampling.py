"""How the next token is drawn: greedy, or the standard nucleus with a generator of its own for every sample."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lm_eval_latentmas.cache import on_device
from lm_eval_latentmas.naming import nearest

logger = logging.getLogger(__name__)

_HEADS = (64, 1024)  # tokens sorted first on a CPU: a nucleus rarely needs more, and sorting a vocabulary is slow
_ALIASES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
#: Arguments of ``generate`` that change nothing at these values, and are refused at any other.
_NEUTRAL = {"num_beams": 1, "repetition_penalty": 1.0, "typical_p": 1.0, "use_cache": True, "num_return_sequences": 1}


@dataclass(frozen=True)
class Generation:
    """The generation arguments of a request, checked. temperature 0 is greedy; top_k 0 and top_p 1 cut nothing."""

    max_gen_toks: int = 256
    until: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @classmethod
    def of(cls, arguments: dict[str, Any], *, default_max: int = 256) -> Generation:
        """Read a task's ``generation_kwargs`` as lm-eval means them.

        Raises ValueError for an unknown argument, a value out of range, or one this decoder does not have.
        """
        given = dict(arguments)
        until = given.pop("until", None) or []
        until = [until] if isinstance(until, str) else list(until)
        lengths = [_read(int, name, value) for name in _ALIASES if (value := given.pop(name, None)) is not None]
        sample = given.pop("do_sample", None)
        if sample not in (None, True, False):
            raise ValueError(f"do_sample={sample}: allowed are true, false")
        temperature = _read(float, "temperature", given.pop("temperature", None) or 0.0)
        if sample is True and temperature == 0.0 and "temperature" not in arguments:
            temperature = 1.0
        if sample is False and temperature:
            _say_once(f"do_sample=False: temperature={temperature} has no effect, decoding is greedy")
            temperature = 0.0
        top_p, top_k, min_p = (given.pop(name, None) for name in ("top_p", "top_k", "min_p"))
        for name, value in given.items():
            if name not in _NEUTRAL:
                known = {*_ALIASES, *_NEUTRAL, "until", "do_sample", "temperature", "top_p", "top_k", "min_p"}
                raise ValueError(f"unknown generation argument {nearest(name, known)}")
            if value is not None and value != _NEUTRAL[name]:
                raise ValueError(f"{name}={value}: this decoder knows only {name}={_NEUTRAL[name]}; leave it out")
        return cls(
            max_gen_toks=lengths[0] if lengths else default_max,
            until=tuple(text for text in until if text),
            temperature=temperature,
            top_p=1.0 if top_p is None else _read(float, "top_p", top_p),
            top_k=0 if top_k is None else _read(int, "top_k", top_k),
            min_p=0.0 if min_p is None else _read(float, "min_p", min_p),
        )

    def __post_init__(self) -> None:
        for name, value, ok, allowed in (
            ("max_gen_toks", self.max_gen_toks, self.max_gen_toks >= 1, "1 or more"),
            ("temperature", self.temperature, 0.0 <= self.temperature < float("inf"), "0 (greedy) or more"),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0, at most 1"),
            ("top_k", self.top_k, self.top_k >= 0, "0 (no cut) or more"),
            ("min_p", self.min_p, 0.0 <= self.min_p < 1.0, "0 or more, below 1"),
        ):
            if not ok:
                raise ValueError(f"{name}={value}: allowed is {allowed}")


def _read(kind: type[int] | type[float], name: str, value: Any) -> Any:
    """A generation argument as a number; 8.0 is a whole one, as is the text ``8``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or (kind is int and not number.is_integer()):
        raise ValueError(f"{name}={value}: give a {'whole ' if kind is int else ''}number")
    return kind(number)


def seed_of(*parts: object) -> int:
    """A 63-bit seed from any parts, the same in every process and version."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass
class Draws:
    """Uniform numbers for one sample, the same whatever else is in the batch."""

    seed: int
    _generator: torch.Generator = field(init=False)
    _block: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def next(self) -> float:
        """The next number in [0, 1)."""
        if not self._block:
            self._block = torch.rand(256, generator=self._generator, dtype=torch.float64).tolist()[::-1]
        return self._block.pop()


def next_tokens(logits: Tensor, generations: list[Generation], draws: list[Draws]) -> Tensor:
    """One token per row of (rows, vocabulary) float32 logits, by each row's own generation arguments: (rows,).

    Nothing here waits for a GPU.
    """
    tokens = logits.argmax(dim=-1)
    sampled = [row for row, generation in enumerate(generations) if not generation.greedy]
    if sampled:
        uniform = torch.tensor([draws[row].next() for row in sampled], dtype=torch.float64)
        rows = on_device(sampled, logits.device)
        tokens[rows] = _nucleus(logits[rows], [generations[row] for row in sampled], uniform)
    return tokens


def _nucleus(logits: Tensor, generations: list[Generation], uniform: Tensor) -> Tensor:
    """Sample rows from their nucleus; the token that crosses top_p stays (method, section 5)."""
    vocabulary, device = logits.shape[-1], logits.device
    limits = torch.tensor([(g.temperature, g.top_p, g.top_k, g.min_p) for g in generations], dtype=torch.float64)
    limits, uniform = limits.to(device, non_blocking=True), uniform.to(device, non_blocking=True)[:, None]
    logits = logits / limits[:, :1].to(logits.dtype)
    total = logits.logsumexp(dim=-1, keepdim=True).double()
    tokens, rows = logits.argmax(dim=-1), torch.arange(len(logits), device=device)
    heads = [head for head in _HEADS if head < vocabulary] if device.type == "cpu" else []
    for head in (*heads, vocabulary):
        # these rows alone: orders differ among equal probabilities, and no row may feel another
        some = logits[rows]
        top, order = some.topk(head, dim=-1) if head < vocabulary else some.sort(dim=-1, descending=True)
        values = (top.double() - total[rows]).exp()
        tokens[rows] = _picked(values, order, limits[rows], uniform[rows])
        if head < vocabulary:
            _, top_p, top_k, min_p = limits[rows].unbind(dim=1)
            whole = (values.sum(-1) >= top_p) | ((top_k > 0) & (top_k <= head)) | (values[:, -1] < min_p * values[:, 0])
            rows = rows[~whole]
            if not len(rows):
                break
    return tokens


def _picked(values: Tensor, order: Tensor, limits: Tensor, uniform: Tensor) -> Tensor:
    """The token of each row where its uniform number falls, (rows,); values: probabilities, descending."""
    _, top_p, top_k, min_p = limits[:, :, None].unbind(dim=1)
    ranks = torch.arange(values.shape[-1], device=values.device)
    before = values.cumsum(dim=-1) - values
    kept = (before < top_p) & ((top_k == 0) | (ranks < top_k)) & (values >= min_p * values[:, :1])
    cumulative = (values * kept).cumsum(dim=-1)
    index = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp_max(values.shape[-1] - 1)
    return order.gather(-1, index)[:, 0]


@cache
def _say_once(message: str) -> None:
    logger.warning(message)
