"""What a handler may say of its jobs and its queue, and how the annotations of a handler are read."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args

from msgspec import Struct

from accoda.enqueue import Cost
from accoda.envelope import check_type
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.model import Lanes, check_queue
from accoda.priority import policy
from accoda.retry import Exponential, RetryRule, rule
from accoda.times import seconds

RunIn = Literal["loop", "thread", "process"]
Settle = Literal["return", "explicit"]
LOG_FOR = 7 * 86_400.0
"""Seconds for which the log of token use is kept, unless a handler says otherwise."""


QUEUE_WIDE = (
    "batch",
    "concurrency",
    "lease",
    "policy",
    "keep_dead_for",
    "budgets",
    "urgent",
    "log_for",
    "number",
    "lanes",
)
"""The options that hold for a whole queue, whichever of its handlers says them. The others are each handler's own."""


class JobTarget(Struct, frozen=True):
    """Where jobs go: a queue, and a type of job in it."""

    queue: str
    type: str | None = None


class HandlerOptions(TypedDict, total=False):
    """What a handler may say of its jobs and its queue. Settings of the same meaning win over `batch`, `concurrency`,
    `lease`, `timeout`, `max_attempts`, `max_crashes` and `keep_dead_for`, so that a running worker can be tuned.

    `type`: it handles only the jobs of this type. `concurrency`: how many jobs of the queue a worker process runs at
    once. `renew=False`: the leases of its jobs are never extended. `settle="explicit"`: what a handler of batches said
    nothing of is left to its lease. `on_dead`: a handler, or the name of a queue, that gets a job when one of these
    jobs is buried. `lanes`: the limits and the fairness of the queue's lanes; `lanes=2` is short for `Lanes(limit=2)`.
    """

    type: str | None
    batch: int
    concurrency: int
    max_attempts: int | None
    max_crashes: int | None
    lease: float | timedelta
    renew: bool
    retry: RetryRule | float | None
    policy: str
    keep_for: float | timedelta
    keep_dead_for: float | timedelta | None
    timeout: float | timedelta | None
    run_in: RunIn | None
    settle: Settle
    on_dead: Any
    cost: Cost
    secret: Sequence[str]
    budget: str | Sequence[str] | None
    urgent: float | None
    log_for: float | timedelta
    number: int | None
    lanes: Lanes | int | None


class Options(Struct, frozen=True, kw_only=True):
    """`HandlerOptions`, checked. None: not said, so the settings or their defaults hold. `said` names the fields that
    the handler itself gave a value."""

    type: str | None = None
    batch: int | None = None
    concurrency: int | None = None
    max_attempts: int | None = None
    max_crashes: int | None = None
    lease: float | None = None
    renew: bool = True
    retry: RetryRule = Exponential()
    policy: str = "strict"
    keep_for: float = 0.0
    keep_dead_for: float | None = None
    timeout: float | None = None
    run_in: RunIn = "loop"
    settle: Settle = "return"
    on_dead: JobTarget | None = None
    cost: Cost = 0
    secret: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    urgent: float | None = None
    log_for: float = LOG_FOR
    number: int | None = None
    lanes: Lanes | None = None
    said: frozenset[str] = frozenset()


def check_options(function: Callable[..., Any], given: HandlerOptions) -> Options:
    """The options of a handler, with what is wrong named."""
    unknown = given.keys() - HandlerOptions.__annotations__.keys()
    if unknown:
        names = ", ".join(HandlerOptions.__annotations__)
        raise InvalidInput(min(unknown), f"there is no such option of a handler; use {names}")
    said: dict[str, Any] = {name: _CHECKS[name](name, value) for name, value in given.items() if name in _CHECKS}
    if "budget" in said:
        said["budgets"] = said.pop("budget")
    check_fair(said.get("policy"), said.get("lanes"))
    return Options(run_in=_where(function, given.get("run_in")), said=frozenset(said), **said)


def check_fair(policy: str | None, lanes: Lanes | None) -> None:
    """Refuse fair lanes in an aging queue: lanes take turns within a priority level, and an aging rank has none."""
    if policy == "aging" and lanes is not None and lanes.fair:
        raise InvalidInput(
            "lanes",
            "cannot be fair with policy='aging', where every job has a rank of its own, so that nothing could take "
            "turns; use policy='strict', or lanes without fair=True",
        )


