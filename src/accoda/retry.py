"""When a job that failed runs again, and what becomes of a job after a run. Pure functions; no I/O.

A rule is any function of how many times the job has failed before and of the error: it gives the seconds until the next
run, or None to bury the job.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isfinite

from msgspec import Struct

from accoda.errors import BuryJob, InvalidInput, RateLimited, RetryLater, WorkerStopped
from accoda.model import Bury, Done, Job, NewJob, Outcome, Retry, clean
from accoda.payload import encode_result
from accoda.times import milliseconds, seconds

RetryRule = Callable[[int, BaseException], float | None]

LONGEST = 3600.0
"""Seconds: how far apart the tries of the default rule get."""


def _check(field: str, value: float) -> None:
    if not isfinite(value) or value < 0:
        raise InvalidInput(field, f"must be a number of seconds >= 0, not {value!r}")


class Fixed(Struct, frozen=True):
    """The same pause before every try.

    >>> Fixed(30)(7, ValueError())
    30
    """

    delay: float

    def __post_init__(self) -> None:
        _check("delay", self.delay)

    def __call__(self, tries: int, error: BaseException) -> float:
        return self.delay


class Exponential(Struct, frozen=True):
    """A pause that doubles (`factor`) from `first` to at most `longest` seconds.

    With `jitter` the pause is drawn evenly from zero to that ("full jitter"), so that jobs which failed together do not
    all come back together.

    >>> [Exponential(first=2, jitter=False)(tries, ValueError()) for tries in range(4)]
    [2.0, 4.0, 8.0, 16.0]
    >>> 0 <= Exponential(first=2)(3, ValueError()) <= 16
    True
    """

    first: float = 1.0
    factor: float = 2.0
    longest: float = LONGEST
    jitter: bool = True

    def __post_init__(self) -> None:
        _check("first", self.first)
        _check("longest", self.longest)
        if not isfinite(self.factor) or self.factor < 1:
            raise InvalidInput("factor", f"must be a number >= 1, not {self.factor!r}")

    def __call__(self, tries: int, error: BaseException) -> float:
        # The exponent is bounded, so that a job with ten thousand tries gives no overflow.
        pause = min(self.longest, self.first * self.factor ** min(tries, 64))
        return random.uniform(0, pause) if self.jitter else pause


def rule(value: RetryRule | float | None) -> RetryRule:
    """A rule from what a user may write: a rule, a number of seconds, or None for the default.

    >>> rule(5)
    Fixed(delay=5.0)
    """
    if value is None:
        return Exponential()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Fixed(float(value))
    if callable(value):
        return value
    raise InvalidInput("retry", f"must be seconds, Fixed(…), Exponential(…) or a function, not {value!r}")


class Limits(Struct, frozen=True):
    """When to give a job up: its queue's rule, and how many failures and how many lost leases it may have."""

    rule: RetryRule = Exponential()
    max_attempts: int | None = None
    max_crashes: int | None = 5


class Finished(Struct, frozen=True, gc=False):
    """The run went well; `result` is what is kept of it, `then` what follows in the same step."""

    result: bytes | None = None
    then: tuple[NewJob, ...] = ()


PLAIN = Finished()
"""A run that went well and left nothing: what most runs are."""


class Failed(Struct, frozen=True):
    """The run raised."""

    error: BaseException


Result = Finished | Failed


def finished(value: object) -> Result:
    """What it means that a handler returned `value`.

    A value that cannot be kept buries the job: it ran, and to run it again and again would not change the value.
    """
    if value is None:
        return PLAIN
    try:
        return Finished(encode_result(value))
    except InvalidInput as error:
        problem = str(error).removeprefix(f"{error.field}: ")
        return Failed(BuryJob(f"result: the handler returned a {type(value).__name__}, which {problem}"))


def decide(job: Job, result: Result, limits: Limits) -> Outcome:
    """What becomes of a job after a run."""
    if isinstance(result, Finished):
        return Done(job.lease, result.then, result.result)
    error = result.error
    if isinstance(error, BuryJob):
        return Bury(job.lease, clean(str(error.reason)))
    if isinstance(error, WorkerStopped):
        return Retry(job.lease, reason=describe(error), counts=False)
    reason = describe(error)
    tries, counts = job.tries + 1, not isinstance(error, RateLimited)  # a rate limit is the API's doing, not the job's
    if limits.max_attempts is not None and tries >= limits.max_attempts and counts:
        return Bury(
            job.lease, f"failed {tries} times, the last time with {reason}" if tries > 1 else f"failed: {reason}"
        )
    try:
        if isinstance(error, RetryLater) and error.at is not None:
            return Retry(job.lease, at=milliseconds("at", error.at), reason=reason, counts=counts)
        if isinstance(error, RetryLater) and error.delay is not None:
            return Retry(job.lease, delay=seconds("delay", error.delay), reason=reason, counts=counts)
    except InvalidInput as wrong:  # what the handler asked for cannot be done: the rule says when, and the reason why
        error = wrong
    return _by_rule(job, limits.rule, error)


def give_up(job: Job, limits: Limits) -> Bury | None:
    """Bury a job before it runs again, if its runs kept ending without an outcome."""
    if limits.max_crashes is not None and job.crashes >= limits.max_crashes:
        return Bury(
            job.lease, f"poison: its lease ended {job.crashes} times without an outcome; its worker may have died"
        )
    ran = job.tries + job.crashes
    if limits.max_attempts is not None and job.crashes and ran >= limits.max_attempts:
        return Bury(job.lease, f"ran {ran} times, {job.crashes} of them without an outcome")
    return None


def describe(error: BaseException) -> str:
    """An error in one line, for a job's reason.

    >>> describe(ValueError("no such user"))
    'ValueError: no such user'
    """
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as broken:  # the user's class: its mistake must not cost the batch its outcomes
        text = f"its text cannot be had ({type(broken).__name__} in __str__)"
    return clean(f"{name}: {text}" if text else name)


def _by_rule(job: Job, rule: RetryRule, error: BaseException) -> Outcome:
    reason = describe(error)
    try:
        pause = rule(job.tries, error)
        if pause is None:
            return Bury(job.lease, reason)
        return Retry(job.lease, delay=pause, reason=reason)
    except Exception as broken:  # a rule is the user's code: its own mistake must not lose the job or spin
        return Retry(job.lease, delay=LONGEST, reason=f"{reason} (and the retry rule failed: {describe(broken)})")
