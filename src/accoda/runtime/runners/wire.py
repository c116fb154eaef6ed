"""What a worker and its child processes say to each other, in msgpack over a socket of their own.

worker → child    Hello · Work · News                        the end of the stream: the child must end
child → worker    Ready or Broken · Began · Said, Follow, Reported · Over
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from accoda.budget.report import BudgetReport
from accoda.model import Job, NewJob
from accoda.retry import Failed, Finished, Result
from accoda.runtime.events import HandlerStats
from accoda.runtime.logs.setup import LogOptions
from accoda.runtime.runners.raised import Raised, pack, unpack


class Hello(Struct, tag=True):
    """The first message: where to find the handler, and the worker's limits and logs, as in the child."""

    path: list[str]
    module: str
    name: str
    limits: dict[str, int]
    logs: LogOptions | None = None


class Work(Struct, tag=True):
    """A call of the handler: with one job, or with a batch."""

    queue: str
    jobs: list[Job]
    deadline: int | None = None


class News(Struct, tag=True):
    """News of the batch that runs: the jobs of it that are lost."""

    stopping: bool
    lost: list[int]


class Ready(Struct, tag=True):
    """The handler was found."""


class Broken(Struct, tag=True):
    """The handler was not found; the child ends."""

    reason: str


class Began(Struct, tag=True):
    """The work has arrived, and the first call of the handler begins."""


class Said(Struct, tag=True):
    """What became of a job; the last word counts."""

    id: int
    result: bytes | None = None
    raised: Raised | None = None


class Follow(Struct, tag=True):
    """A follow-up of a job, or of the batch where there is no id."""

    id: int | None
    job: NewJob


class Reported(Struct, tag=True):
    """What the handler said of its queue's budgets."""

    report: BudgetReport


class Over(Struct, tag=True):
    """The call is over; of a handler of whole batches, what it raised, or how it counts by itself."""

    raised: Raised | None = None
    stats: HandlerStats | None = None


ToChild = Hello | Work | News
ToWorker = Ready | Broken | Began | Said | Follow | Reported | Over

encode = msgspec.msgpack.Encoder().encode
_for_child: Callable[[bytes], ToChild] = msgspec.msgpack.Decoder(ToChild).decode
_for_worker: Callable[[bytes], ToWorker] = msgspec.msgpack.Decoder(ToWorker).decode


class Garbled(Exception):
    """Bytes that are no message: something else wrote to the socket, and nothing after it can be believed."""


def decode_in_child(data: bytes) -> ToChild:
    try:
        return _for_child(data)
    except (ValueError, RecursionError) as error:
        raise Garbled(str(error)) from error


def decode_in_worker(data: bytes) -> ToWorker:
    try:
        return _for_worker(data)
    except (ValueError, RecursionError) as error:  # msgspec's, Unicode's and those of our own records are ValueErrors
        raise Garbled(str(error)) from error


def said(id: int, result: Result) -> Said:
    """A result as a message."""
    return Said(id, result.result) if isinstance(result, Finished) else Said(id, None, pack(result.error))


def result_of(message: Said) -> Result:
    """The result in a message."""
    return Finished(message.result) if message.raised is None else Failed(unpack(message.raised))
