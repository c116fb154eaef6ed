"""`@task`: Django's decorator, with what Accoda knows of a job beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from accoda.django.compat import GenericTask, InvalidTask, TaskContext
from accoda.enqueue import Cost
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions, check_options
from accoda.model import OnDuplicate
from accoda.retry import RetryRule

P = ParamSpec("P")
R = TypeVar("R")

Named = str | Callable[..., str | None] | None
"""A text for each job: a template over the arguments, such as "order-{order_id}", or a function of them."""

HANDLER_OPTIONS = ("max_attempts", "max_crashes", "retry", "timeout", "keep_for", "secret")
"""The options of a task that its handler has."""


class CallOptions(TypedDict, total=False):
    """What may be said of a task, and of single calls of it by `using`.

    `max_attempts`: how many times it may fail before it is FAILED; None: any number of times. `keep_for`: seconds for
    which the result is kept.

    `key`: at most one job with this key waits or runs in a queue; `on_duplicate` says what becomes of a second one.
    `lane`: whom the job belongs to, such as a customer. Both are a template over the arguments, "order-{order_id}", or
    a function of them. `cost`: what a job takes of the queue's budget.
    """

    max_attempts: int | None
    keep_for: float | timedelta | None
    key: Named
    on_duplicate: OnDuplicate
    lane: Named
    cost: Cost


class TaskOptions(CallOptions, total=False):
    """What may be said of a task beside Django's own options. What is not said is as `OPTIONS` of the backend says.

    `max_crashes`: how many workers may die of it. `retry`: when it runs again after a failure: seconds, `Fixed`,
    `Exponential` or a function. `timeout`: seconds that a run may take. `secret`: arguments that no list, page or log
    shows, such as ["kwargs.card"].
    """

    max_crashes: int | None
    retry: RetryRule | float | None
    timeout: float | timedelta | None
    secret: Sequence[str]


class _Unsaid:
    def __repr__(self) -> str:
        return "as OPTIONS says"

    def __reduce__(self) -> str:
        return "UNSAID"


UNSAID: Any = _Unsaid()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccodaTask(GenericTask[P, R]):
    """A task with the options of `TaskOptions`."""

    max_attempts: int | None = UNSAID
    max_crashes: int | None = UNSAID
    retry: RetryRule | float | None = UNSAID
    timeout: float | timedelta | None = UNSAID
    keep_for: float | timedelta | None = UNSAID
    secret: Sequence[str] = ()
    key: Named = None
    on_duplicate: OnDuplicate = "keep"
    lane: Named = None
    cost: Cost = 0

    def __post_init__(self) -> None:
        self.get_backend().validate_task(self)
        check_task(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Unpack[CallOptions],
    ) -> AccodaTask[P, R]:
        """A copy of the task with other options: Django's own, or those of `CallOptions`."""
        _check_names(options, CallOptions)
        own = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        return replace(self, **changes, **options)


def _check_names(given: Mapping[str, object], options: Any) -> None:
    known = options.__annotations__
    if unknown := given.keys() - known.keys():
        what = "a single call" if options is CallOptions else "a task"
        raise InvalidTask(f"{min(unknown)}: there is no such option of {what}; use {', '.join(known)}")


def check_task(task: AccodaTask[..., Any]) -> None:
    """Refuse options that no handler or job could have, where the task is declared."""
    try:
        check_options(task.func, handler_options(task))
    except InvalidInput as error:
        raise InvalidTask(f"{task.module_path}: {error}") from error
    for field in ("key", "lane"):
        value = getattr(task, field)
        if value is not None and not isinstance(value, str) and not callable(value):
            raise InvalidTask(f"{task.module_path}: {field}: must be a text or a function, not {value!r:.60}")


def handler_options(task: object) -> HandlerOptions:
    """What a task says of its handler, of which it may say nothing."""
    said = {name: getattr(task, name, UNSAID) for name in HANDLER_OPTIONS}
    return {name: value for name, value in said.items() if value is not UNSAID}  # type: ignore[return-value]


def named(task: object, field: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """The job's `key` or `lane`, from the arguments of its call."""
    value = getattr(task, field, None)
    if value is None:
        return None
    if callable(value):
        return value(*args, **kwargs)  # type: ignore[no-any-return]
    function: Callable[..., Any] = task.func  # type: ignore[attr-defined]
    context = (None,) if task.takes_context else ()  # type: ignore[attr-defined]
    try:
        bound = inspect.signature(function).bind(*context, *args, **kwargs)
        bound.apply_defaults()
        return str(value).format_map(bound.arguments)
    except (TypeError, LookupError, AttributeError, ValueError) as error:
        raise InvalidInput(field, f"{value!r} cannot be filled in from the arguments: {error}") from error


@overload
def task(function: Callable[P, R], /) -> AccodaTask[P, R]: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: Literal[True],
    **options: Unpack[TaskOptions],
) -> Callable[[Callable[Concatenate[TaskContext[Any, Any], P], R]], AccodaTask[P, R]]: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: Literal[False] = False,
    **options: Unpack[TaskOptions],
) -> Callable[[Callable[P, R]], AccodaTask[P, R]]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    **options: Unpack[TaskOptions],
) -> Any:
    """Django's `@task`, which takes the options of `TaskOptions` too.

    Django 6.1 and the backport pass them to the backend's tasks by themselves; Django 6.0 does not, and no version
    types them.
    """
    _check_names(options, TaskOptions)

    def decorate(func: Callable[..., Any]) -> AccodaTask[..., Any]:
        return AccodaTask(
            func=func,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            **options,
        )

    return decorate if function is None else decorate(function)
