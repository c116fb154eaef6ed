"""Payloads: types, bytes, and what is said about those that do not fit."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pytest

from accoda import InvalidInput
from accoda.payload import Codec, UnreadablePayload, decode, encode


class Struct(msgspec.Struct):
    user_id: int
    to: str = ""


@dataclass
class Data:
    user_id: int
    at: datetime


class Typed(TypedDict):
    user_id: int


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (Struct, Struct(7, "anna")),
        (Data, Data(7, datetime(2030, 1, 1, tzinfo=UTC))),
        (Typed, {"user_id": 7}),
        (int, 7),
        (str, "ünï"),
        (bytes, b"\x00\xff"),
        (list[int], [1, 2]),
        (dict[str, int], {"a": 1}),
        (None, None),
        (int | None, None),
    ],
)
def test_a_payload_comes_back_as_it_was(type: object, payload: object) -> None:
    codec: Codec[object] = Codec(type)
    assert codec.decode(codec.encode(payload)) == payload


def test_without_a_type_plain_values_come_back() -> None:
    assert decode(encode({"a": [1, None, b"x", 2.5]})) == {"a": [1, None, b"x", 2.5]}


def test_a_dict_that_fits_a_struct_may_be_enqueued_to_it() -> None:
    codec: Codec[Struct] = Codec(Struct)
    assert codec.decode(codec.encode({"user_id": 7})) == Struct(7)


def test_a_payload_that_the_handler_could_not_read_is_refused_at_the_producer() -> None:
    with pytest.raises(InvalidInput, match=r"does not fit Struct: .*user_id"):
        Codec(Struct).encode({"user_id": "seven"})


def test_bytes_that_do_not_fit_are_named_by_their_field() -> None:
    with pytest.raises(UnreadablePayload, match="no Struct: user_id must be an integer, not text"):
        Codec(Struct).decode(encode({"user_id": "seven"}))


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x81", b"\x91" * 100_000])
def test_hostile_bytes_are_unreadable_and_nothing_worse(junk: bytes) -> None:
    with pytest.raises(UnreadablePayload):
        Codec(Struct).decode(junk)


def test_what_cannot_be_stored_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInput, match="there is an object of the class object in it; use structs"):
        encode(object())
    with pytest.raises(InvalidInput):
        encode({"n": 2**70})


def test_a_type_that_cannot_be_stored_is_refused_when_the_handler_is_made() -> None:
    class Odd:
        pass

    with pytest.raises(InvalidInput, match="Odd"):
        Codec(dict[Odd, Odd | Struct | Data])


class Address(msgspec.Struct):
    city: str


class Email(msgspec.Struct):
    to: str
    at: list[Address] = []


@pytest.mark.parametrize(
    ("type", "payload", "says"),
    [
        (Email, Email(None), "does not fit Email: to must be text, not None"),  # type: ignore[arg-type]
        (Email, Email("a", [Address(7)]), r"at\[0\]\.city must be text, not an integer"),  # type: ignore[arg-type]
        (Data, Data("x", datetime(2030, 1, 1)), "does not fit Data: user_id must be an integer, not text"),  # type: ignore[arg-type]
        (Email, "anna", "does not fit Email: it must be a dict of fields, not text"),
        (Email, {}, "does not fit Email: to is missing"),
        (Email, {"to": "a", "at": [{}]}, r"at\[0\]\.city is missing"),
        (int, True, "does not fit int: it must be an integer, not True or False"),
    ],
)
def test_what_does_not_fit_is_refused_in_plain_words_also_inside(type: Any, payload: object, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^payload: .*{says}"):
        Codec(type).encode(payload)
