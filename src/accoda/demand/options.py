"""The options of a demand, its answers, what it needs of the app, and how users' functions become handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict, TypeVar, get_args, get_origin

from msgspec import Struct

from accoda.budget import BudgetView
from accoda.demand.prefetch import Prefetch
from accoda.demand.score import Weights
from accoda.demand.waiters import Waiter
from accoda.enqueue import Cost
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions
from accoda.model import Enqueued, NewJob
from accoda.queue_access import QueueHooks
from accoda.storage.protocol import Store

R = TypeVar("R")
What = Literal["cached", "stale", "attached", "created", "outbox"]
Left = Literal["left", "cancelled", "absent"]


class Answer(Struct, frozen=True):
    """The answer to a request. `id` is the job that serves it: the delivery of a result that is there, or the fetch.

    "outbox": the request is in the outbox of the caller's transaction, and what becomes of it is decided when it is
    relayed; it has no id (0) before.

    `waiters` is how many entries the fetch job has, including those of waiters that left; `fetched_at` is that of a
    result that is there.
    """

    what: What
    id: int
    waiters: int = 0
    fetched_at: int | None = None


class DemandOptions(TypedDict, total=False):
    """The options of a demand.

    `fresh_for`: how long a result counts as fresh (an hour; 0: nothing is cached); `keep_for`: how long it is still
    given, as stale, while a new one is fetched (at least `fresh_for`, which it is without it). `cost` (a number, or a
    function of the key) is taken from `budget`, one name or several. `weights` are the parameters of the score,
    `prefetch` fetches ahead when there is nothing else to do. Every `upkeep` seconds the jobs whose score time has
    changed are reranked.
    """

    fresh_for: float | timedelta
    keep_for: float | timedelta | None
    cost: Cost
    budget: str | tuple[str, ...] | None
    weights: Weights
    prefetch: Prefetch | None
    upkeep: float | timedelta


class Connections(Protocol):
    async def get(self) -> Store: ...


class Transactions(Protocol):
    """Enqueues in a caller's transaction."""

    async def enqueue(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]: ...
    def enqueue_blocking(self, connection: object, jobs: Sequence[NewJob], run: Any) -> list[Enqueued]: ...


class SyncHost(Protocol):
    def run(self, call: Coroutine[Any, Any, R]) -> R: ...


class DemandHandler(Protocol):
    """A handler whose codec and hooks the demand sets."""

    codec: Any
    hooks: QueueHooks | None


class Host(Protocol):
    """What a demand needs of the app. `current` is the running job."""

    @property
    def connections(self) -> Connections: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def sync(self) -> SyncHost: ...
    @property
    def handlers(self) -> Mapping[str, object]: ...
    @property
    def current(self) -> Any: ...
    def add_handler(self, queue: str, function: Callable[..., Any], options: HandlerOptions) -> DemandHandler: ...
    async def budget_views(self) -> dict[str, BudgetView]: ...


def check_place(options: HandlerOptions) -> HandlerOptions:
    """Refuse a process: it could not reach the demand."""
    if options.get("run_in") == "process":
        raise InvalidInput("run_in", "a demand's functions run on the loop or in a thread, not in a process")
    return options


def named_as(function: Callable[..., Any], run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let logs and errors name the user's function. Not functools.wraps: its signature is not the handler's."""
    run.__name__ = getattr(function, "__name__", "fetch")
    run.__module__, run.__doc__ = function.__module__, function.__doc__
    return run


def parameters_of(function: Callable[..., Any], what: str, *wanted: str) -> list[str]:
    """The names of a function's parameters; there must be as many as wanted."""
    if not callable(function):
        raise InvalidInput(what, f"decorates a function of {' and '.join(wanted)}, not {function!r:.60}")
    found = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if len(found) != len(wanted) or any(p.kind is p.KEYWORD_ONLY for p in found):
        name = getattr(function, "__name__", repr(function))
        raise InvalidInput(what, f"{name} must take {' and '.join(wanted)}, and nothing else without a default")
    return [p.name for p in found]


def data_type(hint: Any) -> Any:
    """The type of a waiter's data: `Filters` of `Waiter[Filters]`."""
    return (get_args(hint) or (Any,))[0] if get_origin(hint) is Waiter else Any
