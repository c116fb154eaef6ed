"""Stored bytes for people: nothing that may be stored makes it fail, and JSON can carry all of it."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext, encode

from accoda.operations.plain import decoded, plain, unreadable
from accoda.payload import UnreadablePayload


def shown(value: Any) -> Any:
    return plain(decoded(encode(value)))


def test_what_json_knows_stays_as_it_is() -> None:
    value = {"a": [1, 2.5, True, None, "ü"], "b": {}}
    assert shown(value) == value


def test_bytes_are_base64_with_a_mark() -> None:
    assert shown({"body": b"\x00\xff"}) == {"body": {"$bytes": "AP8="}}


def test_floats_that_json_does_not_know_are_marked() -> None:
    assert shown([math.nan, math.inf, -math.inf]) == [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}]


def test_extensions_and_moments_are_shown() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert shown([Ext(5, b"hi"), moment]) == [{"$ext": 5, "$bytes": "aGk="}, "2030-01-01T00:00:00+00:00"]


def test_keys_that_are_no_text_become_text() -> None:
    assert shown({1: "a", True if False else "x": 2, None: 3}) == {"1": "a", "x": 2, "null": 3}


def test_keys_that_would_collide_or_have_no_text_are_pairs() -> None:
    assert shown({1: "a", "1": "b"}) == {"$map": [[1, "a"], ["1", "b"]]}
    assert shown({b"k": 1}) == {"$map": [[{"$bytes": "aw=="}, 1]]}


def test_what_cannot_be_read_says_why_and_shows_its_bytes() -> None:
    with pytest.raises(UnreadablePayload) as error:
        decoded(b"\xc1oops")
    seen = unreadable(b"\xc1oops", error.value)
    assert seen["$bytes"] == "wW9vcHM=" and "payload" in seen["$unreadable"]


def test_of_much_that_cannot_be_read_a_part_is_shown() -> None:
    seen = unreadable(b"\xc1" * 100_000, "why")
    assert len(seen["$bytes"]) < 6000 and seen["$size"] == 100_000


@given(st.binary(max_size=200))
def test_any_bytes_end_as_json_or_as_unreadable(data: bytes) -> None:
    try:
        value = plain(decoded(data))
    except UnreadablePayload as error:
        value = unreadable(data, error)
    json.loads(msgspec.json.encode(value))
    json.dumps(value, allow_nan=False)


keys = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.booleans(), st.binary(max_size=2), st.none(), st.floats())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_any_value_becomes_strict_json(value: Any) -> None:
    json.dumps(shown(value), allow_nan=False)
