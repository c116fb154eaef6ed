"""The jobs that wait in testing mode: what a test says of them, and how they are listed where an assertion fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from msgspec import Struct

from accoda.envelope import unwrap
from accoda.errors import InvalidInput
from accoda.model import JobInfo, State
from accoda.priority import Policy, Priority, read_priority
from accoda.times import EPOCH, milliseconds, seconds

T = TypeVar("T")

LISTED = 10
"""The most jobs that the message of an assertion lists."""
SHOWN = 200
"""The most characters of a payload in such a message."""


class Expected(TypedDict, total=False):
    """What a test may say of a job beside its payload; what it does not say may be anything.

    `headers` are those that the job must have; it may have more. `delay` is how long after its enqueue it may start,
    `at` the moment.
    """

    type: str | None
    lane: str | None
    key: str | None
    name: str | None
    headers: Mapping[str, str]
    priority: Priority | str
    delay: float | timedelta
    at: datetime | int


class WaitingJob(Struct, Generic[T], frozen=True):
    """A job that waits, with its payload decoded. `info` is everything that is stored about it."""

    payload: T
    info: JobInfo
    policy: Policy

    @property
    def id(self) -> int:
        return self.info.id

    @property
    def queue(self) -> str:
        return self.info.queue

    @property
    def state(self) -> State:
        """`ready`, `delayed`, or `held` while its lane is full."""
        return self.info.state

    @property
    def lane(self) -> str | None:
        return self.info.lane

    @property
    def key(self) -> str | None:
        return self.info.key

    @property
    def type(self) -> str | None:
        return unwrap(self.info.data)[0].type

    @property
    def name(self) -> str | None:
        return unwrap(self.info.data)[0].name

    @property
    def headers(self) -> Mapping[str, str]:
        return unwrap(self.info.data)[0].headers

    @property
    def starts_at(self) -> datetime:
        """When it may start."""
        return EPOCH + timedelta(milliseconds=self.info.start_time)

    @property
    def delay(self) -> float:
        """Seconds from its enqueue to that moment."""
        return max(0, self.info.start_time - self.info.created_at) / 1000


def check_expected(expected: Expected) -> None:
    """Refuse what no job has, before it fits none."""
    for name in expected:
        if name not in _FITS:
            raise InvalidInput(name, f"there is no such condition; use payload, count, {', '.join(_FITS)}")


def fits(job: WaitingJob[Any], payload: object, expected: Expected) -> bool:
    """Whether a job is as a test says; `payload` `...`: any."""
    said: dict[str, Any] = {**expected}
    return (payload is ... or bool(job.payload == payload)) and all(_FITS[name](job, said[name]) for name in said)


def _has_priority(job: WaitingJob[Any], priority: Priority | str) -> bool:
    since = max(job.info.created_at, job.info.start_time)
    return job.info.rank == job.policy(read_priority(priority), since)


_FITS: dict[str, Callable[[WaitingJob[Any], Any], bool]] = {
    "type": lambda job, type: job.type == type,
    "lane": lambda job, lane: job.lane == lane,
    "key": lambda job, key: job.key == key,
    "name": lambda job, name: job.name == name,
    "headers": lambda job, headers: headers.items() <= job.headers.items(),
    "priority": _has_priority,
    "delay": lambda job, delay: job.delay == round(seconds("delay", delay), 3),
    "at": lambda job, at: job.info.start_time == milliseconds("at", at),
}


def wanted(queue: str, payload: object, expected: Expected) -> str:
    """What a test looks for, in words."""
    said = [f"payload {_short(payload)}"] if payload is not ... else []
    said += [f"{name} {value!r}" for name, value in expected.items()]
    return f"job of {queue}" + (f" with {', '.join(said)}" if said else "")


def listed(jobs: Iterable[WaitingJob[Any]], now: int) -> str:
    """A line for each job, for the message of an assertion."""
    lines = [_line(job, now) for job in jobs]
    more = len(lines) - LISTED
    return "".join(f"\n  {line}" for line in lines[:LISTED]) + (f"\n  and {more} more" if more > 0 else "")


def _line(job: WaitingJob[Any], now: int) -> str:
    parts = [f"job {job.id}: {_short(job.payload)}"]
    parts += [f"{name} {value!r}" for name in ("type", "name", "key", "lane") if (value := getattr(job, name))]
    if job.headers:
        parts.append(f"headers {dict(job.headers)!r}")
    if job.state == "delayed":
        parts.append(f"starts in {(job.info.start_time - now) / 1000:g} s")
    elif job.state == "held":
        parts.append("held: its lane is full")
    return ", ".join(parts)


def _short(payload: object) -> str:
    text = repr(payload)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
