"""What an app knows of the queue of a schedule's jobs, in a form that is stored with the schedule. Pure.

A store is shared by several apps, and any process that is there does the tick. The job must not depend on which one
it was: its rank, its cost, how long it is kept and the bytes of its payload are those that the handler's app told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from accoda.enqueue import Line, cost_of
from accoda.errors import InvalidInput
from accoda.payload import Codec, UnreadablePayload, decode, encode, name_of
from accoda.priority import POLICIES, policy
from accoda.schedules.model import Schedule

if TYPE_CHECKING:
    from accoda.app import App


class Terms(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`data` is the payload as the handler's codec writes it; None: as anybody would."""

    policy: str = "strict"
    data: bytes | None = None
    cost: int = 0
    keep_for: float = 0.0


class OfDemand(InvalidInput):
    """The queue of a demand, or a companion of it, where a schedule's jobs should go. Carries `queue`."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            "queue", f"{queue!r} belongs to a demand, whose jobs are made by requests of a key, in code; name another"
        )
        self.queue = queue


def check_queue_of_jobs(app: App | None, queue: str) -> None:
    """Refuse a queue in which a schedule's jobs have no meaning, as far as this app knows."""
    if app is not None and queue.partition(".")[0] in app.demands:
        raise OfDemand(queue)


def line_of(app: App, queue: str) -> Line | None:
    """What an app knows of a queue. None: it has no handler of it, or its policy has no name to be stored under."""
    known = queue in app.handlers or queue in app._lines
    line = app._line(queue)
    return line if known and line.policy in POLICIES.values() else None


def terms_from(line: Line, schedule: Schedule) -> Terms:
    """What is to be stored. `InvalidInput`: no handler of this line could read the payload."""
    plain = encode(decode(encode(schedule.payload)))  # what will be made of the payload in the record
    payload, data = _written(line, schedule, plain)
    return Terms(
        policy=next(name for name, one in POLICIES.items() if one is line.policy),
        data=None if data == plain else data,
        cost=0 if schedule.cost is not None else cost_of(line.cost, payload),
        keep_for=line.keep_for,
    )


def line_from(queue: str, terms: Terms) -> Line:
    """The line that makes the same jobs, wherever it is."""
    data = terms.data
    return Line(queue, policy(terms.policy), encode if data is None else lambda _: data, terms.keep_for, terms.cost)


def mark_of(terms: Terms) -> list[Any]:
    """What of it makes a declaration another one, for its fingerprint."""
    # Of the bytes, which and how many: every process writes the elements of a set in an order of its own. That the
    # payload itself is another one, the fingerprint sees from the schedule.
    return [terms.policy, bytes(sorted(terms.data or b"")), terms.cost, terms.keep_for]


def _written(line: Line, schedule: Schedule, plain: bytes) -> tuple[Any, bytes]:
    """The payload as the handler's type, and the bytes that the handler reads as that."""
    given, codec = schedule.payload, getattr(line.encode, "__self__", None)
    if type(codec) is Codec:
        with suppress(UnreadablePayload):
            read = codec.decode(plain)
            return given if codec.type is Any else read, plain
    payload = _fitted(line, given, getattr(codec, "type", Any))
    return payload, line.encode(payload)


def _fitted(line: Line, payload: Any, wanted: Any) -> Any:
    """What is bytes or a record there is text or a map in JSON and TOML."""
    if wanted is Any:
        return payload
    try:
        return msgspec.convert(payload, wanted)
    except Exception as error:  # a user's record may raise what it likes
        try:
            line.encode(payload)  # what is of another class may still be read by the handler
        except InvalidInput:
            raise InvalidInput("payload", f"does not fit {name_of(wanted)}: {error}") from error
        return payload
