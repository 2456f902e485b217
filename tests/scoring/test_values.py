"""Values come out of the sandbox as they are, and nothing else comes out."""

from __future__ import annotations

import enum
import json
import math
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_latentmas.scoring.sandbox.inside.values import UNREADABLE, Iterated, Opaque, decode, encode

HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=1 << 60, max_value=1 << 600)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
    | st.decimals(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE, max_size=3),
    max_leaves=8,
)


def sent(value, **options):
    return decode(json.loads(json.dumps(encode(value, **options))))


def shape(value):
    """A value's types, all the way down, beside its text."""
    items = value.items() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return type(value).__name__, [shape(item) for item in items]


@given(VALUES)
def test_plain_values_keep_their_types_and_are_equal(value):
    assert sent(value) == value
    assert shape(sent(value)) == shape(value)


def test_values_at_the_edge_come_through():
    for value in (math.inf, -math.inf, -0.0, "\ud800", 10**10_000, range(3), deque([1])):
        assert sent(value) == value
    assert math.isnan(sent(math.nan))
    assert math.copysign(1, sent(-0.0)) == -1


class Cheat(list):
    def __eq__(self, other):
        return True

    def __iter__(self):
        return iter([1, 2])

    __hash__ = None


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Cheat([3]), [3]),
        (Colour.RED, 1),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (namedtuple("Point", "x y")(1, 2), (1, 2)),
        ({1: 2}.keys(), {1}),
    ],
)
def test_derived_values_are_worth_what_they_hold_and_are_of_another_type(value, content):
    assert sent(value) == content
    assert type(sent(value)) is not type(content)


@pytest.mark.parametrize(
    "value", [numpy.float64(0.5), numpy.int32(3), numpy.bool_(True), numpy.array([[1.5, 2], [3, 4]])]
)
def test_arrays_and_their_scalars_keep_their_types(value):
    assert numpy.array_equal(sent(value), value)
    assert type(sent(value)) is type(value)
    assert sent(value).dtype == value.dtype


@pytest.mark.parametrize("value", [object(), map(str, [1]), print, int, numpy.array([object()]), numpy.longdouble(1)])
def test_what_has_no_plain_form_equals_nothing(value):
    received = sent([value])[0]
    assert isinstance(received, Opaque)
    assert received != value
    assert received != sent([value])[0]


def test_iterators_are_spent_only_where_asked():
    assert not isinstance(sent(iter([1])), Iterated)
    assert list(sent(iter([1, (2,)]), iterate=True)) == [1, (2,)]
    assert sent(iter([1]), iterate=True) != [1]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"object": 1},
        {"int": "x"},
        {"int": 5},
        {"set": [[1]]},
        {"dict": [1]},
        {"complex": "ab"},
        {"Fraction": [1, 0]},
        {"Decimal": "?"},
        {"list": 3},
        {"range": ["a"]},
        {"bool+": True},
        {"int": "1", "float": 1},
        {"npO": 1},
        {"np<M8[s]": 1},
        {"array": "V9", "shape": [1], "flat": [1]},
        {"array": "<f8", "shape": [7], "flat": [1]},
        {"array": "<f8"},
    ],
)
def test_data_that_nothing_is_encoded_as_is_refused(data):
    with pytest.raises(UNREADABLE):
        decode(data)


def test_a_text_array_cannot_ask_for_more_memory_than_it_sends():
    assert decode({"array": "<U90000000", "shape": [1], "flat": ["a"]}).nbytes < 100


def test_the_same_number_in_other_types_stays_apart():
    assert [type(value) for value in sent([1, 1.0, True, Decimal(1), Fraction(1)])] == [
        int,
        float,
        bool,
        Decimal,
        Fraction,
    ]


def test_no_form_of_a_long_result_is_many_times_longer_than_the_plain_one():
    """The sandbox bounds what a program returns by a multiple of what the reference returns."""
    plain = len(json.dumps(encode([[1, 2]] * 100)))
    for other in ([numpy.arange(1, 3)] * 100, [list(numpy.arange(1, 3))] * 100, [Cheat([1, 2])] * 100, [(1, 2)] * 100):
        assert len(json.dumps(encode(other))) < 8 * plain
