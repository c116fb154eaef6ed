"""A handler: the user's function, what it says of its queue, and the typed way to enqueue to it."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin

from msgspec import Struct

from accoda.enqueue import Cost, EnqueueOptions, Line
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.model import Enqueued, check_queue
from accoda.payload import Codec, codec_of
from accoda.priority import policy
from accoda.retry import RetryRule, rule
from accoda.runtime.batch import Batch
from accoda.runtime.rites import Rites
from accoda.times import seconds

if TYPE_CHECKING:
    from accoda.app import App

RunIn = Literal["loop", "thread", "process"]
LOG_FOR = 7 * 86_400.0
"""Seconds for which the log of token use is kept, unless a handler says otherwise."""

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class HandlerOptions(TypedDict, total=False):
    """What a handler may say of its queue. Settings of the same meaning win over `batch`, `lease`, `timeout`,
    `max_attempts`, `max_crashes` and `keep_dead_for`, so that a running worker can be tuned."""

    batch: int
    max_attempts: int | None
    max_crashes: int | None
    lease: float | timedelta
    retry: RetryRule | float | None
    policy: str
    keep_for: float | timedelta
    keep_dead_for: float | timedelta | None
    timeout: float | timedelta | None
    run_in: RunIn | None
    cost: Cost
    secret: Sequence[str]
    budget: str | Sequence[str] | None
    urgent: float | None
    log_for: float | timedelta
    number: int | None


class Options(Struct, frozen=True, kw_only=True):
    """`HandlerOptions`, checked. None: not said, so the settings or their defaults hold."""

    batch: int | None = None
    max_attempts: int | None = None
    max_crashes: int | None = None
    lease: float | None = None
    retry: RetryRule
    policy: str = "strict"
    keep_for: float = 0.0
    keep_dead_for: float | None = None
    timeout: float | None = None
    run_in: RunIn
    cost: Cost = 0
    secret: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    urgent: float | None = None
    log_for: float = LOG_FOR
    number: int | None = None


class Handler(Generic[T, A, R]):
    """A function that handles the jobs of a queue. Called plainly, it is the function that you wrote."""

    def __init__(self, app: App, queue: str, function: Callable[[A], R], options: HandlerOptions) -> None:
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
        self.rites: Rites | None = None
        """What a queue of ours does around the runs; a user's handler has none."""
        told = self.options
        self.line = Line(queue, policy(told.policy), self.codec.encode, told.keep_for, told.cost, told.secret)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    async def enqueue(self, payload: T = None, **options: Unpack[EnqueueOptions]) -> Enqueued:  # type: ignore[assignment]
        """Enqueue one job to this handler's queue."""
        return await self.app.enqueue(self.queue, payload, **options)

    async def enqueue_many(self, payloads: typing.Iterable[T], **options: Unpack[EnqueueOptions]) -> list[Enqueued]:
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


def check_options(function: Callable[..., Any], given: HandlerOptions) -> Options:
    """The options of a handler, with what is wrong named."""
    unknown = given.keys() - HandlerOptions.__annotations__.keys()
    if unknown:
        names = ", ".join(HandlerOptions.__annotations__)
        raise InvalidInput(min(unknown), f"there is no such option of a handler; use {names}")
    for field in ("batch", "max_attempts", "max_crashes"):
        _check_whole(field, given.get(field))
    policy(given.get("policy", "strict"))
    return Options(
        batch=given.get("batch"),
        max_attempts=given.get("max_attempts"),
        max_crashes=given.get("max_crashes"),
        lease=_length("lease", given.get("lease")),
        retry=rule(given.get("retry")),
        policy=given.get("policy", "strict"),
        keep_for=seconds("keep_for", given.get("keep_for", 0.0)),
        keep_dead_for=_length("keep_dead_for", given.get("keep_dead_for")),
        timeout=_length("timeout", given.get("timeout")),
        run_in=_where(function, given.get("run_in")),
        cost=_cost(given.get("cost", 0)),
        secret=_secret(given.get("secret", ())),
        budgets=_budgets(given.get("budget")),
        urgent=_number("urgent", given.get("urgent")),
        log_for=seconds("log_for", given.get("log_for", LOG_FOR)),
        number=given.get("number"),
    )


def _budgets(given: object) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise InvalidInput("budget", f"must be the name of a budget, or a tuple of names, not {given!r:.60}")
    if len(set(names)) < len(names):
        raise InvalidInput("budget", f"must name each budget once, not {given!r:.60}")
    return tuple(names)


def _secret(given: object) -> tuple[str, ...]:
    if not isinstance(given, (tuple, list)) or not all(isinstance(name, str) and name for name in given):
        raise InvalidInput(
            "secret", f"must be a tuple of names of payload fields, such as ('card',), not {given!r:.60}"
        )
    return tuple(given)


def _number(field: str, given: object) -> float | None:
    if given is None or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return given
    raise InvalidInput(field, f"must be a rank, which is a number, not {given!r:.60}")


def _cost(given: object) -> Cost:
    if callable(given) or (isinstance(given, str) and given.isidentifier()):
        return given
    if type(given) is int and 0 <= given <= COST:
        return given
    raise InvalidInput("cost", f"must be an integer >= 0, a payload field's name or a function, not {given!r:.60}")


def _where(function: Callable[..., Any], asked: object) -> RunIn:
    """`async def` runs on the loop, `def` in a thread unless a process is asked for."""
    is_async = inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async is a handler too
    )
    if asked is None:
        return "loop" if is_async else "thread"
    if asked not in get_args(RunIn):
        raise InvalidInput("run_in", f"must be one of {', '.join(get_args(RunIn))}, not {asked!r}")
    if is_async and asked == "thread":
        raise InvalidInput("run_in", "an async def handler runs on the loop; write def, or use run_in='process'")
    if not is_async and asked == "loop":
        raise InvalidInput("run_in", "a def handler would block the loop; write async def, or leave run_in out")
    return typing.cast(RunIn, asked)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, also of a function that was written inside another one."""
    target = function if inspect.isroutine(function) else type(function).__call__
    frame = sys._getframe(1)
    while frame is not None:
        try:
            return typing.get_type_hints(target, localns=dict(frame.f_locals), include_extras=True)
        except NameError as error:
            missing = error
            if frame.f_back is None:
                break
            frame = frame.f_back
    raise InvalidInput("handler", f"its annotation cannot be read: {missing}; import the type at the top") from missing


def _check_whole(field: str, value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidInput(field, f"must be an integer >= 1, not {value!r}")


def _length(field: str, given: float | timedelta | None) -> float | None:
    """A length of time in seconds, more than none at all; None where it was not said."""
    if given is None:
        return None
    value = seconds(field, given)
    if value <= 0:
        raise InvalidInput(field, f"must be more than 0 seconds, not {value!r}")
    return value


_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
