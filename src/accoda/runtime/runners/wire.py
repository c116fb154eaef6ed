"""What a worker and its child processes say to each other, in msgpack over a socket of their own.

worker → child    Hello · Work · Note                        the end of the stream: the child must end
child → worker    Ready or Broken · Began · Said, Follow, Skipped · Over
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable

import msgspec
from msgspec import Struct

from accoda.errors import AccodaError
from accoda.model import Job, NewJob
from accoda.retry import Failed, Finished, Result, describe


class Hello(Struct, tag=True):
    """The first message: where to find the handler."""

    path: list[str]
    module: str
    name: str


class Work(Struct, tag=True):
    """A batch to run."""

    queue: str
    jobs: list[Job]
    deadline: int | None = None


class Note(Struct, tag=True):
    """News of the batch that runs. Jobs that are lost are not begun any more."""

    stopping: bool
    lost: list[int]


class Ready(Struct, tag=True):
    """The handler was found."""


class Broken(Struct, tag=True):
    """The handler was not found; the child ends."""

    reason: str


class Began(Struct, tag=True):
    """The work has arrived, and the first call of the handler begins."""


class Raised(Struct):
    """An error on its way to another process: itself, if it can travel, and its text in any case."""

    kind: str
    text: str
    trace: str
    pickled: bytes | None = None


class Said(Struct, tag=True):
    """What became of a job; the last word counts. `final`: the handler's call for this job is over."""

    id: int
    result: bytes | None = None
    raised: Raised | None = None
    final: bool = False


class Follow(Struct, tag=True):
    """A follow-up of a job, or of the batch where there is no id."""

    id: int | None
    job: NewJob


class Skipped(Struct, tag=True):
    """A job that was not begun, because it was lost before."""

    id: int


class Over(Struct, tag=True):
    """The batch is done with; `raised` is what a handler of whole batches raised."""

    raised: Raised | None = None


ToChild = Hello | Work | Note
ToWorker = Ready | Broken | Began | Said | Follow | Skipped | Over

encode = msgspec.msgpack.Encoder().encode
decode_in_child: Callable[[bytes], ToChild] = msgspec.msgpack.Decoder(ToChild).decode
decode_in_worker: Callable[[bytes], ToWorker] = msgspec.msgpack.Decoder(ToWorker).decode


class RemoteTraceback(Exception):
    """The cause of an error that was raised in a child process: the text of its traceback."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def said(id: int, result: Result, final: bool = False) -> Said:
    """A result as a message."""
    if isinstance(result, Finished):
        return Said(id, result.result, None, final)
    return Said(id, None, pack(result.error), final)


def result_of(message: Said, then: tuple[NewJob, ...] = ()) -> Result:
    """The result in a message."""
    if message.raised is not None:
        return Failed(unpack(message.raised))
    return Finished(message.result, then)


def pack(error: BaseException) -> Raised:
    """An error, to be sent."""
    raised = Raised(type(error).__name__, _text(error), "".join(traceback.format_exception(error)))
    try:
        raised.pickled = pickle.dumps(error)
    except Exception:  # it holds a lock, a socket, a lambda
        raised.pickled = None
    return raised


def unpack(raised: Raised) -> BaseException:
    """The error that was sent, so that a retry rule can look at it; one with the same name and text if need be."""
    error: BaseException | None = None
    if raised.pickled is not None:
        try:
            error = pickle.loads(raised.pickled)
        except Exception:  # its class cannot be imported here, or its constructor wants other arguments
            error = None
    if not isinstance(error, BaseException):
        error = type(raised.kind, (AccodaError,), {"__doc__": "Stands for an error of a child process."})(raised.text)
    error.__cause__ = RemoteTraceback(raised.trace)
    return error


def _text(error: BaseException) -> str:
    return describe(error).removeprefix(type(error).__name__).removeprefix(": ")
