"""Records say at once, and plainly, what is wrong with them."""

import doctest
import importlib
import inspect
from typing import Any

import pytest

import accoda
from accoda import InvalidInput, NewJob, Rerank, Retry
from accoda.model import Lease, clean


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queue": ""}, "queue: must be 1 to 128 letters, digits, '_', '.' or '-'"),
        ({"queue": "über"}, "queue: must be"),
        ({"queue": "a b"}, "queue: must be"),
        ({"queue": "{q}"}, "queue: must be"),
        ({"queue": "q\n"}, "queue: must be"),
        ({"queue": "x" * 129}, "queue: must be"),
        ({"queue": None}, "queue: must be"),
        ({"data": "text"}, "data: must be bytes; encode it first, for example with msgspec.msgpack.encode, not 'text'"),
        ({"data": None}, "data: must be bytes"),
        ({"rank": float("inf")}, "rank: must be a finite number, not inf"),
        ({"rank": 10**400}, "rank: must be a finite number"),
        ({"rank": "1"}, "rank: must be a finite number, not '1'"),
        ({"rank": True}, "rank: must be a finite number, not True"),
        ({"delay": -1}, "delay: must be a number of seconds >= 0, not -1"),
        ({"delay": float("nan")}, "delay: must be a number of seconds >= 0, not nan"),
        ({"delay": "5"}, "delay: must be a number of seconds >= 0, not '5'"),
        ({"start_at": 1.5}, "start_at: must be integer milliseconds since the epoch, not 1.5"),
        ({"start_at": -1}, "start_at: must be integer milliseconds since the epoch, not -1"),
        ({"delay": 1, "start_at": 1}, "start_at: give either delay or start_at, not both"),
        ({"cost": -1}, "cost: must be an integer from 0 to 2**53, not -1"),
        ({"cost": 0.0}, "cost: must be an integer from 0 to 2**53, not 0.0"),
        ({"cost": ""}, "cost: must be an integer from 0 to 2**53, not ''"),
        ({"key": ""}, "key: must be 1 to 512 characters"),
        ({"key": "\ud800"}, "key: must be 1 to 512 characters of valid text"),
        ({"key": "a\0b"}, "key: must be 1 to 512 characters of valid text without NUL"),
        (
            {"key": "k", "on_duplicate": "merge"},
            "on_duplicate: must be 'keep', 'rerank', 'replace' or 'attach', not 'merge'",
        ),
        ({"on_duplicate": "attach"}, "on_duplicate: needs a key"),
        ({"waiter": b"w"}, "waiter: needs a key"),
        ({"key": "k", "waiter": "w"}, "waiter: must be bytes, not 'w'"),
        ({"keep_for": -1.0}, "keep_for: must be a number of seconds >= 0, not -1.0"),
        ({"keep_for": None}, "keep_for: must be a number of seconds >= 0, not None"),
    ],
)
def test_a_job_that_cannot_be_stored_is_refused_when_it_is_made(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        NewJob(**{"queue": "q", **fields})
    assert message in str(caught.value)
    assert caught.value.field in message
    assert isinstance(caught.value, ValueError)


def test_only_queue_and_data_are_positional() -> None:
    assert NewJob("q", b"x").data == b"x"
    with pytest.raises(TypeError):
        NewJob("q", b"x", 1.0)  # type: ignore[misc]


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        NewJob("q").rank = 2.0  # type: ignore[misc]


def test_a_retry_is_either_after_a_delay_or_at_a_moment() -> None:
    lease = Lease("q", 1, 0, 0)
    with pytest.raises(InvalidInput, match="either delay or at"):
        Retry(lease, delay=1, at=5)
    with pytest.raises(InvalidInput, match="delay: must be a number of seconds >= 0, not None"):
        Retry(lease, delay=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="at: must be integer milliseconds"):
        Retry(lease, at=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="rank"):
        Rerank(1, float("nan"))


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidInput) as caught:
        NewJob("q", "x" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 250


def test_texts_from_outside_are_made_storable() -> None:
    assert clean("plain") == "plain"
    assert clean("snow ☃") == "snow ☃"
    assert clean("a\0b") == "a\ufffdb"
    assert clean("bad \ud800 half") == "bad ? half"
    assert len(clean("x" * 100_000)) == 16_384


@pytest.mark.parametrize("module", ["accoda.model", "accoda.priority", "accoda.clock"])
def test_the_examples_in_the_docstrings_hold(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


def test_everything_public_is_there_and_documented() -> None:
    for name in accoda.__all__:
        thing = getattr(accoda, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert (thing.__doc__ or "").strip(), name
    assert sorted(accoda.__all__) == accoda.__all__
