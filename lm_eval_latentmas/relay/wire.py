"""One row of a relay as one self-describing message, and back, bit for bit; nothing in a message is ever executed.

A message is a safetensors file whose metadata begin with format, version and a SHA-256 checksum over all other bytes.
States are sent where they are: padding and holes cost a bit each, no more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lm_eval_latentmas.cache import Relay
from lm_eval_latentmas.relay.codecs import WIRE_CODECS

VERSION = 1
MAX_HEADER = 1 << 24
# heads with unequal counts leave holes that a message does not carry; more holes than this are no relay of ours
MAX_GROWTH = 64

_START = re.compile(rb'\{"__metadata__":\{"format":"latentmas-relay","version":"(\d{1,9})","checksum":"([0-9a-f]{64})"')
_CHECKSUM = len('{"__metadata__":{"format":"latentmas-relay","version":"","checksum":"') + len(str(VERSION)) + 8
_FLOATS = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64"}
_NAMES = {**_FLOATS, torch.uint8: "U8", torch.int32: "I32"}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _FLOATS}


class WireError(ValueError):
    """A message that cannot be read: truncated, altered, of another version or of another model."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a message; ``read`` fetches it only when the message is written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes in the message."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def encode(relay: Relay, *, fingerprint: str, row: int | None = None) -> bytes:
    """The message for a row of a relay, the only one unless it is named.

    fingerprint: names the model and revision whose states these are.
    """
    if row is None:
        if relay.rows != 1:
            raise ValueError(f"a message carries one row, not {relay.rows}; say which")
        row = 0
    entries = list(_entries(relay, row))
    body = [_header(relay, row, entries, fingerprint), *(_raw(entry.read()) for entry in entries)]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    body[0] = body[0][:_CHECKSUM] + digest.hexdigest().encode() + body[0][_CHECKSUM + 64 :]
    return b"".join(body)


def message_bytes(relay: Relay, row: int) -> int:
    """Length of the message for one row, worked out from shapes; only holes have to be counted."""
    entries = list(_entries(relay, row))
    return len(_header(relay, row, entries, "")) + sum(entry.nbytes for entry in entries)


def decode(message: bytes, *, fingerprint: str, device: torch.device | str | Sequence[torch.device] = "cpu") -> Relay:
    """The relay of one row that a message carries, on one device or on one per layer. Raises WireError."""
    header = _checked(message)
    about = _about(header)
    if about["model"] != _digest(fingerprint):
        raise WireError(f"relay message: written by another model; this one is {fingerprint}")
    places = [device] * len(about["shapes"]) if isinstance(device, (str, torch.device)) else list(device)
    tensors = _tensors(message)
    read = [_layer(tensors, layer, about, len(message)) for layer in range(len(places))]
    if tensors:
        raise WireError(f"relay message: unknown tensors {', '.join(sorted(tensors)[:3])}")
    moved = [{name: part.to(place) for name, part in parts.items()} for parts, place in zip(read, places, strict=True)]
    return Relay(
        positions=tuple(parts.pop("positions") for parts in moved),
        origins=tuple(parts.pop("origins") for parts in moved),
        holes=tuple(parts.pop("holes") for parts in moved) if about["holes"] else None,
        parts=tuple(moved),
        codec=WIRE_CODECS[about["codec"]],
        dtype=_DTYPES[about["dtype"]],
        lengths=(about["length"],),
        sinks=(about["sink"],),
        cursors=(about["cursor"],),
    )


# -- writing ---------------------------------------------------------------------------------------------------------


def _entries(relay: Relay, row: int) -> Iterator[Entry]:
    """What a message for one row holds, in order."""
    slots = relay.lengths[row]
    for layer, parts in enumerate(relay.parts):
        there = None if relay.holes is None else ~relay.holes[layer][row, :, :slots]
        count = None if there is None else int(there.sum())
        for name, part in parts.items():
            yield _entry(f"{layer}.{name}", part[row], slots, there, count)
        yield _entry(f"{layer}.positions", relay.positions[layer][row, :, :, None], slots, there, count)
        yield _bits(f"{layer}.origins", relay.origins[layer][row], slots)
        if relay.holes is not None:
            yield _bits(f"{layer}.holes", relay.holes[layer][row], slots)


def _entry(name: str, part: Tensor, slots: int, there: Tensor | None, count: int | None) -> Entry:
    """A part of one row: (kv_heads, slots, width), only what is ``there``, or (kv_heads, width)."""
    if part.dim() == 2:
        return Entry(name, part.dtype, tuple(part.shape), lambda: part)
    heads, _, width = part.shape
    if there is None or heads != there.shape[0]:
        return Entry(name, part.dtype, (heads, slots, width), lambda: part[:, :slots])
    return Entry(name, part.dtype, (count, width), lambda: part[:, :slots][there])


