"""When a job that failed runs again, and what becomes of a job after a run. Pure functions; no I/O.

A rule is any function of how many times the job has failed before and of the error: it gives the seconds until the next
run, or None to bury the job.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isfinite

from msgspec import Struct

from accoda.errors import BuryJob, CannotStart, InvalidInput, RateLimited, RetryLater, WorkerStopped
from accoda.model import Bury, Done, Job, NewJob, Outcome, Retry, clean
from accoda.payload import encode_result
from accoda.priority import Policy, enqueued_for, read_priority, strict
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
    """When to give a job up: its queue's rule, and how many failures and how many crashes it may have; None: any.

    `policy` is the queue's: it ranks a job whose handler asks for a new priority.
    """

    rule: RetryRule = Exponential()
    max_attempts: int | None = None
    max_crashes: int | None = None
    policy: Policy = strict


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
    if isinstance(error, (WorkerStopped, CannotStart)):  # the worker's doing: the job has not tried
        return Retry(job.lease, reason=describe(error), counts=False)
    reason = describe(error)
    tries, counts = job.tries + 1, not isinstance(error, RateLimited)  # a rate limit is the API's doing, not the job's
    if limits.max_attempts is not None and tries >= limits.max_attempts and counts:
        return Bury(
            job.lease, f"failed {tries} times, the last time with {reason}" if tries > 1 else f"failed: {reason}"
        )
    rank = None
    try:
        if isinstance(error, RetryLater):
            if error.priority is not None:
                # The job keeps its age: only the level is new.
                rank = limits.policy(read_priority(error.priority), enqueued_for(job))
            if error.at is not None:
                return Retry(job.lease, at=milliseconds("at", error.at), reason=reason, rank=rank, counts=counts)
            if error.delay is not None:
                return Retry(job.lease, delay=seconds("delay", error.delay), reason=reason, rank=rank, counts=counts)
    except InvalidInput as wrong:  # what the handler asked for cannot be done: the rule says when, and the reason why
        error = wrong
    return _by_rule(job, limits.rule, error, rank)


def give_up(job: Job, limits: Limits) -> Bury | None:
    """Bury a job before it runs again, if `max_crashes` is set and so many of its leases ended without an outcome.

    Crashes do not count towards `max_attempts`, which limits the failures of the handler.
    """
    if limits.max_crashes is not None and job.crashes >= limits.max_crashes:
        return Bury(job.lease, f"poison: {_crashed(job.crashes)}; its worker may have died")
    return None


QUARANTINED = 2
"""Crashes from which on a job runs alone, after pauses."""


def runs_alone(job: Job, limits: Limits) -> bool:
    """Whether nothing else may be in hand while a job runs: it is quarantined, or `max_crashes` leaves it few runs.

    A first crash alone is not enough: a kill -9 of a busy worker gives one to all its jobs, and they would come back
    one after the other. They run again each in a batch of its own.
    """
    most = QUARANTINED if limits.max_crashes is None else min(QUARANTINED, max(1, limits.max_crashes - 2))
    return job.crashes >= most


def quarantine_pause(crashes: int) -> float:
    """Seconds between the starts of a job whose leases ended so many times without an outcome; 0: it has no pause.

    >>> [quarantine_pause(crashes) for crashes in (1, 2, 3, 10, 11)]
    [0.0, 10.0, 20.0, 2560.0, 3600.0]
    """
    return 0.0 if crashes < QUARANTINED else min(LONGEST, 10.0 * 2.0 ** min(crashes - QUARANTINED, 64))


def quarantine(job: Job) -> Retry | None:
    """Give a job that was just taken back until its pause is over; None: it has served it, or needs none.

    A job keeps its last two start times, and they tell whether it has served its pause:

    - When its lease ends, the store sets `start_time` to that moment, and `prev_start_time` to the start time of the
      run that crashed. If they are a pause apart (its lease is long, or it waited for a worker), it may run at once.
    - Otherwise it goes back until `start_time` plus the pause. That retry moves `start_time` to `prev_start_time`, so
      on the next take the two are a pause apart, whichever worker takes it: one crash costs one pause.
    - A job that comes back within its pause for another reason (it failed, or its worker left) serves it anew.

    So the start times of its runs are at least a pause apart, and each run has one of its own: however its workers die,
    it takes down no more than one of them in each pause, on average.
    """
    pause = round(quarantine_pause(job.crashes) * 1000)
    if not pause or job.start_time - (job.prev_start_time or 0) >= pause:
        return None
    reason = f"quarantined: {_crashed(job.crashes)}; it runs alone, after a pause of {pause // 1000} s"
    return Retry(job.lease, at=job.start_time + pause, reason=reason, counts=False)


def _crashed(crashes: int) -> str:
    times = f" {crashes} times" if crashes > 1 else ""
    return f"its lease ended{times} without an outcome"


def describe(error: BaseException) -> str:
    """An error in one line, for a job's reason. A retry that gives none has the error that it was asked for.

    >>> describe(ValueError("no such user"))
    'ValueError: no such user'
    """
    if (cause := cause_of(error)) is not None and not getattr(error, "reason", ""):
        error = cause
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as broken:  # the user's class: its mistake must not cost the batch its outcomes
        text = f"its text cannot be had ({type(broken).__name__} in __str__)"
    return clean(f"{name}: {text}" if text else name)


def cause_of(error: BaseException) -> BaseException | None:
    """The error for which a retry was asked: `raise RetryLater(…) from error`, `batch.retry(…, error=error)`.

    None: the handler only asked, or this is no `RetryLater`.
    """
    cause = error.__cause__ if isinstance(error, RetryLater) else None
    return None if isinstance(cause, RetryLater) else cause


def _by_rule(job: Job, rule: RetryRule, error: BaseException, rank: float | None) -> Outcome:
    reason = describe(error)
    try:
        pause = rule(job.tries, error)
        if pause is None:
            return Bury(job.lease, reason)
        return Retry(job.lease, delay=pause, reason=reason, rank=rank)
    except Exception as broken:  # a rule is the user's code: its own mistake must not lose the job or spin
        return Retry(job.lease, delay=LONGEST, reason=f"{reason} (and the retry rule failed: {describe(broken)})")
