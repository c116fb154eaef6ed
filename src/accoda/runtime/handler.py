"""A handler: the user's function, what it says of its queue, and the typed way to enqueue to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, Unpack, get_args, get_origin

from msgspec import Struct

from accoda.enqueue import EnqueueOptions, QueueSpec
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions, check_options, hints_of
from accoda.model import Enqueued, NewJob, check_queue
from accoda.payload import Codec, codec_of
from accoda.priority import policy
from accoda.queue_access import QueueHooks
from accoda.runtime.batch import Batch

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class Producer(Protocol):
    """What enqueues for a handler: the app."""

    async def enqueue(self, queue: str, payload: object = None, **options: Unpack[EnqueueOptions]) -> Enqueued: ...

    async def enqueue_many(
        self, queue: str, payloads: Iterable[object], **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]: ...

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...


class Handler(Generic[T, A, R]):
    """A function that handles the jobs of a queue. Called plainly, it is the function that you wrote."""

    def __init__(self, app: Producer, queue: str, function: Callable[[A], R], options: HandlerOptions) -> None:
        check_queue(queue)
        self.app = app
        self.queue = queue
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", queue)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        form = read_form(function)
        self.takes_batch = form.batch
        self.takes_payload = form.payload
        self.codec: Codec[T] = codec_of(form.type)
        self.options = check_options(function, options)
        self.hooks: QueueHooks | None = None
        """What a queue of ours does around the runs; a user's handler has none."""
        told = self.options
        self.spec = QueueSpec(queue, policy(told.policy), self.codec.encode, told.keep_for, told.cost, told.secret)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    async def enqueue(self, payload: T = None, **options: Unpack[EnqueueOptions]) -> Enqueued:  # type: ignore[assignment]
        """Enqueue one job to this handler's queue."""
        return await self.app.enqueue(self.queue, payload, **options)

    async def enqueue_many(self, payloads: Iterable[T], **options: Unpack[EnqueueOptions]) -> list[Enqueued]:
        """Enqueue a job for each payload, all of them or none."""
        return await self.app.enqueue_many(self.queue, payloads, **options)

    def __repr__(self) -> str:
        return f"<handler {self.__name__} of queue {self.queue}>"


class Form(Struct, frozen=True):
    """What a handler's signature says: does it take a batch, does it take a payload at all, and of which type."""

    batch: bool
    payload: bool
    type: Any = Any


def read_form(function: Callable[..., Any]) -> Form:
    """The form of a handler, from its first parameter."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in _PLAIN]
    needed = [p for p in parameters if p.default is p.empty]
    name = getattr(function, "__name__", repr(function))
    if len(needed) > 1:
        names = ", ".join(p.name for p in needed)
        raise InvalidInput("handler", f"{name} takes {names}; a handler takes one payload, or one Batch")
    if not parameters:
        return Form(batch=False, payload=False, type=Any)
    hint = hints_of(function).get(parameters[0].name, Any)
    if hint is Batch or get_origin(hint) is Batch:
        return Form(batch=True, payload=True, type=(get_args(hint) or (Any,))[0])
    return Form(batch=False, payload=True, type=hint)


_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
