"""Errors of a child process: what travels, what is built of it, and what a retry rule sees."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accoda import (
    BuryJob,
    HandlerTimeout,
    InvalidInput,
    Job,
    Lease,
    LeaseLost,
    RemoteError,
    Retry,
    RetryLater,
    StorageUnavailable,
    TooLarge,
    VersionConflict,
    WorkerStopped,
)
from accoda.retry import Failed, Limits, decide, describe
from accoda.runtime.runners import wire
from accoda.runtime.runners.raised import pack, unpack


class Declined(Exception):
    def __init__(self, code: int, card: str) -> None:
        super().__init__(f"card {card} declined: {code}")
        self.code = code


class Unreachable(ConnectionError):
    pass


class Greylisted(RetryLater):
    pass


class Hopeless(BuryJob):
    pass


def through(error: BaseException) -> BaseException:
    """There and back, as it happens: encoded, sent, decoded."""
    message = wire.decode_in_worker(wire.encode(wire.said(1, Failed(error))))
    assert isinstance(message, wire.Said)
    result = wire.result_of(message)
    assert isinstance(result, Failed)
    return result.error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such user"),
        ValueError(),
        KeyError("user"),
        FileNotFoundError(2, "No such file", "a.txt"),
        TimeoutError("slow"),
        ZeroDivisionError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError("stop"),
        HandlerTimeout("over"),
        LeaseLost("lost"),
        WorkerStopped("stopped"),
        StorageUnavailable("away"),
        InvalidInput("field", "is wrong: really"),
        BuryJob("enough"),
        RetryLater("busy", delay=5),
    ],
    ids=repr,
)
def test_errors_of_python_and_of_accoda_come_as_themselves(error: BaseException) -> None:
    came = through(error)
    assert type(came) is type(error)
    assert describe(came) == describe(error)
    if not isinstance(error, OSError):
        assert came.args == error.args
    assert getattr(came, "field", None) == getattr(error, "field", None)


def test_an_error_of_the_users_comes_as_one_of_the_same_name_that_tells_its_kinds() -> None:
    came = through(Declined(51, "visa"))
    assert isinstance(came, RemoteError)
    assert (type(came).__name__, str(came)) == ("Declined", "card visa declined: 51")
    assert came.kind == f"{__name__}.Declined"
    assert came.kinds == (f"{__name__}.Declined", "Exception", "BaseException")
    assert describe(came) == "Declined: card visa declined: 51"


def test_it_is_also_what_its_bases_in_python_are() -> None:
    came = through(Unreachable("host"))
    assert isinstance(came, RemoteError)
    assert isinstance(came, ConnectionError)
    assert type(came).__name__ == "Unreachable"
    # Some errors cannot be built without their parts: the nearest base that can stands for them.
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        came = through(error)
    assert isinstance(came, UnicodeError)
    assert type(came).__name__ == "UnicodeDecodeError"


def test_what_says_what_becomes_of_the_job_still_says_so() -> None:
    later = through(Greylisted("busy", delay=timedelta(seconds=90)))
    assert isinstance(later, RetryLater)
    assert (later.delay, later.at, describe(later)) == (timedelta(seconds=90), None, "Greylisted: busy")
    moment = datetime(2040, 1, 1, tzinfo=UTC)
    later = through(RetryLater(at=moment))
    assert isinstance(later, RetryLater)
    assert (later.at, later.delay) == (moment, None)
    hopeless = through(Hopeless("no card"))
    assert isinstance(hopeless, BuryJob)
    assert hopeless.reason == "no card"
    nonsense: Any = "soon"
    assert isinstance(through(RetryLater("busy", delay=nonsense)), InvalidInput)


@pytest.mark.parametrize(
    "error",
    [
        VersionConflict("doc", 1, 2),
        TooLarge("payload", 5, 4),
        StopIteration(5),
        ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
        ValueError(object(), {1: 2}),
        ValueError("\ud800 half", b"bytes", 2**80),
        ValueError("x" * 1_000_000),
        type("A\u2603", (Exception,), {})("snow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_comes_as_an_error_of_that_name(error: BaseException) -> None:
    came = through(error)
    assert isinstance(came, Exception)
    assert not isinstance(came, StopIteration)
    assert type(came).__name__ == type(error).__name__
    assert len(str(came)) <= 17_000


def test_the_traceback_of_the_child_is_the_cause_and_bounded() -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        raised = pack(error)
    assert len(raised.trace) <= 16_384
    came = unpack(raised)
    assert came.__cause__ is not None
    assert str(came.__cause__).endswith("x\n")


def test_a_retry_rule_can_look_at_it() -> None:
    def rule(tries: int, error: BaseException) -> float | None:
        if isinstance(error, RemoteError) and f"{__name__}.Declined" in error.kinds:
            return None
        return 5.0 if isinstance(error, ConnectionError) else 60.0

    job = Job(1, "q", b"", 0.0, 0, None, 0, 0, 0, None, 0, Lease("q", 1, 0, 0))
    outcome = decide(job, Failed(through(Unreachable("host"))), Limits(rule))
    assert isinstance(outcome, Retry)
    assert (outcome.delay, outcome.reason) == (5.0, "Unreachable: host")
    assert not isinstance(decide(job, Failed(through(Declined(1, "visa"))), Limits(rule)), Retry)