def _bits(name: str, flags: Tensor, slots: int) -> Entry:
    """(heads, slots) bool as (heads, ceil(slots / 8)) bytes, the first slot in the lowest bit."""
    octets = -(-slots // 8)

    def read() -> Tensor:
        padded = torch.nn.functional.pad(flags[:, :slots], (0, 8 * octets - slots)).unflatten(-1, (octets, 8))
        return (padded.int() << torch.arange(8, device=flags.device)).sum(-1).to(torch.uint8)

    return Entry(name, torch.uint8, (flags.shape[0], octets), read)


def _header(relay: Relay, row: int, entries: Sequence[Entry], fingerprint: str) -> bytes:
    """Header length and header, the checksum still zeros; padded so that the payload is aligned."""
    about = {
        "model": _digest(fingerprint),
        "dtype": str(relay.dtype).removeprefix("torch."),
        "codec": relay.codec.name,
        "length": relay.lengths[row],
        "sink": relay.sinks[row],
        "cursor": relay.cursors[row],
        "holes": relay.holes is not None,
        "shapes": [list(relay.shape(layer)) for layer in range(relay.layers)],
    }
    metadata = {"format": "latentmas-relay", "version": str(VERSION), "checksum": "0" * 64, "relay": _compact(about)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [end, end := end + entry.nbytes],
        }
    text = _compact(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _raw(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _digest(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()


# -- reading ---------------------------------------------------------------------------------------------------------


def _checked(message: bytes) -> dict[str, Any]:
    """The header of a message that is whole, unaltered and of this version."""
    size = int.from_bytes(message[:8], "little")
    if size > min(len(message) - 8, MAX_HEADER):
        raise WireError(f"relay message: truncated, or no relay at all ({len(message)} bytes)")
    start = _START.match(message, 8)
    if start is None:
        raise WireError("relay message: no relay message, or its start was altered")
    if int(start[1]) != VERSION:
        raise WireError(f"relay message: version {int(start[1])}, but this package reads version {VERSION}")
    place, digest = start.start(2), hashlib.sha256()
    for part in (message[:place], b"0" * 64, memoryview(message)[place + 64 :]):
        digest.update(part)
    if digest.hexdigest().encode() != start[2]:
        raise WireError("relay message: truncated or altered; its checksum does not fit")
    try:
        return json.loads(message[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise WireError(f"relay message: unreadable header ({error})") from error


def _about(header: dict[str, Any]) -> dict[str, Any]:
    """What the message says of its relay, every field of the kind and size it must have."""
    try:
        about = json.loads(header["__metadata__"]["relay"])
        counts = [about["length"], about["sink"], about["cursor"], *(n for shape in about["shapes"] for n in shape)]
        sound = all(type(n) is int and 0 <= n < 1 << 31 for n in counts) and about["shapes"]
        sound = sound and all(len(shape) == 3 for shape in about["shapes"]) and type(about["holes"]) is bool
        known = about["codec"] in WIRE_CODECS and about["dtype"] in _DTYPES and isinstance(about["model"], str)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"relay message: unreadable description ({type(error).__name__}: {error})") from error
    if not sound or not known:
        raise WireError("relay message: a description with unknown names or absurd sizes")
    return about


def _tensors(message: bytes) -> dict[str, Tensor]:
    import safetensors.torch

    try:
        return safetensors.torch.load(message)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise WireError(f"relay message: unreadable tensors ({error})") from error


def _layer(tensors: dict[str, Tensor], layer: int, about: dict[str, Any], size: int) -> dict[str, Tensor]:
    """One layer's parts, positions, origins and holes, taken out of ``tensors``, in the shapes of a relay."""
    heads, key_width, value_width = about["shapes"][layer]
    slots, dtype = about["length"], _DTYPES[about["dtype"]]
    if heads * slots * (key_width + value_width) * dtype.itemsize > MAX_GROWTH * size:
        raise WireError(f"relay message: {size} bytes claim to be {heads} heads of {slots} states; refused")
    octets = -(-slots // 8)
    flags = {
        name: _take(tensors, f"{layer}.{name}", torch.uint8) for name in ("origins", "holes")[: 1 + about["holes"]]
    }
    for name, packed in flags.items():
        if packed.dim() != 2 or packed.shape[1] != octets or packed.shape[0] not in (1, heads):
            raise WireError(f"relay message: '{layer}.{name}' has shape {list(packed.shape)}")
    read = {name: _unpacked(packed, slots)[None] for name, packed in flags.items()}
    there = ~read["holes"][0] if about["holes"] else None
    for name, like in _expected(about["codec"], heads, slots, (key_width, value_width), dtype).items():
        read[name] = _spread(tensors, f"{layer}.{name}", like.shape[1:], like.dtype, there)
    positions = f"{layer}.positions"
    shared = positions in tensors and tensors[positions].dim() == 3 and tensors[positions].shape[0] == 1
    shape = torch.Size((1 if shared else heads, slots, 1))
    read["positions"] = _spread(tensors, positions, shape, torch.int32, there)[..., 0]
    return read


def _expected(codec: str, heads: int, slots: int, widths: tuple[int, int], dtype: torch.dtype) -> dict[str, Tensor]:
    """What the codec writes for such a layer: no rows, and so no memory, yet all the shapes."""
    empty = [torch.empty(0, heads, slots, width, dtype=dtype) for width in widths]
    try:
        return WIRE_CODECS[codec].encode(*empty, torch.empty(0, 1, slots, dtype=torch.bool))
    except (ValueError, IndexError, RuntimeError) as error:
        raise WireError(f"relay message: {codec} cannot have written {heads} heads of sizes {widths}") from error


def _take(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    if name not in tensors or tensors[name].dtype != dtype:
        raise WireError(f"relay message: '{name}' is missing or not {dtype}")
    return tensors.pop(name)


def _spread(
    tensors: dict[str, Tensor], name: str, shape: torch.Size, dtype: torch.dtype, there: Tensor | None
) -> Tensor:
    """A part as (1, *shape), zeros where a hole is."""
    sent = _take(tensors, name, dtype)
    dense = there is None or len(shape) == 2 or shape[0] != there.shape[0]
    wanted = shape if dense else torch.Size((int(there.sum()), shape[-1]))
    if sent.shape != wanted:
        raise WireError(f"relay message: '{name}' has shape {list(sent.shape)}, not {list(wanted)}")
    if dense:
        return sent[None]
    part = torch.zeros(shape, dtype=dtype)
    part[there] = sent
    return part[None]


def _unpacked(packed: Tensor, slots: int) -> Tensor:
    return ((packed[..., None] >> torch.arange(8)) & 1).flatten(-2)[:, :slots].bool()