def _type(field: str, given: object) -> object:
    if given is not None:
        check_type(given)
    return given


def _settle(field: str, given: object) -> object:
    if given not in get_args(Settle):
        raise InvalidInput(field, f"must be one of {', '.join(get_args(Settle))}, not {given!r:.60}")
    return given


def _target(field: str, given: object) -> JobTarget | None:
    """A queue's name, or a handler, which knows its queue and its type."""
    queue = given if isinstance(given, str) else getattr(given, "queue", None)
    if given is None:
        return None
    if not isinstance(queue, str):
        raise InvalidInput(field, f"must be a handler or the name of a queue, not {given!r:.60}")
    check_queue(queue)
    return JobTarget(queue, None if isinstance(given, str) else getattr(given, "type", None))


def _whole(field: str, given: object) -> object:
    if given is not None and (type(given) is not int or given < 1):
        raise InvalidInput(field, f"must be an integer >= 1, not {given!r}")
    return given


def _length(field: str, given: Any) -> float | None:
    """A length of time in seconds, more than none at all; None where it was not said."""
    value = None if given is None else seconds(field, given)
    if value is not None and value <= 0:
        raise InvalidInput(field, f"must be more than 0 seconds, not {value!r}")
    return value


def _policy(field: str, given: Any) -> str:
    policy(given)
    return str(given)


def _budgets(field: str, given: object) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(field, f"must be the name of a budget, or a tuple of names, not {given!r:.60}")
    if len(set(names)) < len(names):
        raise InvalidInput(field, f"must name each budget once, not {given!r:.60}")
    return tuple(names)


def _secret(field: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, (tuple, list)) or not all(isinstance(name, str) and name for name in given):
        raise InvalidInput(field, f"must be a tuple of names of payload fields, such as ('card',), not {given!r:.60}")
    return tuple(given)


def _flag(field: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise InvalidInput(field, f"must be True or False, not {given!r:.60}")
    return given


def _number(field: str, given: object) -> float | None:
    if given is None or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return given
    raise InvalidInput(field, f"must be a rank, which is a number, not {given!r:.60}")


def _lanes(field: str, given: object) -> Lanes | None:
    if type(given) is int:
        return Lanes(limit=given)
    if given is None or isinstance(given, Lanes):
        return given
    raise InvalidInput(field, f"must be Lanes(limit=2), say, or a limit for each lane, not {given!r:.60}")


def _cost(field: str, given: object) -> Cost:
    if callable(given) or (isinstance(given, str) and given.isidentifier()):
        return given
    if type(given) is int and 0 <= given <= COST:
        return given
    raise InvalidInput(field, f"must be an integer >= 0, a payload field's name or a function, not {given!r:.60}")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "type": _type,
    "batch": _whole,
    "concurrency": _whole,
    "max_attempts": _whole,
    "max_crashes": _whole,
    "lease": _length,
    "renew": _flag,
    "retry": lambda _, given: rule(given),
    "policy": _policy,
    "keep_for": seconds,
    "keep_dead_for": _length,
    "timeout": _length,
    "settle": _settle,
    "on_dead": _target,
    "cost": _cost,
    "secret": _secret,
    "budget": _budgets,
    "urgent": _number,
    "log_for": seconds,
    "number": _whole,
    "lanes": _lanes,
}


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it has to be awaited."""
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async is a handler too
    )


def _where(function: Callable[..., Any], asked: object) -> RunIn:
    """`async def` runs on the loop, `def` in a thread unless a process is asked for."""
    is_async = is_coroutine_function(function)
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
    here, missing = inspect.currentframe(), NameError("no frame")
    frame = here.f_back if here is not None else None
    while frame is not None:
        try:
            return typing.get_type_hints(target, localns=dict(frame.f_locals), include_extras=True)
        except NameError as error:
            missing, frame = error, frame.f_back
    raise InvalidInput("handler", f"its annotation cannot be read: {missing}; import the type at the top") from missing
