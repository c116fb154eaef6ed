"""A handler: the user's function, what it says of its jobs, and the typed way to enqueue to it; a queue's handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, Unpack, get_args, get_origin

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import EnqueueOptions, QueueSpec
from accoda.errors import InvalidInput
from accoda.flows.chains import JobCall
from accoda.flows.nodes import UNSAID, NodeOptions
from accoda.handler_options import (
    QUEUE_WIDE,
    HandlerOptions,
    Options,
    check_fair,
    check_options,
    hints_of,
    is_coroutine_function,
)
from accoda.model import Enqueued, NewJob, SyncEnqueued, check_queue
from accoda.payload import Codec, codec_of
from accoda.priority import policy
from accoda.queue_access import QueueHooks
from accoda.runtime.batch import Batch, Running, current
from accoda.runtime.middleware import Around

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


class SyncProducer(Protocol):
    """What enqueues for a handler without `await`."""

    def enqueue(
        self, queue: str, payload: object = None, *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncEnqueued[Any]: ...

    def enqueue_many(
        self, queue: str, payloads: Iterable[object], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncEnqueued[Any]]: ...


class Producer(Protocol):
    """What enqueues for a handler: the app."""

    @property
    def around(self) -> tuple[Around, ...]: ...

    @property
    def sync(self) -> SyncProducer: ...

    async def enqueue(
        self, queue: str, payload: object = None, *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> Enqueued[Any]: ...

    async def enqueue_many(
        self, queue: str, payloads: Iterable[object], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued[Any]]: ...

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...


class Handler(Generic[T, R, V]):
    """A function that handles the jobs of a queue, or those of one type in it. Called plainly, it is the function that
    you wrote.

    `T` is the payload, `R` what a plain call gives (a coroutine, of `async def`), `V` the result of a job.
    """

    def __init__(self, app: Producer, queue: str, function: Callable[..., R], options: HandlerOptions) -> None:
        check_queue(queue)
        if not callable(function):
            raise InvalidInput("handler", f"@app.handler decorates a function, not {function!r:.60}")
        self.app = app
        self.queue = queue
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", queue)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        form = read_form(function)
        self.is_async = is_coroutine_function(function)
        self.takes_batch = form.batch
        self.takes_payload = form.payload
        self.result_type = form.result
        self.codec: Codec[T] = codec_of(form.type)
        self.options = check_options(function, options)
        if self.options.settle == "explicit" and not form.batch:
            raise InvalidInput(
                "settle", f"is for handlers of batches, and {self.__name__} takes one job: return is done"
            )
        """Its own options, with those of its queue that another handler said."""
        self.type = self.options.type
        self.hooks: QueueHooks | None = None
        """What a queue of ours does around the runs; a user's handler has none."""
        self.spec = self._spec()

    def inherit(self, options: Options) -> None:
        """Take over what holds for the whole queue."""
        self.options = replace(self.options, **{name: getattr(options, name) for name in QUEUE_WIDE})
        self.spec = self._spec()

    def _spec(self) -> QueueSpec:
        told = self.options
        return QueueSpec(
            self.queue,
            policy(told.policy),
            self.codec.encode,
            told.keep_for,
            told.cost,
            told.secret,
            self.type,
            self.result_type,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    async def enqueue(
        self,
        payload: T = None,  # type: ignore[assignment]
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued[V]:
        """Enqueue one job to this handler: of its queue and its type."""
        return await self.app.enqueue(self.queue, payload, connection=connection, **self.typed(options))

    async def enqueue_many(
        self, payloads: Iterable[T], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued[V]]:
        """Enqueue a job for each payload, all of them or none."""
        return await self.app.enqueue_many(self.queue, payloads, connection=connection, **self.typed(options))

    def job(self, payload: T = UNSAID, *, name: str | None = None, **options: Unpack[NodeOptions]) -> JobCall:
        """A job of this handler, to be part of a `chain` or `group`; `name` is that of its node."""
        return JobCall(self, payload, name, options)

    @property
    def sync(self) -> SyncHandler[T, V]:
        """The same calls without `await`: `send.sync.enqueue(…)`."""
        return SyncHandler(self)

    @property
    def current(self) -> Running[T]:
        """The job of this handler that runs here: `app.current`, with the type of its payload."""
        job = current.get()
        if job is None or job.queue != self.queue or self.type not in (None, job.type):
            raise InvalidInput("current", f"no job of {self!r} runs here: only a single handler has one")
        return job

    def typed(self, options: EnqueueOptions) -> EnqueueOptions:
        """The options of a job of this handler."""
        if self.type is None:
            return options
        if options.setdefault("type", self.type) != self.type:
            raise InvalidInput("type", f"{self!r} has no jobs of type {options['type']!r}; use app.enqueue for those")
        return options

    def __repr__(self) -> str:
        typed = "" if self.type is None else f", type {self.type}"
        return f"<handler {self.__name__} of queue {self.queue}{typed}>"


class SyncHandler(Generic[T, V]):
    """`handler.sync`: enqueues to a handler without `await`."""

    def __init__(self, handler: Handler[T, Any, V]) -> None:
        self._handler = handler

    def enqueue(
        self,
        payload: T = None,  # type: ignore[assignment]
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> SyncEnqueued[V]:
        """Enqueue one job to this handler: of its queue and its type."""
        handler = self._handler
        return handler.app.sync.enqueue(handler.queue, payload, connection=connection, **handler.typed(options))

    def enqueue_many(
        self, payloads: Iterable[T], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncEnqueued[V]]:
        """Enqueue a job for each payload, all of them or none."""
        handler = self._handler
        return handler.app.sync.enqueue_many(handler.queue, payloads, connection=connection, **handler.typed(options))


class QueueHandlers:
    """The handlers of one queue, by the type of job that each is for."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.by_type: dict[str | None, Handler[Any, Any, Any]] = {}
        """In the order of their declaration. The one of None handles what no other does."""
        self.options = Options()
        """What holds for the whole queue, from whichever handler said it; of the rest, what all handlers agree on."""

    def find(self, type: str | None) -> Handler[Any, Any, Any] | None:
        """The handler of a job of this type: its own, or else the one without a type. A job without a type has the
        queue's only handler if there is just one. None: no handler here is for it."""
        found = self.by_type.get(type) or self.by_type.get(None)
        if found is None and type is None and len(self.by_type) == 1:
            (found,) = self.by_type.values()
        return found

    def spec(self, type: str | None) -> QueueSpec:
        """How jobs of a type are made, also of one that only other processes handle."""
        found = self.find(type)
        return QueueSpec(self.queue, policy(self.options.policy)) if found is None else found.spec

    def add(self, handler: Handler[Any, Any, Any]) -> None:
        """One more handler. Refuses a type that has one, and an option of the queue that contradicts another's."""
        if handler.type in self.by_type:
            other = self.by_type[handler.type]
            problem = f"{self.queue!r} has a handler already: {other!r}; give this one a type of its own"
            raise InvalidInput("queue" if handler.type is None else "type", problem)
        for other in self.by_type.values():
            _check_agree(handler, other)
        self.by_type[handler.type] = handler
        self._share()

    def remove(self, handler: Handler[Any, Any, Any]) -> None:
        """Take a handler back."""
        del self.by_type[handler.type]
        self._share()

    def _share(self) -> None:
        """Tell each handler what the others say of the queue."""
        every = [handler.options for handler in self.by_type.values()]
        told = {name: getattr(one, name) for one in every for name in QUEUE_WIDE if name in one.said}
        for name in _OWN:
            value = getattr(every[0], name) if every else None
            if every and all(getattr(one, name) == value for one in every):
                told[name] = value
        self.options = Options(**told)
        for handler in self.by_type.values():
            handler.inherit(self.options)


def _check_agree(one: Handler[Any, Any, Any], other: Handler[Any, Any, Any]) -> None:
    check_fair(one.options.policy, other.options.lanes)
    check_fair(other.options.policy, one.options.lanes)
    for name in QUEUE_WIDE:
        mine, theirs = getattr(one.options, name), getattr(other.options, name)
        if mine != theirs and name in one.options.said and name in other.options.said:
            field = "budget" if name == "budgets" else name
            raise InvalidInput(
                field,
                f"is {mine!r} of {one!r} and {theirs!r} of {other!r}; it holds for the whole queue, so say it once",
            )


class Form(Struct, frozen=True):
    """What a handler's signature says: does it take a batch, does it take a payload at all, of which type, and what
    does it return."""

    batch: bool
    payload: bool
    type: Any = Any
    result: Any = Any


def read_form(function: Callable[..., Any]) -> Form:
    """The form of a handler, from its first parameter and its return annotation."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in _PLAIN]
    needed = [p for p in parameters if p.default is p.empty]
    name = getattr(function, "__name__", repr(function))
    if len(needed) > 1:
        names = ", ".join(p.name for p in needed)
        advice = ". Dependencies are given by @inject: see accoda.asgi.Injector" if "Depends(" in str(needed) else ""
        raise InvalidInput("handler", f"{name} takes {names}; a handler takes one payload, or one Batch{advice}")
    if not parameters:
        return Form(batch=False, payload=False, result=_result_hint(function))
    hints = hints_of(function)
    if parameters[0].name == "batch" and "batch" not in hints:
        raise InvalidInput(
            "handler",
            f"{name} takes a batch, and does not say of what: write batch: Batch, or batch: Batch[Email]; "
            "a payload that has this name needs an annotation, too",
        )
    hint, result = hints.get(parameters[0].name, Any), hints.get("return", Any)
    if hint is Batch or get_origin(hint) is Batch:  # its jobs have the results that it says of each
        return Form(batch=True, payload=True, type=(get_args(hint) or (Any,))[0])
    return Form(batch=False, payload=True, type=hint, result=result)


def _result_hint(function: Callable[..., Any]) -> Any:
    try:
        return hints_of(function).get("return", Any)
    except InvalidInput:  # only needed if a result is asked for, which may then be read as it is
        return Any


_OWN = tuple(name for name in Options.__struct_fields__ if name not in (*QUEUE_WIDE, "said"))
_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
