"""Messages: what does not read as one is refused with one clear error, before anything large is made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segments import assert_same, compress, segment

from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.wire import WireError

RELAYS = {
    "plain": compress("h-obf", segment(dtype=torch.bfloat16)).row(1),
    "packed": compress("l-obf+int4", segment()).row(1),
    "holes": compress("headwise+int8", segment(), allocation="adaptive").row(0),
}
MESSAGES = {name: wire.encode(relay, fingerprint="model") for name, relay in RELAYS.items()}
messages = st.sampled_from(sorted(MESSAGES))


def read(message: bytes) -> object:
    return wire.decode(message, fingerprint="model")


def resigned(message: bytes, change: Callable[[dict, dict], None]) -> bytes:
    """A message with a changed header and a checksum that fits, as only an ill-meaning sender would write it."""
    size = int.from_bytes(message[:8], "little")
    header = json.loads(message[8 : 8 + size])
    about = json.loads(header["__metadata__"]["relay"])
    change(header, about)
    header["__metadata__"] |= {"relay": json.dumps(about), "checksum": "0" * 64}
    text = json.dumps(header, separators=(",", ":")).encode()
    blank = len(text).to_bytes(8, "little") + text + message[8 + size :]
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_changed_header_that_changes_nothing_is_read(name: str) -> None:
    assert_same(read(resigned(MESSAGES[name], lambda header, about: None)), RELAYS[name])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(messages, st.data())
def test_a_flipped_bit_is_refused(name: str, data: st.DataObject) -> None:
    message = bytearray(MESSAGES[name])
    message[data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(WireError, match="relay message"):
        read(bytes(message))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(messages, st.data())
def test_a_truncated_message_is_refused(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    with pytest.raises(WireError, match="relay message"):
        read(message[: data.draw(st.integers(0, len(message) - 1))])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(WireError, match="relay message"):
        read(noise)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(messages, st.data())
def test_a_resigned_lie_is_refused_or_harmless(name: str, data: st.DataObject) -> None:
    """Whatever a header claims, reading gives a relay of the claimed shapes or a WireError."""
    lie = data.draw(
        st.one_of(st.integers(-3, 2**40), st.none(), st.text(max_size=5), st.lists(st.integers(0, 9), max_size=4))
    )

    def change(header: dict, about: dict) -> None:
        tensors = sorted(header.keys() - {"__metadata__"})
        where = data.draw(st.sampled_from(["about", "shape", "offset", "missing", "unknown", "layers", "heads"]))
        if where == "about":
            about[data.draw(st.sampled_from(sorted(about)))] = lie
        elif where == "layers":
            about["shapes"] = about["shapes"][:1] * data.draw(st.integers(0, 5))
        elif where == "heads":
            about["shapes"][0][data.draw(st.integers(0, 2))] = lie
        elif where == "missing":
            del header[data.draw(st.sampled_from(tensors))]
        elif where == "unknown":
            header["0.other"] = header.pop(data.draw(st.sampled_from(tensors)))
        elif where == "shape":
            header[data.draw(st.sampled_from(tensors))]["shape"] = lie
        else:
            header[data.draw(st.sampled_from(tensors))]["data_offsets"] = [0, lie]

    try:
        relay = read(resigned(MESSAGES[name], change))
    except WireError:
        return
    for layer in range(relay.layers):
        keys, values = relay.layer(layer)
        assert keys.shape[2] == values.shape[2] == relay.lengths[0]


def test_another_model_is_named() -> None:
    with pytest.raises(WireError, match="another model; this one is other"):
        wire.decode(MESSAGES["plain"], fingerprint="other")


def test_another_version_is_named() -> None:
    message = MESSAGES["plain"].replace(b'"version":"1"', b'"version":"2"', 1)
    with pytest.raises(WireError, match="version 2, but this package reads version 1"):
        read(message)


@pytest.mark.parametrize("length", [10**6, 2**30])
def test_absurd_sizes_are_refused_before_they_are_made(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(header: dict, about: dict) -> None:
        about["length"] = length
        for layer in (0, 1):
            for name, heads in (("origins", 3), ("holes", 3)):
                header[f"{layer}.{name}"]["shape"] = [heads, -(-length // 8)]

    message = resigned(MESSAGES["holes"], change)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(WireError, match="relay message"):
        read(message)


def test_a_message_is_a_safetensors_file_and_nothing_else() -> None:
    import safetensors.torch

    tensors = safetensors.torch.load(MESSAGES["packed"])
    assert tensors["0.keys"].shape == RELAYS["packed"].parts[0]["keys"].shape[1:]


def test_a_message_carries_one_row() -> None:
    with pytest.raises(ValueError, match="one row, not 3"):
        wire.encode(compress("gen", segment()), fingerprint="model")


def test_writing_twice_gives_the_same_bytes() -> None:
    assert wire.encode(RELAYS["packed"], fingerprint="model") == MESSAGES["packed"]


@pytest.mark.parametrize("spec", ["h-obf", "l-obf+int4", "headwise"])
def test_a_named_row_is_written_as_that_row_alone(spec: str) -> None:
    options = {"allocation": "adaptive"} if spec == "headwise" else {}
    relay = compress(spec, segment(), **options)
    assert relay.rows > 1
    for row in range(relay.rows):
        assert wire.encode(relay, fingerprint="model", row=row) == wire.encode(relay.row(row), fingerprint="model")


def test_holes_are_not_sent() -> None:
    adaptive = compress("headwise", segment(), allocation="adaptive").row(0)
    even = compress("headwise", segment()).row(0)
    sent = len(wire.encode(adaptive, fingerprint="model")) - len(wire.encode(even, fingerprint="model"))
    # a message of equal state count, plus a bit per slot and what the header says
    assert sent < 300
    assert adaptive.nbytes > even.nbytes
