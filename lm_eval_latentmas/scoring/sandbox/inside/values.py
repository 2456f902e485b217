"""Python values as typed JSON, so that results leave the sandbox without pickle and keep their types.

Runs on both sides of the wall: the program's side encodes, the evaluating process decodes into plain built-in values
only. What has no plain form arrives as `Opaque`, which equals nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import ItemsView, Iterable, KeysView
from decimal import Decimal
from fractions import Fraction
from typing import Any

#: What reading bad data may raise.
UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)

_SMALL = 1 << 53
_DERIVED = "+"  # behind the name of a base: the value is of a class derived from it
_SCALAR = "np"  # before the type of a NumPy scalar
_ARRAYS = "biufcU"  # kinds of arrays that are sent: numbers and text
_SAME = frozenset((str, bool, float, type(None)))
_CONTAINERS = (list, tuple, set, frozenset, deque)
_BASES = (int, float, complex, str, bytes, *_CONTAINERS, dict)


class Opaque:
    """A value that was not sent: nothing is known but its type's name, and it equals nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Iterated(Opaque):
    """An `Opaque` value of which the items were sent: those that iterating over it gave."""

    def __init__(self, name: str, items: list[Any]) -> None:
        super().__init__(name)
        self._items = items

    def __iter__(self) -> Any:
        return iter(self._items)


def encode(value: Any, iterate: bool = False) -> Any:
    """``value`` as JSON-ready data; with ``iterate`` an iterator or other unknown iterable gives its items."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if (kind is int and -_SMALL < value < _SMALL) or kind is float:
        return value
    if kind is list:
        return _each(value)
    if kind in (Decimal, Fraction, range):
        return {kind.__name__: _parts(value)}
    if (array := _array(value)) is not None:
        return array
    for base in _BASES:
        if isinstance(value, base):
            return {base.__name__ + ("" if kind is base else _DERIVED): _content(base, value)}
    if isinstance(value, (KeysView, ItemsView)):
        return {f"frozenset{_DERIVED}": _each(value)}
    if iterate and hasattr(kind, "__iter__"):
        return {"iterated": kind.__name__, "items": _each(value)}
    return {"opaque": f"{kind.__module__}.{kind.__qualname__}"}


def _each(items: Iterable[Any]) -> list[Any]:
    """The encoded items; those that are their own code are not asked about, which is most of them in long lists."""
    return [
        item if type(item) in _SAME or (type(item) is int and -_SMALL < item < _SMALL) else encode(item)
        for item in items
    ]


def _content(base: type, value: Any) -> Any:
    """What a value of ``base``, or of a class derived from it, holds; a derived class's own methods are not asked."""
    if base is int:
        # hexadecimal, because decimal conversion of very long integers is limited by the interpreter
        return format(int.__index__(value), "x")
    if base is float:
        return float.__float__(value)
    if base is complex:
        return [complex.real.__get__(value), complex.imag.__get__(value)]
    if base is str:
        return str.__str__(value)
    if base is bytes:
        return bytes.hex(value)
    if base is dict:
        return [[encode(key), encode(item)] for key, item in dict.items(value)]
    return _each(base.__iter__(value))


def _parts(value: Decimal | Fraction | range) -> Any:
    if isinstance(value, Fraction):
        return [encode(value.numerator), encode(value.denominator)]
    if isinstance(value, range):
        return [encode(value.start), encode(value.stop), encode(value.step)]
    return str(value)


def _array(value: Any) -> dict[str, Any] | None:
    """A NumPy scalar or array of numbers or text; None for anything else. NumPy is never imported for this."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    dtype = value.dtype
    if dtype.kind not in _ARRAYS or dtype.char in "gG":  # long floats have no form of Python's own
        return None
    if isinstance(value, numpy.generic):
        return {_SCALAR + dtype.str: encode(value.item())}
    return {"array": dtype.str, "shape": value.shape, "flat": _each(numpy.asarray(value).ravel().tolist())}


def decode(data: Any) -> Any:
    """The value that `encode` was given, as far as plain values can hold it.

    Raises one of `UNREADABLE` on data that `encode` does not write.
    """
    if isinstance(data, list):
        return [item if type(item) is int or type(item) in _SAME else decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "opaque" in data:
        return Opaque(str(data["opaque"]))
    if "iterated" in data:
        return Iterated(str(data["iterated"]), decode(data["items"]))
    if "array" in data:
        return _decode_array(data["array"], data["flat"]).reshape(data["shape"])
    (name,) = data
    if name.startswith(_SCALAR):
        return _decode_array(name.removeprefix(_SCALAR), [data[name]])[0]
    value = _DECODERS[name.removesuffix(_DERIVED)](data[name])
    return _DERIVED_CLASSES[name.removesuffix(_DERIVED)](value) if name.endswith(_DERIVED) else value


def _decode_array(dtype: str, flat: list[Any]) -> Any:
    import numpy

    kind = numpy.dtype(dtype).kind
    if kind not in _ARRAYS:
        raise ValueError(f"array of {dtype}")
    # the width of a text array is left to NumPy, because a width that was sent could ask for any amount of memory
    return numpy.array(decode(flat), dtype=None if kind == "U" else dtype)


_DECODERS = {
    "int": lambda content: int(content, 16),
    "float": float,
    "complex": lambda content: complex(*content),
    "str": str,
    "bytes": bytes.fromhex,
    "dict": lambda content: {decode(key): decode(value) for key, value in content},
    "Decimal": Decimal,
    "Fraction": lambda content: Fraction(*decode(content)),
    "range": lambda content: range(*decode(content)),
} | {base.__name__: lambda content, base=base: base(decode(content)) for base in _CONTAINERS}

#: A class of its own for every base, so that a derived value is equal to a plain one but not of its type.
_DERIVED_CLASSES = {base.__name__: type(f"Derived{base.__name__.title()}", (base,), {}) for base in _BASES}
